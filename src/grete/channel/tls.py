"""A connection whose two ends have one key: TLS 1.3, and a proof by each end over the certificate that was seen.

The server's certificate is its process's own (`channel.certificate`), signed by nobody, and no client trusts it: TLS
shows only that the other end has the certificate's private key. That this certificate is the right one is proved
by the key that both ends have, before anything else is said:

    client > server   32 bytes drawn by the client
    server > client   32 bytes drawn by the server, and its proof
    client > server   the client's proof

A proof is HMAC-SHA256 by the key over who proves, the certificate's SHA-256 and what both ends have drawn. Who ends
TLS on both sides has another certificate, over which neither end's proof is good to the other. The server proves
first: a client says nothing, not even its proof, to one that has not the key. What was drawn makes each proof
good for one connection, the names make it good for one end.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import ssl
from dataclasses import dataclass, field
from typing import Self

CONNECT_S = 10.0
NONCE_BYTES = PROOF_BYTES = 32
_PURPOSE = b"grete channel, version 2"


def only_tls13(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context, which speaks nothing older from now on."""
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    return context


def connect(address: tuple[str, int], ends: Ends, patience_s: float = CONNECT_S) -> ssl.SSLSocket:
    """A connection to the server, which has proved the key, and to which this end has.

    Raises:
        OSError: no connection.
        ValueError: see `Ends.prove_client`.
    """
    with socket.create_connection(address, patience_s) as plain:
        send_at_once(plain)
        connection = client_context().wrap_socket(plain)
    try:
        ends.prove_client(connection)
    except (OSError, ValueError):
        connection.close()
        raise
    return connection


def host_in_url(host: str) -> str:
    """The host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def send_at_once(connection: socket.socket) -> None:
    """Let the pieces of the proof not wait for one another's acknowledgement, for 40 ms."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def client_context() -> ssl.SSLContext:
    """The TLS of a client. It takes any certificate, so nothing may be said before `Ends.prove_client`."""
    context = only_tls13(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def fingerprint(certificate: bytes) -> bytes:
    """What proofs say of a certificate (DER)."""
    return hashlib.sha256(certificate).digest()


@dataclass(frozen=True, slots=True)
class Ends:
    """What the two ends of a channel are called, and the key that both have."""

    key: bytes = field(repr=False)
    client: str
    server: str

    def prove_client(self, connection: ssl.SSLSocket) -> None:
        """See that the server has the key, then prove that this end has it. Something may be said afterwards.

        Raises:
            OSError: the connection broke.
            ValueError: the server has not the key, or another certificate than it vouches for.
        """
        certificate = connection.getpeercert(binary_form=True)
        if not certificate:
            raise ValueError(f"the {self.server} shows no certificate")
        drawn = nonce()
        connection.sendall(drawn)
        answer = exactly(connection, NONCE_BYTES + PROOF_BYTES)
        proofs = Proofs(self, fingerprint(certificate), drawn, answer[:NONCE_BYTES])
        if not hmac.compare_digest(answer[NONCE_BYTES:], proofs.of_server):
            raise ValueError(f"the {self.server}'s proof is wrong")
        connection.sendall(proofs.of_client)

    def prove_server(self, connection: ssl.SSLSocket, certificate: bytes) -> None:
        """Prove that this end has the key, then see that the client has it; `certificate` is a fingerprint.

        Raises:
            OSError: the connection broke.
            ValueError: the client has not the key, or sees another certificate.
        """
        proofs = Proofs.answering(self, certificate, exactly(connection, NONCE_BYTES))
        connection.sendall(proofs.answer)
        proofs.see(exactly(connection, PROOF_BYTES))


@dataclass(frozen=True, slots=True)
class Proofs:
    """The proofs of one connection: of its ends, over the fingerprint of its certificate and what both have drawn."""

    ends: Ends
    certificate: bytes
    of_the_client: bytes
    of_the_server: bytes

    def __post_init__(self) -> None:
        assert len(self.certificate) == hashlib.sha256().digest_size, (
            "it has a fixed length in what is proved"
        )
        assert len(self.of_the_client) == len(self.of_the_server) == NONCE_BYTES

    @classmethod
    def answering(cls, ends: Ends, certificate: bytes, drawn: bytes) -> Self:
        """Those of a server whose client has drawn this."""
        return cls(ends, certificate, drawn, nonce())

    @property
    def of_server(self) -> bytes:
        """The server's."""
        return self._of("server", self.ends.server)

    @property
    def of_client(self) -> bytes:
        """The client's."""
        return self._of("client", self.ends.client)

    @property
    def answer(self) -> bytes:
        """What the server says first."""
        return self.of_the_server + self.of_server

    def see(self, proof: bytes) -> None:
        """Compare what came from the client.

        Raises:
            ValueError: it is not the client's proof.
        """
        if not hmac.compare_digest(proof, self.of_client):
            raise ValueError(f"the {self.ends.client}'s proof is wrong")

    def _of(self, end: str, name: str) -> bytes:
        words = b"\0".join((_PURPOSE, end.encode(), name.encode()))
        said = words + b"\0" + self.certificate + self.of_the_client + self.of_the_server
        return hmac.new(self.ends.key, said, hashlib.sha256).digest()


def nonce() -> bytes:
    """Drawn for one connection."""
    return secrets.token_bytes(NONCE_BYTES)


def exactly(connection: ssl.SSLSocket, count: int) -> bytes:
    """The next bytes.

    Raises:
        OSError: the connection broke.
        ValueError: it ended.
    """
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 65_536))
        if not piece:
            raise ValueError("the other end has closed the connection")
        data += piece
    return bytes(data)
