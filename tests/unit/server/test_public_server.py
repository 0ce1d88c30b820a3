"""HTTP that other machines reach: over TLS, with the rules of the server on the loopback, and never in its way."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest
from tests.unit.server.test_server import TOKEN, TOKENS, View

from grete.channel.certificate import CertificateFiles, own_certificate
from grete.channel.relay import MOST_ADMITTED, MOST_UNADMITTED
from grete.config.settings import Settings
from grete.coordinator.public_address import PublicAddress
from grete.errors import ConfigError
from grete.server.public import PublicServer, ServerTls, certificate_files
from grete.server.rights import RenewedToken, Right, TokenFiles
from grete.server.serve import HttpServer, bind, coordinator_server, write_tokens
from grete.testing.clock import ManualClock
from grete.testing.waiting import eventually

NAMES = ("localhost", "127.0.0.1", "jobs.example")


@pytest.fixture
def own(tmp_path: Path) -> CertificateFiles:
    return own_certificate(tmp_path / "job", NAMES)


@pytest.fixture
def served(own: CertificateFiles) -> Iterator[tuple[HttpServer, PublicServer]]:
    """A coordinator's server, and the way to it for others."""
    public = PublicServer(PublicAddress("127.0.0.1", 0, NAMES), bind("127.0.0.1", 0), ServerTls(own))
    server = coordinator_server(View(), bind("127.0.0.1", 0), TOKENS, names=public.address.hosts)
    with closing(server), closing(public):
        server.start()
        public.start(server.address)
        yield server, public


def get(served: PublicServer | str, path: str, trusted: Path, **headers: str) -> httpx2.Response:
    url = served if isinstance(served, str) else served.address.url
    given = {"authorization": f"Bearer {TOKEN}", **headers}
    context = ssl.create_default_context(cafile=trusted)
    return httpx2.get(f"{url}{path}", headers=given, verify=context, trust_env=False, timeout=5)


def test_others_have_the_same_answers_over_tls(
    served: tuple[HttpServer, PublicServer], own: CertificateFiles
) -> None:
    server, public = served
    assert public.address.url == f"https://localhost:{public.address.port}"
    for path in ("/", "/api/v1/job", "/metrics", "/healthz"):
        here = httpx2.get(
            f"{server.url}{path}", headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False
        )
        there = get(public, path, own.certificate)
        assert (there.status_code, there.content) == (here.status_code, here.content)
    assert get(public, "/api/v1/job", own.certificate, authorization="").status_code == 401
    assert get(public, "/healthz", own.certificate, host="jobs.example").status_code == 200
    assert get(public, "/healthz", own.certificate, host="evil.example").status_code == 421
    assert get(public, "/healthz", own.certificate, origin="https://evil.example").status_code == 403


def test_plain_http_is_not_answered_and_another_certificate_not_trusted(
    served: tuple[HttpServer, PublicServer], tmp_path: Path
) -> None:
    _, public = served
    with pytest.raises(httpx2.TransportError):
        httpx2.get(public.address.url.replace("https", "http"), trust_env=False)
    with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        get(public, "/healthz", own_certificate(tmp_path / "another", NAMES).certificate)


def test_connections_that_say_nothing_keep_nobody_out(
    served: tuple[HttpServer, PublicServer], own: CertificateFiles
) -> None:
    _, public = served
    with ExitStack() as stack:
        for _ in range(2 * MOST_UNADMITTED):
            stack.enter_context(socket.create_connection(("127.0.0.1", public.address.port), 5))
        assert get(public, "/healthz", own.certificate).status_code == 200


def test_however_many_come_over_tls_those_of_this_machine_are_answered(
    served: tuple[HttpServer, PublicServer], own: CertificateFiles
) -> None:
    server, public = served
    context = ssl.create_default_context(cafile=own.certificate)
    with ExitStack() as stack, httpx2.Client(trust_env=False) as container:
        assert container.get(f"{server.url}/healthz").status_code == 200
        admitted = 0
        for _ in range(MOST_ADMITTED + 10):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", public.address.port), 5))
            try:
                stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
                admitted += 1
            except OSError:
                break
        assert admitted == MOST_ADMITTED
        assert container.get(f"{server.url}/healthz").status_code == 200

    def is_answered() -> bool:
        try:
            return get(public, "/healthz", own.certificate).status_code == 200
        except httpx2.TransportError:
            return False

    eventually(is_answered, "there is room again")


def test_a_new_certificate_is_used_from_the_next_connection_on(
    served: tuple[HttpServer, PublicServer],
    own: CertificateFiles,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, public = served
    before = own.certificate.read_bytes()
    old, other = tmp_path / "old.pem", own_certificate(tmp_path / "new", NAMES)
    old.write_bytes(before)
    own.certificate.write_bytes(other.certificate.read_bytes())  # its key is not there yet
    assert get(public, "/healthz", old).status_code == 200
    assert "is not used, but the one before" in caplog.text
    own.key.write_bytes(other.key.read_bytes())
    assert get(public, "/healthz", other.certificate).status_code == 200
    os.unlink(own.key)
    assert get(public, "/healthz", other.certificate).status_code == 200


def test_the_certificate_of_a_job_stays_until_it_is_reached_by_other_names(tmp_path: Path) -> None:
    first = own_certificate(tmp_path, NAMES)
    content = first.certificate.read_bytes()
    assert own_certificate(tmp_path, NAMES).certificate.read_bytes() == content
    assert first.key.stat().st_mode & 0o077 == 0
    assert own_certificate(tmp_path, (*NAMES, "::1")).certificate.read_bytes() != content
    first.key.write_bytes(b"damaged")
    ServerTls(own_certificate(tmp_path, NAMES))


def test_files_that_are_no_certificate_are_named_before_anything_is_served(
    tmp_path: Path, own: CertificateFiles
) -> None:
    damaged = tmp_path / "damaged.pem"
    for content in (None, b"", b"no certificate", own.certificate.read_bytes()):
        if content is not None:
            damaged.write_bytes(content)
        settings = Settings.of({"job.http.certificate": str(damaged)}).coordinator
        with pytest.raises(ConfigError, match=rf"job\.http\.certificate={damaged}: it cannot be used"):
            ServerTls(certificate_files(settings, NAMES, tmp_path))


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"job.http.host": "127.0.0.1"}, None),
        ({"job.http.host": "::1"}, None),
        ({"job.http.host": "192.0.2.7"}, ("192.0.2.7", socket.gethostname())),
        ({"job.http.host": "0.0.0.0", "job.http.names": "a.example, ::2"}, ("a.example", "::2")),  # noqa: S104
    ],
)
def test_the_names_are_those_of_the_configuration_or_of_the_machine(
    config: dict[str, str], names: tuple[str, ...] | None
) -> None:
    found = PublicAddress.of(Settings.of({"job.http.port": "8080", **config}).coordinator)
    assert (found and found.names) == names
    if found is not None and names is not None:
        assert found.url == f"https://{names[0]}:8080"


@pytest.mark.parametrize("token", ["short", "a" * 19, "with spaces, which no token has", "é" * 30])
def test_a_token_that_could_be_guessed_or_that_no_header_has_is_refused(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRAPER", token)
    settings = Settings.of({"job.http.metrics.token": "${env:SCRAPER}"}).coordinator
    with pytest.raises(ConfigError, match="20 characters or more"):
        _ = settings.http_metrics_token


def test_a_scraper_shows_the_token_that_the_configuration_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRAPER", "a-token-of-the-scrapers-own")
    coordinator = Settings.of({"job.http.metrics.token": "${env:SCRAPER}"}).coordinator
    given = RenewedToken(lambda: coordinator.http_metrics_token, ManualClock())
    tokens = write_tokens(TokenFiles.of(tmp_path), needs_read=True, metrics=given)
    assert TokenFiles.of(tmp_path).metrics.read_text() == "a-token-of-the-scrapers-own"
    assert tokens.right(b"a-token-of-the-scrapers-own") is Right.METRICS


def test_a_token_that_others_renew_is_taken_up_without_a_restart_and_one_that_is_none_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, clock = tmp_path / "token", ManualClock()
    file.write_text("the-first-token-of-scrapers\n")
    coordinator = Settings.of({"job.http.metrics.token": f"${{file:{file}}}"}).coordinator
    given = RenewedToken(lambda: coordinator.http_metrics_token, clock)
    tokens = write_tokens(TokenFiles.of(tmp_path), needs_read=True, metrics=given)
    file.write_text("the-second-token-of-scrapers\n")
    assert tokens.right(b"the-first-token-of-scrapers") is Right.METRICS
    clock.advance(10)
    assert tokens.right(b"the-first-token-of-scrapers") is None
    assert tokens.right(b"the-second-token-of-scrapers") is Right.METRICS
    file.write_text("short")
    clock.advance(10)
    assert tokens.right(b"short") is None
    assert tokens.right(b"the-second-token-of-scrapers") is Right.METRICS
    assert "scrapers go on with the token before" in caplog.text
    assert "short" not in caplog.text


def test_a_job_of_another_machine_is_reached_by_that_ones_name() -> None:
    every = Settings.of({"job.http.port": "8443", "job.http.host": "0.0.0.0"}).coordinator  # noqa: S104
    one = Settings.of({"job.http.port": "8443", "job.http.host": "192.0.2.7"}).coordinator
    found = PublicAddress.of(every, "elsewhere"), PublicAddress.of(one, "elsewhere")
    assert [address and address.names for address in found] == [("elsewhere",), ("192.0.2.7", "elsewhere")]
    here = PublicAddress.of(every, socket.gethostname())
    assert here == PublicAddress.of(every)
