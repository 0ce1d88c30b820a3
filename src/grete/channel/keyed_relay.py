"""A relay for those that prove a key, before anything else is said (`channel.transport` is their end)."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import ClassVar

from grete.channel.address import ChannelAddress
from grete.channel.certificate import Identity
from grete.channel.relay import Relay
from grete.channel.tls import NONCE_BYTES, PROOF_BYTES, Proofs, host_in_url
from grete.errors import ConfigError

_log = logging.getLogger("grete.coordinator")


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


class KeyedRelay(Relay):
    """Passes on connections whose other end has proved the key. Nothing reaches the server from another one."""

    of: ClassVar[str] = "http-relay"

    def __init__(self, listening: socket.socket, host: str, token: str, server: tuple[str, int]) -> None:
        """`host` is what others call this machine, `token` the key that is proved.

        Raises:
            MissingExtra, OSError: see `Identity.create`.
        """
        port = listening.getsockname()[1]
        self.channel = ChannelAddress(f"{host_in_url(host)}:{port}", token)
        self._identity = Identity.create()
        super().__init__(listening, server, lambda: self._identity.context)

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """See Relay: the proof of both ends."""
        try:
            drawn = await reader.readexactly(NONCE_BYTES)
            proofs = Proofs.answering(self.channel.ends, self._identity.certificate, drawn)
            writer.write(proofs.answer)
            proofs.see(await reader.readexactly(PROOF_BYTES))
        except (ValueError, EOFError, OSError) as error:
            _log.warning("a connection that asked for the coordinator without its key was refused: %r", error)
            raise
