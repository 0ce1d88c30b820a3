"""Connections that say nothing: they have a deadline, and never keep out those that have something to say.

Connections to the port are opened without a token. uvicorn waits for the head of a request for ever, and
answers 503 to all above its limit, heartbeats among them. Here a head has a deadline, and above the limit the
connection that has been idle for longest makes room.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""Seconds for the head of a request, from the opening of the connection or the end of the request before."""
MOST = 256
"""Connections at a time: a container has one, and so has each dashboard."""


def bounded_protocol(*, most: int = MOST, head_s: float = HEAD_S) -> type[H11Protocol]:
    """The protocol of one server."""
    idle: dict[H11Protocol, None] = {}  # since when they are idle, by order

    class Bounded(H11Protocol):
        """A connection, which is idle while no request is being answered."""

        _deadline: asyncio.TimerHandle | None = None
        _answered: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()
            if len(self.connections) > most:
                self._make_room()

        @staticmethod
        def _make_room() -> None:
            oldest = next(iter(idle))
            idle.pop(oldest)
            oldest.transport.abort()

        def _wait(self) -> None:
            self._go_on()
            idle[self] = None
            self._deadline = self.loop.call_later(head_s, self.transport.abort)

        def _go_on(self) -> None:
            idle.pop(self, None)
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def handle_events(self) -> None:
            super().handle_events()
            if (
                self.cycle is not None
                and self.cycle is not self._answered
                and not self.cycle.response_complete
            ):
                self._go_on()

        def on_response_complete(self) -> None:
            self._answered = self.cycle
            if not self.transport.is_closing():
                self._wait()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._go_on()
            super().connection_lost(exc)

    return Bounded
