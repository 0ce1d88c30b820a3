"""Connections that are proved: the end of a client on another machine than the server's (`channel.relay`)."""

from __future__ import annotations

import select
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

from grete.channel.address import Channel, address_of
from grete.channel.tls import CONNECT_S, connect


class ProvedConnections(httpcore.NetworkBackend):
    """Connects to the channel's address, wherever a URL points to. Nothing is sent before both ends have proved that
    they have the token.
    """

    def __init__(self, channel: Channel) -> None:
        """Make ready; nothing is connected yet.

        Raises:
            ValueError: the address is none.
        """
        self._address = address_of(channel.address)
        self._ends = channel.ends

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """See httpcore; the address is always the relay's."""
        patience_s = CONNECT_S if timeout is None else min(timeout, CONNECT_S)
        try:
            connection = connect(self._address, self._ends, patience_s)
        except (OSError, ValueError) as error:
            raise httpcore.ConnectError(f"{self._address[0]}:{self._address[1]}: {error}") from error
        return _Stream(connection)


class _Stream(httpcore.NetworkStream):
    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._connection.settimeout(timeout)
        try:
            return self._connection.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._connection.settimeout(timeout)
        try:
            self._connection.sendall(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._connection.close()

    def get_extra_info(self, info: str) -> Any:
        """Whether an idle connection has something to say, which is its end."""
        if info != "is_readable":
            return None
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(0))
