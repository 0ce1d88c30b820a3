"""The container's end of its shares' connections: it gives each its beginning, takes reports, and asks all to end."""

from __future__ import annotations

import contextlib
import hmac
import logging
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType

from grete.errors import WireError
from grete.tasks.share_channel import (
    END,
    REPLACED,
    Hello,
    ShareAnswer,
    ShareReport,
    new_nonce,
    prepare,
    proof,
    receive,
    send,
)
from grete.tasks.shares import Committed, ShareStart

_log = logging.getLogger("grete.container")
_HELLO_S = 10.0
_HELLO_BYTES = 1 << 16
_UNPROVEN = 128
"""Connections that have not shown the key, at most: the oldest gives way, since a share shows it at once."""
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Began:
    """A share has begun."""

    slot: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection of a share has ended, and nobody had asked for that, nor had the share said that it ends."""

    slot: int


@dataclass(frozen=True, slots=True)
class EndedWell:
    """A share has ended without an error."""

    slot: int
    is_drained: bool


@dataclass(frozen=True, slots=True)
class OtherChange:
    """Something has changed that is no share's: whoever takes the events looks."""


Event = Began | Committed | Lost | EndedWell | OtherChange


@dataclass(slots=True)
class _Share:
    """A share that was let in. What is asked of it waits until it has been told its beginning: a byte that came
    before would be taken for a part of that.
    """

    connection: socket.socket
    request: bytes = b""
    is_told: bool = False

    def ask(self, request: bytes) -> None:
        self.request = self.request or request
        self._send()

    def told(self) -> None:
        self.is_told = True
        self._send()

    def _send(self) -> None:
        if self.is_told and self.request:
            try:
                self.connection.sendall(self.request)
            except OSError as error:
                _log.debug("a share is gone: %s", error)


class ShareServer:
    """Listens for the shares of one epoch. Its events are in `events`, in each share's order.

    `start_of` says what a slot begins with. It is called from threads, and not before the slot's last attempt has
    been heard to its end.
    """

    def __init__(
        self,
        start_of: Callable[[int], ShareStart],
        host: str,
        bind: str,
        *,
        slots: Mapping[int, Iterable[int]] = MappingProxyType({}),
    ) -> None:
        """`host` is what executors call this machine, `bind` where it listens.

        Of `slots`, each with its tasks, a share gets one, the same in all of its attempts; without them the one that
        it names.

        Raises:
            OSError: it cannot listen there.
        """
        self.key = secrets.token_bytes(32)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._start_of = start_of
        self._lock = threading.Lock()
        self._is_ending = self._is_closed = False
        self._shares: dict[int, _Share] = {}
        self._free = {slot: frozenset(tasks) for slot, tasks in slots.items()}
        self._given: dict[int, int] = {}
        self._unproven: dict[socket.socket, None] = {}
        self._listener = socket.create_server((bind, 0))
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="grete-shares", daemon=True).start()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:  # one that was reset while it waited, or too many open files
                _log.debug("a share's connection did not come about: %s", error)
                time.sleep(_PAUSE_S)
                continue
            self._make_room_for(connection)
            threading.Thread(target=self._serve, args=(connection,), name="grete-share", daemon=True).start()

    def _make_room_for(self, connection: socket.socket) -> None:
        with self._lock:
            self._unproven[connection] = None
            if len(self._unproven) > _UNPROVEN:
                oldest = next(iter(self._unproven))
                del self._unproven[oldest]
                _shut(oldest)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                slot = self._greet(connection)
                self._forget(connection)
                if slot is not None:
                    self._hear(connection, slot)
            except (OSError, WireError) as error:
                _log.debug("a share's connection ended: %s", error)
            finally:
                self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._unproven.pop(connection, None)

    def _greet(self, connection: socket.socket) -> int | None:
        """The slot of a share that has the key, told its beginning; None for any other, and at the end."""
        connection.settimeout(_HELLO_S)
        prepare(connection)
        nonce = new_nonce()
        connection.sendall(nonce)
        hello = receive(connection, Hello, largest=_HELLO_BYTES)
        if hello is None or not hmac.compare_digest(hello.proof, proof(self.key, nonce, hello.slot)):
            _log.warning("a connection to the container's shares without their key was refused")
            return None
        with self._lock:
            if self._is_ending:
                send(connection, ShareAnswer(None))
                return None
            slot = self._slot_of(hello)
            earlier = self._shares.get(slot)
            share = self._shares[slot] = _Share(connection)
            if earlier is not None:  # Spark took it for lost; it ends at its next commit at the latest
                earlier.ask(REPLACED)
        connection.settimeout(None)
        start = self._start_of(slot)
        self.events.put(Began(slot))  # before it is told: from then on it may commit
        send(connection, ShareAnswer(start))
        with self._lock:
            share.told()
        return slot

    def _slot_of(self, hello: Hello) -> int:
        """The slot of a share: that of its last attempt, else the one that its process had before, else one of whose
        tasks its machine has most stores, which is best its own.
        """
        if hello.slot not in self._given:
            self._given[hello.slot] = self._best_for(hello)
            self._free.pop(self._given[hello.slot], None)
        return self._given[hello.slot]

    def _best_for(self, hello: Hello) -> int:
        if hello.warm is not None and hello.warm in self._free:
            return hello.warm
        here = frozenset(hello.stores)

        def fit(slot: int) -> tuple[int, bool]:
            return len(here & self._free[slot]), slot == hello.slot

        return max(sorted(self._free), key=fit, default=hello.slot)

    def _hear(self, connection: socket.socket, slot: int) -> None:
        has_finished = False
        try:
            while (report := receive(connection, ShareReport)) is not None:
                if report.committed is not None:
                    self.events.put(report.committed)
                if report.profile is not None:
                    _log.info("profile of share %d: %s", slot, report.profile)
                if report.finished is not None:
                    has_finished = True
                    self.events.put(EndedWell(slot, report.finished.is_drained))
        finally:
            with self._lock:
                share = self._shares.get(slot)
                if share is not None and share.connection is connection:
                    del self._shares[slot]
                    if not (has_finished or self._is_ending):
                        self.events.put(Lost(slot))

    def end_all(self) -> None:
        """Ask every share to end at its next commit. One that comes later is not let in."""
        with self._lock:
            self._is_ending = True
            for share in self._shares.values():
                share.ask(END)

    def __enter__(self) -> ShareServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; shares that are left notice it."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone leaves the thread in accept()
        self._listener.close()
        with self._lock:
            self._is_ending = True
            for connection in (*(share.connection for share in self._shares.values()), *self._unproven):
                _shut(connection)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        _log.debug("a share is gone: %s", error)
