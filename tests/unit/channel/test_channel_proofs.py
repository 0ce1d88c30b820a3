"""Both ends of a channel prove the key over the certificate that is seen: what each kind of attack comes to."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from ssl import TLSVersion

import pytest

from grete.channel import tls
from grete.channel.certificate import Identity
from grete.channel.keyed_relay import check_relay
from grete.channel.tls import NONCE_BYTES, PROOF_BYTES, Ends, Proofs, client_context, connect, exactly
from grete.errors import MissingExtra
from grete.testing.waiting import eventually

ENDS = Ends(b"k" * 32, client="worker", server="container")
SECRET = b"what the server says after both proofs"
PATIENCE_S = 5.0


@dataclass
class Served:
    """A server, and what has become of its connections."""

    address: tuple[str, int]
    identity: Identity
    outcomes: list[str] = field(default_factory=list)

    def has(self, outcomes: list[str]) -> bool:
        """Whether they are these, once it has handled as many connections."""
        eventually(lambda: len(self.outcomes) >= len(outcomes), "the server is through")
        return self.outcomes == outcomes


@contextmanager
def accepting(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """A listener whose connections are handled one after the other; all are, when it is left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.settimeout(PATIENCE_S)
                with connection, suppress(OSError, ValueError):
                    serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[:2]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)


@pytest.fixture
def server() -> Iterator[Served]:
    made = Served(("", 0), Identity.create())

    def serve(plain: socket.socket) -> None:
        try:
            with made.identity.context.wrap_socket(plain, server_side=True) as connection:
                ENDS.prove_server(connection, made.identity.certificate)
                made.outcomes.append("proved")
                connection.sendall(SECRET)
        except (OSError, ValueError) as error:
            made.outcomes.append(str(error))

    with accepting(serve) as made.address:
        yield made


@contextmanager
def encrypted(address: tuple[str, int]) -> Iterator[ssl.SSLSocket]:
    """A connection of one who speaks as he likes."""
    with (
        socket.create_connection(address, PATIENCE_S) as plain,
        client_context().wrap_socket(plain) as connection,
    ):
        yield connection


def test_two_ends_with_one_key_speak_by_tls_1_3(server: Served) -> None:
    with connect(server.address, ENDS) as connection:
        assert connection.version() == "TLSv1.3"
        assert exactly(connection, len(SECRET)) == SECRET
    assert server.has(["proved"])


def test_one_who_ends_tls_on_both_sides_can_pass_on_neither_proof(server: Served) -> None:
    """He has a certificate of his own, so what the server proves is not what the client sees."""
    own, heard = Identity.create(), bytearray()

    def stand_between(plain: socket.socket) -> None:
        with own.context.wrap_socket(plain, server_side=True) as client, encrypted(server.address) as beyond:
            beyond.sendall(exactly(client, NONCE_BYTES))
            client.sendall(exactly(beyond, NONCE_BYTES + PROOF_BYTES))
            heard.extend(client.recv(1000))

    with accepting(stand_between) as between, pytest.raises(ValueError, match="container's proof is wrong"):
        connect(between, ENDS)
    assert not heard, "the client said nothing more"
    assert "proved" not in server.outcomes


def test_a_client_that_believed_him_would_still_not_be_believed(server: Served) -> None:
    """The client's proof is over the certificate that it saw: it opens no other server, though one had the key."""
    own = Identity.create()
    with encrypted(server.address) as connection:
        drawn = tls.nonce()
        connection.sendall(drawn)
        answer = exactly(connection, NONCE_BYTES + PROOF_BYTES)
        connection.sendall(Proofs(ENDS, own.certificate, drawn, answer[:NONCE_BYTES]).of_client)
        assert connection.recv(1000) == b""
    assert server.has(["the worker's proof is wrong"])


def test_one_who_passes_bytes_on_as_they_are_is_a_wire(server: Served) -> None:
    seen = bytearray()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                seen.extend(data)
                target.sendall(data)

    def pass_on(client: socket.socket) -> None:
        with socket.create_connection(server.address, PATIENCE_S) as beyond:
            back = threading.Thread(target=carry, args=(beyond, client), daemon=True)
            back.start()
            carry(client, beyond)
            beyond.shutdown(socket.SHUT_RDWR)
            back.join(PATIENCE_S)

    with accepting(pass_on) as between, connect(between, ENDS) as connection:
        assert exactly(connection, len(SECRET)) == SECRET
    assert len(seen) > 500
    assert SECRET not in seen


def test_without_the_key_neither_end_is_believed(server: Served) -> None:
    with pytest.raises(ValueError, match="container's proof is wrong"):
        connect(server.address, replace(ENDS, key=b"x" * 32))
    with encrypted(server.address) as connection:
        connection.sendall(tls.nonce())
        exactly(connection, NONCE_BYTES + PROOF_BYTES)
        connection.sendall(bytes(PROOF_BYTES))
        assert connection.recv(1000) == b""
    closed = "the other end has closed the connection"
    assert server.has([closed, "the worker's proof is wrong"])


def test_proofs_of_an_earlier_connection_are_good_for_no_other(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the client's key holder saw them, inside the encryption: what could be had of a machine's memory."""
    sent: list[bytes] = []
    keep = vars(Proofs)["of_client"].fget
    monkeypatch.setattr(Proofs, "of_client", property(lambda one: sent.append(keep(one)) or keep(one)))
    drawn = tls.nonce()
    monkeypatch.setattr(tls, "nonce", lambda: drawn)
    with connect(server.address, ENDS) as connection:
        exactly(connection, len(SECRET))
    monkeypatch.undo()
    with encrypted(server.address) as connection:
        connection.sendall(drawn)
        exactly(connection, NONCE_BYTES + PROOF_BYTES)
        connection.sendall(sent[0])
        assert connection.recv(1000) == b""
    assert server.has(["proved", "the worker's proof is wrong"])

    def answer_as_before(plain: socket.socket) -> None:
        with server.identity.context.wrap_socket(plain, server_side=True) as connection:
            exactly(connection, NONCE_BYTES)
            earlier = Proofs(ENDS, server.identity.certificate, drawn, drawn)
            connection.sendall(earlier.answer)

    with (
        accepting(answer_as_before) as replaying,
        pytest.raises(ValueError, match="container's proof is wrong"),
    ):
        connect(replaying, ENDS)


def test_a_proof_sent_back_to_the_end_that_gave_it_is_wrong(server: Served) -> None:
    with encrypted(server.address) as connection:
        connection.sendall(tls.nonce())
        connection.sendall(exactly(connection, NONCE_BYTES + PROOF_BYTES)[NONCE_BYTES:])
        assert connection.recv(1000) == b""
    assert server.has(["the worker's proof is wrong"])
    other = Ends(ENDS.key, client="container", server="worker")
    with pytest.raises(ValueError, match="proof is wrong"):
        connect(server.address, other)


def test_neither_end_speaks_an_older_tls(server: Served) -> None:
    context = client_context()
    context.minimum_version = TLSVersion.TLSv1_2
    context.maximum_version = TLSVersion.TLSv1_2
    with (
        socket.create_connection(server.address, PATIENCE_S) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"),
    ):
        context.wrap_socket(plain)
    older = Identity.create().context
    older.minimum_version = TLSVersion.TLSv1_2
    older.maximum_version = TLSVersion.TLSv1_2

    def answer(plain: socket.socket) -> None:
        older.wrap_socket(plain, server_side=True)

    with accepting(answer) as downgraded, pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        connect(downgraded, ENDS)


def test_a_process_has_a_certificate_of_its_own_and_leaves_no_key_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert Identity.create().certificate != Identity.create().certificate
    assert list(tmp_path.iterdir()) == []


def test_a_server_without_cryptography_names_the_extra_and_a_client_needs_none(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtra, match=r"pip install 'grete\[tls\]'"):
        Identity.create()
    with pytest.raises(MissingExtra):
        check_relay("127.0.0.1")
    with connect(server.address, ENDS) as connection:
        assert exactly(connection, len(SECRET)) == SECRET
