"""Connections that are proved: the end of a client on another machine than the server's (`channel.keyed_relay`)."""

from __future__ import annotations

import socket
from typing import Any

from urllib3 import HTTPConnectionPool, PoolManager
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from grete.channel.address import ChannelAddress, address_of
from grete.channel.tls import CONNECT_S, Ends, connect
from grete.http_answers import CONNECTIONS


class ProvedConnections(PoolManager):
    """Connects to the channel's address, wherever a URL points to. Nothing is sent before both ends have proved that
    they have the token.
    """

    def __init__(self, channel: ChannelAddress) -> None:
        """Make ready; nothing is connected yet.

        Raises:
            ValueError: the address is none.
        """
        super().__init__(maxsize=CONNECTIONS, retries=False)
        self._address = address_of(channel.address)
        self._ends = channel.ends

    def _new_pool(
        self, scheme: str, host: str, port: int, request_context: dict[str, Any] | None = None
    ) -> HTTPConnectionPool:
        """See PoolManager."""
        return _Pool(host, port, maxsize=CONNECTIONS, relay=self._address, ends=self._ends)


class _Connection(HTTPConnection):
    def __init__(self, *args: Any, relay: tuple[str, int], ends: Ends, **given: Any) -> None:
        super().__init__(*args, **given)
        self._relay = relay
        self._ends = ends

    def _new_conn(self) -> socket.socket:
        """See HTTPConnection; the address is always the relay's."""
        patience_s = min(self.timeout, CONNECT_S) if isinstance(self.timeout, int | float) else CONNECT_S
        try:
            return connect(self._relay, self._ends, patience_s)
        except (OSError, ValueError) as error:
            host, port = self._relay
            raise NewConnectionError(self, f"{host}:{port}: {error}") from error


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection
