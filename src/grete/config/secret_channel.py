"""How executors on other machines get what references stand for: from the container, over an encrypted connection.

An executor has neither the container's environment nor its files. The container listens (`container.secret_server`)
and its workers ask when they meet a reference. The connection is TLS with keys that both ends draw for it alone (an
anonymous Diffie-Hellman exchange), so that who listens learns nothing. Each end then proves with a keyed hash over
the connection's own mark (`tls-unique`) that it has the key of the Spark application, so that nobody stands between
them. The key travels in the environment of the workers, which Spark's own protocol brings them; the secrets travel
here alone.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from grete.errors import JobError

VARIABLE = "GRETE_EXECUTOR_SECRETS"
"""Environment of Spark's Python workers: the text of a SecretsAddress."""
CONNECT_S = 10.0
LENGTH = struct.Struct(">I")
PROOF_BYTES = 32
_LARGEST = 16 << 20
_ATTEMPTS = 3
_PAUSE_S = 0.5
_FRESH_S = 60.0
"""So a rotated file is seen by the workers within a minute."""
# no certificates, which would have to be made and shipped: who is there is proved by the key
_CIPHERS = "AECDH-AES256-SHA@SECLEVEL=0"


@dataclass(frozen=True, slots=True)
class SecretsAddress:
    """Where the container listens, as its executors reach it, and the key of the Spark application."""

    host: str
    port: int
    key: bytes = field(repr=False)

    def __str__(self) -> str:
        return f"{self.key.hex()}@{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> SecretsAddress:
        """Read `str(address)`.

        Raises:
            ValueError: it is something else.
        """
        key, _, place = text.partition("@")
        host, _, port = place.rpartition(":")
        return cls(host, int(port), bytes.fromhex(key))

    def fetch(self) -> dict[str, str]:
        """What each reference of the job stands for now, by the reference as it is written.

        Raises:
            OSError, ValueError: the container is not there, or another process is.
        """
        with (
            socket.create_connection((self.host, self.port), CONNECT_S) as plain,
            encrypting(is_server=False).wrap_socket(plain) as connection,
        ):
            mark = mark_of(connection)
            connection.sendall(proof(self.key, "worker", mark))
            if not hmac.compare_digest(exactly(connection, PROOF_BYTES), proof(self.key, "container", mark)):
                raise ValueError("the container's proof is wrong")
            (length,) = LENGTH.unpack(exactly(connection, LENGTH.size))
            if length > _LARGEST:
                raise ValueError(f"{length} bytes of secrets are too many")
            values: dict[str, str] = orjson.loads(exactly(connection, length))
            return values


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


def mark_of(connection: ssl.SSLSocket) -> bytes:
    """The same on both ends of this connection, and on no other.

    Raises:
        ValueError: there is none.
    """
    mark = connection.get_channel_binding("tls-unique")
    if not mark:
        raise ValueError("the connection has no mark of its own")
    return mark


def proof(key: bytes, end: str, mark: bytes) -> bytes:
    """What shows that one end, `worker` or `container`, has the key."""
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


class FetchedSecrets:
    """What a worker has fetched, for a minute. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._from: str | None = None
        self._values: Mapping[str, str] = {}
        self._until_s = 0.0

    def at(self, address: str) -> Mapping[str, str]:
        """What the container of this address says; none of its values is kept when another is asked.

        Raises:
            JobError: it was not reached, and nothing is known of it from before.
        """
        with self._lock:
            if address != self._from:
                self._from, self._values, self._until_s = address, {}, 0.0
            if time.monotonic() >= self._until_s:
                self._fetch(address)
            return self._values

    def _fetch(self, address: str) -> None:
        where = address.rpartition("@")[2]
        for attempt in range(_ATTEMPTS):
            try:
                self._values = SecretsAddress.parse(address).fetch()
            except (OSError, ValueError) as error:
                if self._values:
                    break  # of a minute ago
                if attempt == _ATTEMPTS - 1:
                    raise JobError(
                        f"what references in the configuration stand for is to be had from the container at {where}, "
                        f"which did not give it: {error}. Look whether executors reach that address "
                        f"(spark.driver.host)"
                    ) from error
                time.sleep(_PAUSE_S)
            else:
                break
        self._until_s = time.monotonic() + _FRESH_S
