"""Ways into an account of Azure Storage: TLS with an own authority, key, shared access signature, identity."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from azure.storage.blob import generate_account_sas
from tests.support.certificates import Authority, make_authority

from grete.config.settings.azure import EMULATOR, account_of
from grete.coordination.azure import AzureCoordination
from grete.errors import LoginRefused, LogUnreachable
from grete.testing.clock import ManualClock
from grete_workbench.azurite import Azurite

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A server that speaks TLS and takes tokens."""
    options = {"cert": str(authority.keystore), "pwd": authority.password, "oauth": "basic"}
    server = Azurite(tmp_path_factory.mktemp("azurite"), settings=options)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.ca_pem))


def elect_and_count(connect: str, scope: str) -> int:
    """Use everything there is: leases, blobs and rows."""
    with closing(AzureCoordination(account_of(connect), ManualClock(), table="cells")) as own:
        leadership = own.campaign(scope)
        assert own.renew(leadership) is not None
        cells = own.cells(scope)
        cells.write("a", b"1", None)
        assert set(cells.read_all("")) == {"a"}
        own.release(leadership)
        return leadership.epoch


def signature(*, rights: str) -> str:
    return generate_account_sas(
        EMULATOR["AccountName"],
        EMULATOR["AccountKey"],
        "sco",
        rights,
        datetime.now(UTC) + timedelta(hours=1),
        services="bt",
    )


def test_an_authority_that_is_not_trusted_is_not_believed(secure: Azurite) -> None:
    with pytest.raises(
        LogUnreachable, match=r"(?i)certificate.*check the address in azure\.storage\.connect"
    ):
        elect_and_count(secure.bootstrap, "job/untrusted")


@pytest.mark.usefixtures("trusted")
def test_the_accounts_key_lets_in_over_tls(secure: Azurite) -> None:
    assert elect_and_count(secure.bootstrap, "job/key") == 1


@pytest.mark.usefixtures("trusted")
def test_a_shared_access_signature_lets_in_as_far_as_it_says(secure: Azurite) -> None:
    without_key = secure.connection(key=False)
    everything = f"{without_key};SharedAccessSignature={signature(rights='rwdlacu')}"
    assert elect_and_count(everything, "job/signature") == 1
    reading = f"{without_key};SharedAccessSignature={signature(rights='rl')}"
    with pytest.raises(
        LoginRefused, match=r"check the key, signature or identity of azure\.storage\.connect"
    ) as said:
        elect_and_count(reading, "job/signature")
    assert "sig=" not in str(said.value)


class Identity(BaseHTTPRequestHandler):
    """The endpoint that gives tokens to what runs in Azure (App Service)."""

    def do_GET(self) -> None:
        assert self.headers["X-IDENTITY-HEADER"] == "ours"
        now = int(time.time())
        claims = {"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/tenant/"}
        claims |= {"iat": now, "nbf": now - 60, "exp": now + 3600}
        document = {"access_token": _token(claims), "expires_on": str(now + 3600), "resource": "storage"}
        body = json.dumps({**document, "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _token(claims: dict[str, object]) -> str:
    parts = ({"alg": "RS256", "typ": "JWT"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmVk"])


@pytest.mark.usefixtures("trusted")
def test_without_key_and_signature_the_identity_of_the_process_lets_in(
    secure: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Identity) as server:
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.05))
        thread.start()
        try:
            monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{server.server_port}/token")
            monkeypatch.setenv("IDENTITY_HEADER", "ours")
            assert elect_and_count(secure.connection(key=False), "job/identity") == 1
        finally:
            server.shutdown()
            thread.join()
