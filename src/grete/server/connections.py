"""Connections that say nothing: they have a deadline, and never keep out those that have something to say.

Connections to the port are opened without a token. uvicorn waits for the head of a request for ever, and as long for
a client that takes nothing of its answer; and it answers 503 to all above its limit, heartbeats among them. Here a
head has a deadline, and so has a part of an answer, and above the limit the connection that has been idle for longest
makes room.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""Seconds for the head of a request, from the opening of the connection or the end of the request before."""
UNREAD_S = 30.0
"""Seconds in which a client takes what of its answer is in the way of more."""
MOST = 256
"""Connections at a time: a container has one, and so has each dashboard."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """See the constants, which are the defaults."""

    most: int = MOST
    head_s: float = HEAD_S
    unread_s: float = UNREAD_S


class _Bounded(H11Protocol):
    """A connection, which is idle while no request is being answered."""

    limits: ClassVar[ConnectionLimits]
    idle: ClassVar[dict[_Bounded, None]]
    """The idle ones of one server, in the order in which they became so."""
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _answered: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.limits.most:
            self._make_room()

    def _make_room(self) -> None:
        oldest = next(iter(self.idle))
        self.idle.pop(oldest)
        oldest.transport.abort()

    def _wait(self) -> None:
        self._go_on()
        self.idle[self] = None
        self._deadline = self.loop.call_later(self.limits.head_s, self._expire)

    def _expire(self) -> None:
        """No request came in time. What a client still takes of an answer has a limit of its own."""
        if self._unread is None:
            self.transport.abort()
        else:
            self._deadline = self.loop.call_later(self.limits.head_s, self._expire)

    def _go_on(self) -> None:
        self.idle.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and self.cycle is not self._answered and not self.cycle.response_complete:
            self._go_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def _taken(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def on_response_complete(self) -> None:
        self._answered = self.cycle
        if not self.transport.is_closing():
            self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        self._taken()
        super().connection_lost(exc)


def bounded_protocol(limits: ConnectionLimits | None = None) -> type[H11Protocol]:
    """The protocol of one server."""

    class OfOneServer(_Bounded):
        idle: ClassVar[dict[_Bounded, None]] = {}

    OfOneServer.limits = limits or ConnectionLimits()
    return OfOneServer
