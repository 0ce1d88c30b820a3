"""A connection whose two ends have one key: TLS with keys drawn for it alone, and a proof by each end.

The keys of the connection come from an anonymous Diffie-Hellman exchange, so that who listens learns nothing, and no
certificate has to be made and brought to the other machine. Each end then proves with a keyed hash over the
connection's own mark (`tls-unique`) that it has the key, so that nobody stands between them.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl

CONNECT_S = 10.0
PROOF_BYTES = 32
# no certificates, which would have to be made and shipped: who is there is proved by the key
_CIPHERS = "AECDH-AES256-SHA@SECLEVEL=0"


def encrypting(*, is_server: bool) -> ssl.SSLContext:
    """The TLS of one end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    if not is_server:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # TLS 1.3 has no exchange without certificates
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers(_CIPHERS)
    return context


def mark_of(connection: ssl.SSLSocket | ssl.SSLObject) -> bytes:
    """The same on both ends of this connection, and on no other.

    Raises:
        ValueError: there is none.
    """
    mark = connection.get_channel_binding("tls-unique")
    if not mark:
        raise ValueError("the connection has no mark of its own")
    return mark


def proof(key: bytes, end: str, mark: bytes) -> bytes:
    """What shows that an end of this name has the key."""
    return hmac.new(key, end.encode() + mark, hashlib.sha256).digest()


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


def prove(connection: ssl.SSLSocket, key: bytes, *, own: str, other: str) -> None:
    """Prove this end, which speaks first, and see the other one's proof.

    Raises:
        OSError: the connection broke.
        ValueError: the other end has not the key.
    """
    mark = mark_of(connection)
    connection.sendall(proof(key, own, mark))
    if not hmac.compare_digest(exactly(connection, PROOF_BYTES), proof(key, other, mark)):
        raise ValueError(f"the {other}'s proof is wrong")
