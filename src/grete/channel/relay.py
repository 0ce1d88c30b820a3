"""Lets clients on other machines speak to a server that listens on the loopback alone."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from typing import ClassVar

from grete.channel.tls import CONNECT_S, send_at_once

_log = logging.getLogger("grete.coordinator")
_PIECE = 65_536
_SHUTDOWN_S = 5.0
MOST_UNADMITTED = 32
"""Connections at a time whose handshake is not at its end: whoever reaches the port can open one."""
MOST_ADMITTED = 64
"""Connections at a time that are passed on. A quarter of what the server takes, so those of this machine have room;
each costs some 350 kB when it is idle, and up to 2 MB under attack."""


class Relay:
    """Passes on what comes over TLS to `listening`, and what is answered, until it is closed.

    The server's own rules go on to hold: its Host allow-list, its tokens, its limits. A connection in its handshake
    that has waited for longest makes room for another one, so those that say nothing keep nobody out.
    """

    of: ClassVar[str] = "https"
    """What the thread is called, and what a refused connection asked for in the log."""

    def __init__(
        self, listening: socket.socket, server: tuple[str, int], context: Callable[[], ssl.SSLContext]
    ) -> None:
        """`context` is the TLS of the next connection."""
        self._listening = listening
        self._server = server
        self._context = context
        self._unadmitted: dict[asyncio.Task[None], None] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=self.of, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._listening.setblocking(False)
        self._thread.start()

    def close(self) -> None:
        """End, with all connections."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(timeout=5)
        self._listening.close()

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raise ValueError or EOFError where a connection must not be passed on; here all may."""

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closed())  # which ends what is still connected

    async def _until_closed(self) -> None:
        accepting = self._loop.create_task(self._accept())
        await self._ended.wait()
        accepting.cancel()

    async def _accept(self) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._listening)
            except OSError as error:
                _log.warning("the relay of the HTTP server does not take connections for now: %s", error)
                await asyncio.sleep(1)
                continue
            if len(self._connections) - len(self._unadmitted) >= MOST_ADMITTED:
                accepted.close()  # the server ends those that ask nothing
                continue
            if len(self._unadmitted) >= MOST_UNADMITTED:
                oldest = next(iter(self._unadmitted))
                self._unadmitted.pop(oldest)
                oldest.cancel()
            task = self._loop.create_task(self._serve(accepted))
            self._unadmitted[task] = None
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            await asyncio.sleep(0)  # let it begin: one that is cancelled before does not close its socket

    async def _serve(self, accepted: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None, "it was made by `_accept`"
        try:
            reader, writer = await self._admitted(accepted)
        except (OSError, ValueError, EOFError, TimeoutError) as error:
            _log.debug("a connection to the %s was refused: %r", self.of, error)
            return
        finally:
            self._unadmitted.pop(task, None)
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._server)
            try:
                await asyncio.gather(_pass_on(reader, to_writer), _pass_on(to_reader, writer))
            finally:  # tasks that are cancelled before they have begun close nothing
                to_writer.close()
        except OSError as error:
            _log.debug("a connection to the %s broke: %s", self.of, error)
        finally:
            writer.close()

    async def _admitted(self, accepted: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection, once it may be passed on.

        Raises:
            OSError, ValueError, EOFError, TimeoutError: it may not.
        """
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            send_at_once(accepted)
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=CONNECT_S,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        except BaseException:
            accepted.close()
            raise
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self.admit(reader, writer)
        except BaseException:
            transport.abort()
            raise
        return reader, writer


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one end closes; then the other one is told."""
    try:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
