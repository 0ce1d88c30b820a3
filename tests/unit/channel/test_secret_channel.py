"""References that executors on other machines meet: resolved by their container, over a connection of their own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from grete.channel.certificate import Identity
from grete.config import secrets
from grete.config.secret_channel import VARIABLE, FetchedSecrets, SecretsAddress
from grete.config.secrets import resolve_secrets
from grete.container.secret_server import SecretServer
from grete.errors import ConfigError, JobError
from grete.testing.waiting import eventually

SECRET = "wonderland-4f1c"  # noqa: S105 - of this test alone


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretServer]:
    """A container's, with a password in a file and one that it does not find itself."""
    (tmp_path / "password").write_text(SECRET)
    config = {
        "systems.kafka.consumer.sasl.password": f"${{file:{tmp_path}/password}}",
        "words.key": "${env:GRETE_NOT_SET_ANYWHERE}",
        "job.coordinator.zk.password": "${env:HOME}",
        "words.plain": "nothing",
    }
    with closing(SecretServer(config, "127.0.0.1", "127.0.0.1")) as opened:
        monkeypatch.setattr(secrets, "_fetched", FetchedSecrets())
        yield opened


def test_a_worker_resolves_what_only_its_container_can(
    server: SecretServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = f"${{file:{tmp_path}/password}}"
    values = server.address.fetch()
    assert values == {reference: SECRET}, "and it is given nothing that only coordinators need"
    (tmp_path / "password").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot resolve"):
        resolve_secrets(reference)
    (tmp_path / "elsewhere").rename(tmp_path / "password")
    monkeypatch.setenv(VARIABLE, str(server.address))
    assert resolve_secrets(f"user:{reference}") == f"user:{SECRET}"
    (tmp_path / "password").rename(tmp_path / "elsewhere")
    assert resolve_secrets(reference) == SECRET, "it is not asked for each time"
    with pytest.raises(ConfigError, match="GRETE_NOT_SET_ANYWHERE"):
        resolve_secrets("${env:GRETE_NOT_SET_ANYWHERE}")


def test_a_rotated_file_is_read_when_a_worker_asks_the_next_time(
    server: SecretServer, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("new")
    assert list(server.address.fetch().values()) == ["new"]


def test_without_the_key_there_is_no_secret_and_a_false_container_is_not_believed(
    server: SecretServer, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises((OSError, ValueError)):
        replace(server.address, key=bytes(32)).fetch()
    eventually(lambda: "without its key was refused" in caplog.text, "the container says so")
    assert server.address.key.hex() not in repr(server.address)
    with socket.create_server(("127.0.0.1", 0)) as false:

        def answer() -> None:
            connection, _ = false.accept()
            with Identity.create().context.wrap_socket(connection, server_side=True) as opened:
                opened.recv(100)
                opened.sendall(bytes(64) + b"{}")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ValueError, match="proof is wrong"):
            replace(server.address, port=false.getsockname()[1]).fetch()
        thread.join()


def test_who_listens_or_stands_between_learns_nothing(server: SecretServer) -> None:
    """It sees every byte of a connection, and can pass on a worker's proof to no other."""
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as between:

        def carry(source: socket.socket, target: socket.socket) -> None:
            while data := source.recv(65_536):
                seen.extend(data)
                target.sendall(data)

        def listen() -> None:
            worker, _ = between.accept()
            with worker, socket.create_connection((server.address.host, server.address.port)) as container:
                back = threading.Thread(target=carry, args=(container, worker))
                back.start()
                carry(worker, container)
                back.join(5)

        threading.Thread(target=listen, daemon=True).start()
        assert SECRET in replace(server.address, port=between.getsockname()[1]).fetch().values()
    assert len(seen) > 500
    assert SECRET.encode() not in seen
    assert server.address.key not in seen


def test_a_container_that_is_not_there_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grete.config.secret_channel._PAUSE_S", 0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = SecretsAddress("127.0.0.1", port, b"k" * 32)
    with pytest.raises(JobError, match=rf"127.0.0.1:{port}.*spark.driver.host") as caught:
        FetchedSecrets().at(str(address))
    assert address.key.hex() not in str(caught.value)
    assert SecretsAddress.parse(str(address)) == address
