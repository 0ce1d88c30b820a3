"""Lets clients on other machines speak to a server that listens on the loopback alone (`channel.transport`)."""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import threading

from grete.channel.address import CLIENT, SERVER, Channel
from grete.channel.tls import CONNECT_S, PROOF_BYTES, encrypting, mark_of, proof
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


class Relay:
    """Passes on what comes over proved connections to `listening`, and what is answered, until it is closed.

    The server's own rules go on to hold: its Host allow-list, its tokens, its limits. Nothing reaches it from one who
    has not proved the key.
    """

    def __init__(self, listening: socket.socket, host: str, token: str, server: tuple[str, int]) -> None:
        """`host` is what others call this machine, `token` the key that is proved."""
        port = listening.getsockname()[1]
        self.channel = Channel(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", token)
        self._listening = listening
        self._key = token.encode()
        self._server = server
        self._tls = encrypting(is_server=True)
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
            _log.warning("a connection that asked for the coordinator without its key was refused: %s", error)
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
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=CONNECT_S
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            mark = mark_of(writer.get_extra_info("ssl_object"))
            given = await asyncio.wait_for(reader.readexactly(PROOF_BYTES), CONNECT_S)
            if not hmac.compare_digest(given, proof(self._key, CLIENT, mark)):
                raise ValueError("its proof is wrong")
        except BaseException:
            transport.abort()
            raise
        writer.write(proof(self._key, SERVER, mark))
        return reader, writer


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one end closes; then the other one is told."""
    try:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
