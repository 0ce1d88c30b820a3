"""Programs that a kubeconfig names for credentials (`exec`), by a program of the test and a server over TLS."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.raw_http import CERTIFICATE, RawServer, Request, document, raw_server

from grete.coordination.kubernetes import credential_plugin
from grete.coordination.kubernetes.access import Access, of_kubeconfig
from grete.coordination.kubernetes.api_server import ApiServer
from grete.coordination.kubernetes.credential import Credential
from grete.coordination.kubernetes.credential_plugin import CredentialPlugin
from grete.errors import CoordinationError, CoordinationUnreachable
from grete.testing.clock import ManualClock
from grete.testing.waiting import eventually, patient

V1, V1BETA1 = credential_plugin.VERSIONS
NOW_MS = 1_700_000_000_000
PROGRAM = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
told = os.environ["KUBERNETES_EXEC_INFO"], os.environ.get("WHO"), sys.stdin.read()
with (folder / "ran").open("a") as ran:
    ran.write(json.dumps([sys.argv[1:], *told]) + "\\n")
exec((folder / "answer.py").read_text())
"""
ANSWER = "print({!r})"
Configured = Callable[..., Access]


class Plugin:
    """The program: what it answers from now on, and how often and how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "get-token"
        self.path.write_text(PROGRAM.format(python=sys.executable))
        self.path.chmod(0o700)

    def does(self, source: str) -> None:
        (self.folder / "answer.py").write_text(source)

    def gives(self, token: str | None = None, version: str = V1, **status: str) -> None:
        document = {"kind": "ExecCredential", "apiVersion": version, "status": {"token": token, **status}}
        self.does(ANSWER.format(json.dumps(document)))

    @property
    def calls(self) -> list[list[Any]]:
        ran = self.folder / "ran"
        return [json.loads(line) for line in ran.read_text().splitlines()] if ran.exists() else []


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.fixture
def server() -> Iterator[RawServer]:
    with raw_server(tls=True) as made:
        yield made


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    """The access of a kubeconfig with `exec`, relative to it."""

    def made(url: str = "https://127.0.0.1:1", version: str = V1, **more: Any) -> Access:
        cluster = {"server": url, "certificate-authority": str(CERTIFICATE)}
        told = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
        named = {"apiVersion": version, "command": "./get-token", "interactiveMode": "IfAvailable", **more}
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {**cluster, "extensions": [told]}}],
            "users": [{"name": "u", "user": {"exec": named}}],
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(config))
        return of_kubeconfig([path])

    return made


def takes(token: str) -> Callable[[Request], list[bytes]]:
    """A server that knows one token."""
    return lambda request: document(
        {"kind": "Lease"} if request.authorization == f"Bearer {token}" else {"message": "who?"},
        200 if request.authorization == f"Bearer {token}" else 401,
    )


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_request_has_the_token_that_the_program_gives_and_it_runs_once(
    plugin: Plugin, server: RawServer, configured: Configured, version: str
) -> None:
    plugin.gives("one", version)
    server.answer = takes("one")
    access = configured(
        server.url, version, args=["eks", "get-token; false"], env=[{"name": "WHO", "value": "ann"}]
    )
    with closing(ApiServer(access)) as api:
        assert [api.read("/x", 30) for _ in range(3)] == [{"kind": "Lease"}] * 3
    [[words, info, who, typed]] = plugin.calls
    assert (words, who, typed) == (["eks", "get-token; false"], "ann", "")
    assert json.loads(info) == {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {"interactive": False},
    }


def test_the_program_is_told_of_the_cluster_if_it_asks(plugin: Plugin, configured: Configured) -> None:
    plugin.gives("one")
    configured(provideClusterInfo=True).credential()
    authority = base64.b64encode(CERTIFICATE.read_bytes()).decode()
    told = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": authority,
        "config": {"audience": "a"},
    }
    assert json.loads(plugin.calls[0][1])["spec"] == {"interactive": False, "cluster": told}


def test_a_token_that_is_refused_is_asked_for_again_and_the_request_sent_again(
    plugin: Plugin, server: RawServer, configured: Configured
) -> None:
    plugin.gives("one")
    server.answer = takes("one")
    with closing(ApiServer(configured(server.url))) as api:
        api.read("/x", 30)
        plugin.gives("two")
        server.answer = takes("two")
        assert api.create("/x", {}, 30) == {"kind": "Lease"}
        assert [one.authorization for one in server.asked] == ["Bearer one", "Bearer one", "Bearer two"]
        server.answer = takes("nobody's")
        with pytest.raises(CoordinationError, match="401 who"):
            api.create("/x", {}, 30)
    assert len(plugin.calls) == 3
    assert len(server.asked) == 5


def test_a_watch_that_is_refused_ends_and_the_next_one_has_another_token(
    plugin: Plugin, server: RawServer, configured: Configured
) -> None:
    plugin.gives("one")
    server.answer = takes("two")
    with closing(ApiServer(configured(server.url))) as api:
        api.watch("/x", "", "7", 30, 30)
        plugin.gives("two")
        api.watch("/x", "", "7", 30, 30)
    assert [one.authorization for one in server.asked] == ["Bearer one", "Bearer two"]


def test_a_credential_is_replaced_before_it_expires_and_never_used_after(
    plugin: Plugin, configured: Configured
) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    access = configured()
    assert access.plugin is not None
    kept = CredentialPlugin(access.plugin._program, clock)
    plugin.gives("one", expirationTimestamp="2023-11-14T22:23:20Z")  # 10 minutes from now
    assert kept.credential(60) == Credential("one")
    clock.advance(500)
    plugin.gives("two", expirationTimestamp="2023-11-14T23:13:20Z")
    assert kept.credential(60) == Credential("one")
    assert len(plugin.calls) == 1
    clock.advance(50)
    eventually(lambda: kept.credential(60) == Credential("two"), "the next one is there")
    assert len(plugin.calls) == 2
    plugin.does("sys.exit(3)")
    clock.advance(3600)
    with pytest.raises(CoordinationUnreachable, match="ended with 3: it printed no error"):
        kept.credential(60)


def test_a_client_certificate_is_shown_and_its_successor_on_a_new_connection(
    plugin: Plugin, configured: Configured
) -> None:
    text = CERTIFICATE.read_text()
    key = re.search("-----BEGIN [A-Z ]*KEY.*KEY-----\n", text, re.DOTALL)
    assert key is not None
    with raw_server(tls=True, asks_certificate=True) as server:
        server.answer = lambda _: document({"kind": "Lease"})
        plugin.gives(clientCertificateData=text, clientKeyData=key[0])
        with closing(ApiServer(configured(server.url))) as api:
            assert api.read("/x", 30) == {"kind": "Lease"}
            first = api._client
            server.answer = lambda _: document({"message": "expired"}, 401)
            plugin.gives(clientCertificateData=text + "\n", clientKeyData=key[0])
            with pytest.raises(CoordinationError, match="expired"):
                api.read("/x", 30)
            server.answer = lambda _: document({"kind": "Lease"})
            assert api.read("/x", 30) == {"kind": "Lease"}
            assert api._client is not first


SECRET = "wonderland-4f1c"  # noqa: S105 - of this test
BOTH = json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {"clientKeyData": SECRET}})
OTHER = json.dumps({"kind": "ExecCredential", "apiVersion": V1BETA1, "status": {"token": SECRET}})


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (f"print({SECRET!r})", "printed no ExecCredential"),
        ("os.write(1, b'\\xff')", "printed no ExecCredential"),
        (f"print({BOTH!r})", "printed neither a token nor a client certificate with its key"),
        (f"print({OTHER!r})", "v1beta1', and client.authentication.k8s.io/v1 was asked for"),
        (f"print({SECRET!r}); sys.exit('no session: log in')", "ended with 1: no session: log in"),
        ("os.kill(os.getpid(), 9)", "ended with -9"),
    ],
)
def test_a_program_that_gives_none_is_named_with_its_hint_and_nothing_it_printed(
    plugin: Plugin, configured: Configured, source: str, said: str
) -> None:
    plugin.does(source)
    with pytest.raises(CoordinationError, match=rf"get-token, .*{said}.*\. Run aws configure\.") as refused:
        configured(installHint="Run aws configure.").credential()
    assert SECRET not in str(refused.value)


def test_a_program_that_hangs_costs_a_caller_no_more_than_he_has_and_is_killed(
    plugin: Plugin, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_plugin, "LONGEST_S", 3.0)
    plugin.does("import time; (folder / 'pid').write_text(str(os.getpid())); time.sleep(600)")
    access = configured()
    with pytest.raises(CoordinationUnreachable, match=r"not answered within 0\.05 s"):
        access.credential(0.05)
    with pytest.raises(CoordinationUnreachable, match="not answered within 3 s and was killed"):
        access.credential(60)
    assert len(plugin.calls) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int((plugin.folder / "pid").read_text()), 0)


def test_a_program_that_cannot_be_started_is_named(plugin: Plugin, configured: Configured) -> None:
    plugin.path.write_text("#!/no/such/interpreter\n")
    with pytest.raises(CoordinationError, match=r"get-token, cannot be started: .*No such file"):
        configured().credential()


def test_a_token_in_the_kubeconfig_wins_over_the_program(plugin: Plugin, tmp_path: Path) -> None:
    user = {"token": "own", "exec": {"apiVersion": V1, "command": str(plugin.path)}}
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    assert of_kubeconfig([tmp_path / "config"]).credential() == Credential("own")
    assert plugin.calls == []


def test_the_end_of_a_long_error_tells_no_secret_whose_name_was_cut_off(
    plugin: Plugin, configured: Configured
) -> None:
    plugin.does(f"sys.exit('token=' + {SECRET!r} * 60)")
    with pytest.raises(CoordinationUnreachable, match="ended with 1") as refused:
        configured().credential()
    assert SECRET not in str(refused.value)


def test_a_program_that_hangs_holds_up_no_end_of_the_process(plugin: Plugin, configured: Configured) -> None:
    plugin.does("import time; time.sleep(8)")
    configured()
    program = (
        "from pathlib import Path; from grete.coordination.kubernetes.access import of_kubeconfig\n"
        f"try: of_kubeconfig([Path({str(plugin.folder / 'config')!r})]).credential(0.2)\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patient(6))
    assert "has not answered" in done.stdout, done.stderr


def test_a_machine_without_room_for_a_process_is_tried_again(
    plugin: Plugin, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    access = configured()
    monkeypatch.setattr(subprocess, "run", no_room)
    with pytest.raises(CoordinationUnreachable, match="cannot be started"):
        access.credential()
