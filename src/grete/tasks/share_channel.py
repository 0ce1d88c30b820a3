"""The connection between a share and its container: reports to it, and the request to end from it.

A socket of the driver, to which shares of this epoch prove that they have its key. One frame is a length and a JSON
document. A share whose driver is gone ends with an error, so that it begins again where only the connection was lost.
What fences it off is its transactional id, not this connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from grete.errors import ContainerGone, JobError, WireError
from grete.tasks.shares import Committed, ShareStart

_LENGTH = struct.Struct(">I")
_LARGEST = 256 << 20
END = b"e"
"""The request to end with the epoch."""
REPLACED = b"r"
"""Another attempt at the share has begun."""
_NONCE_BYTES = 32
_CONNECT_S = 10.0
_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000),
)
"""A machine that is gone without a word is noticed after 10 seconds, whether something is on its way to it or not. A
process that stands still is not, for its kernel answers, unless it takes nothing in for as long with its buffer full.
"""
T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True):
    """A share's first frame: which slot it is for, and that it has the key.

    `warm` is the slot that this process had in an epoch before, with what it has open of it; `stores` are the tasks,
    by their index, of which its machine has store files.
    """

    slot: int
    worker: str
    proof: str
    warm: int | None = None
    stores: Sequence[int] = ()


class ShareAnswer(msgspec.Struct, frozen=True):
    """The container's only frame: with what the share begins; None when the epoch is ending."""

    start: ShareStart | None


class Finished(msgspec.Struct, frozen=True):
    """A share's last frame."""

    is_drained: bool


class ShareReport(msgspec.Struct, frozen=True):
    """A share's frame while it works."""

    committed: Committed | None = None
    finished: Finished | None = None
    profile: str | None = None


def proof(key: bytes, nonce: bytes, slot: int) -> str:
    """What shows that a share has the key."""
    return hmac.new(key, nonce + str(slot).encode(), hashlib.sha256).hexdigest()


def new_nonce() -> bytes:
    """Bytes that were never used before."""
    return secrets.token_bytes(_NONCE_BYTES)


def send(connection: socket.socket, value: object) -> None:
    """Send a frame. Raises OSError."""
    data = msgspec.json.encode(value)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket, kind: type[T], *, largest: int = _LARGEST) -> T | None:
    """The next frame; None at the end.

    Raises:
        OSError: the connection broke.
        WireError: it is not what was expected.
    """
    head = _exactly(connection, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > largest:
        raise WireError(f"a frame of {length} bytes, at most {largest} were expected")
    body = _exactly(connection, length)
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise WireError(f"no {kind.__name__}: {error}") from error


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


def prepare(connection: socket.socket) -> None:
    """Let a connection send at once, and end with an error when the machine of the other end is gone."""
    for level, option, value in (*_ALIVE, (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)):
        connection.setsockopt(level, option, value)


class ShareChannel:
    """A share's end. One thread reports; `is_ending` may be asked by any."""

    def __init__(
        self,
        address: tuple[str, int],
        key: bytes,
        slot: int,
        worker: str,
        warm: int | None = None,
        stores: Sequence[int] = (),
    ) -> None:
        """`start` names the slot that it has got, which is `warm` if that is to be had; see Hello.

        Raises:
            JobError: the driver is not there, or does not know this share.
        """
        self._ending = threading.Event()
        self._is_asked = False
        try:
            self._connection = socket.create_connection(address, _CONNECT_S)
            prepare(self._connection)
            nonce = _exactly(self._connection, _NONCE_BYTES) or b""
            send(self._connection, Hello(slot, worker, proof(key, nonce, slot), warm, stores))
            answer = receive(self._connection, ShareAnswer)
        except (OSError, WireError) as error:
            raise JobError(f"slot {slot}: the container at {address[0]}:{address[1]}: {error}") from error
        if answer is None:
            raise JobError(f"slot {slot}: the container at {address[0]}:{address[1]} does not know it")
        self.start = answer.start
        self._connection.settimeout(None)
        threading.Thread(target=self._listen, name=f"grete-share-{slot}", daemon=True).start()

    def is_ending(self) -> bool:
        """Whether the share shall end at its next commit: it was asked to, or the driver is gone."""
        return self._ending.is_set()

    def _listen(self) -> None:
        """Whatever comes ends the share, and so does the end of the connection."""
        try:
            self._is_asked = self._connection.recv(1) == END
        except OSError:
            pass
        finally:
            self._ending.set()

    def report(self, committed: Committed) -> None:
        """Say what was committed. A driver that is gone is not told."""
        self._send(ShareReport(committed=committed))

    def hand_profile(self, text: str) -> None:
        """Give the container a profile of the share."""
        self._send(ShareReport(profile=text))

    def finish(self, *, is_drained: bool) -> None:
        """Say that the share has ended without an error.

        Raises:
            ContainerGone: its epoch may go on: its connection was lost, or another attempt has begun, which may be
                one that the engine has given up.
        """
        if self._ending.is_set() and not self._is_asked:
            raise ContainerGone(
                "a share ends, since the connection to its container was lost, or another attempt at it has begun; "
                "it begins again"
            )
        self._send(ShareReport(finished=Finished(is_drained)))

    def _send(self, value: Any) -> None:
        try:
            send(self._connection, value)
        except OSError:
            self._ending.set()

    def close(self) -> None:
        """Close the connection; closing alone would leave it open, since a thread waits for its end."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
