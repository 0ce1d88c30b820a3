"""Lets clients on other machines speak to a server that listens on the loopback alone (`channel.transport`)."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

from grete.channel.address import ChannelAddress
from grete.channel.certificate import Identity
from grete.channel.tls import CONNECT_S, NONCE_BYTES, PROOF_BYTES, Proofs, send_at_once
from grete.errors import ConfigError

_log = logging.getLogger("grete.coordinator")
_UNPROVED_AT_ONCE = 32
_PIECE = 65_536


def listen_at(host: str) -> socket.socket:
    """Listen on a free port of one of this machine's addresses, given by itself or by name.

    Raises:
        ConfigError: it is none of this machine's.
    """
    try:
        family, _, _, _, (address, *_) = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address), 0), family=family)
    except OSError as error:
        raise ConfigError(f"processor.address={host}: it is no address of this machine ({error})") from error


def check_relay(host: str) -> None:
    """Raise what a relay at this address would, before anything is started.

    Raises:
        ConfigError: it is none of this machine's.
        MissingExtra: `cryptography` is not installed.
    """
    listen_at(host).close()
    Identity.create()


class Relay:
    """Passes on what comes over proved connections to `listening`, and what is answered, until it is closed.

    The server's own rules go on to hold: its Host allow-list, its tokens, its limits. Nothing reaches it from one who
    has not proved the key.
    """

    def __init__(self, listening: socket.socket, host: str, token: str, server: tuple[str, int]) -> None:
        """`host` is what others call this machine, `token` the key that is proved.

        Raises:
            MissingExtra, OSError: see `Identity.create`.
        """
        port = listening.getsockname()[1]
        self.channel = ChannelAddress(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", token)
        self._listening = listening
        self._server = server
        self._identity = Identity.create()
        self._unproved = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http-relay", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._listening.setblocking(False)
        self._thread.start()

    def close(self) -> None:
        """End, with all connections."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(timeout=5)
        self._listening.close()

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
            if self._unproved >= _UNPROVED_AT_ONCE:
                accepted.close()  # who has the key asks again
                continue
            self._unproved += 1
            task = self._loop.create_task(self._serve(accepted))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            reader, writer = await self._proved(accepted)
        except (OSError, ValueError, EOFError, TimeoutError) as error:
            _log.warning("a connection that asked for the coordinator without its key was refused: %r", error)
            return
        finally:
            self._unproved -= 1
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._server)
            await asyncio.gather(_pass_on(reader, to_writer), _pass_on(to_reader, writer))
        except OSError as error:
            _log.debug("a container's connection broke: %s", error)
        finally:
            writer.close()

    async def _proved(self, accepted: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection, once its other end has proved the key.

        Raises:
            OSError, ValueError, EOFError, TimeoutError: it has not.
        """
        send_at_once(accepted)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=self._identity.context, ssl_handshake_timeout=CONNECT_S
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            async with asyncio.timeout(CONNECT_S):
                drawn = await reader.readexactly(NONCE_BYTES)
                proofs = Proofs.answering(self.channel.ends, self._identity.certificate, drawn)
                writer.write(proofs.answer)
                proofs.see(await reader.readexactly(PROOF_BYTES))
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
