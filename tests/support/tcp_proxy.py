"""A TCP proxy on loopback for fault tests: passes bytes on until it is to delay, slow down, swallow or cut them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Self

from grete.testing.waiting import eventually

_CHUNK = 1 << 16
_SO_ATTACH_FILTER = 26


class TcpProxy:
    """Listens on `port` and connects to `target_port`. A context manager; all switches work on open connections."""

    def __init__(self, port: int, target_port: int) -> None:
        self.port = port
        self._target = ("127.0.0.1", target_port)
        self._delay_s = self._s_per_byte = 0.0
        self._swallows = False
        self._refuses = False
        self._unanswered: bytes | None = None
        self._loses_answer = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def delay(self, seconds: float) -> None:
        """Hold back every chunk so long, in both directions."""
        self._delay_s = seconds

    def slow_down(self, bytes_per_s: float) -> None:
        """Pass so many bytes a second on, in each connection and direction."""
        self._s_per_byte = 1 / bytes_per_s

    def swallow(self) -> None:
        """Take bytes and pass none on; connections stay open, as when a network drops everything."""
        self._swallows = True

    def lose_answer_to(self, request: bytes) -> None:
        """Reset the connections instead of passing on the answer to the next request that holds these bytes."""
        self._unanswered = request

    @property
    def is_losing(self) -> bool:
        """Whether the answer that is to be lost has not come yet."""
        return self._unanswered is not None or self._loses_answer.is_set()

    def drop(self) -> None:
        """Lose every packet that comes in on open connections, unanswered, as when a machine is gone.

        That begins when all that was sent has arrived: what the proxy's kernel sent again would be a sign of life.
        """
        drops_all = ctypes.create_string_buffer(
            struct.pack("HBBI", 0x06, 0, 0, 0)
        )  # "return 0 bytes of the packet"
        program = struct.pack("HL", 1, ctypes.addressof(drops_all))
        with self._lock:
            for connection in self._open:
                eventually(partial(_has_arrived, connection), "what was sent arrives")
                connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def refuse(self) -> None:
        """Refuse new connections; those that are open stay."""
        with self._lock:
            self._refuses = True

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self.refuse()
        self._reset_all()

    def restore(self) -> None:
        """Pass everything on again. What was swallowed is gone, so the connections of then are reset."""
        if self._swallows:
            self._reset_all()
        self._delay_s = self._s_per_byte = 0.0
        self._swallows = self._refuses = False

    def close(self) -> None:
        """End."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset_all()

    def _reset_all(self) -> None:
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                is_cut = self._refuses  # while we connected
                if not is_cut:
                    self._open |= {client, server}
            if is_cut:
                client.close()
                server.close()
                continue
            for source, sink, look in ((client, server, self._look_at), (server, client, self._is_lost)):
                threading.Thread(target=self._pass_on, args=(source, sink, look), daemon=True).start()

    def _look_at(self, request: bytes) -> bool:
        if self._unanswered is not None and self._unanswered in request:
            self._unanswered = None
            self._loses_answer.set()
        return False

    def _is_lost(self, answer: bytes) -> bool:
        is_lost = self._loses_answer.is_set()
        if is_lost:
            self._loses_answer.clear()
            self._reset_all()
        return is_lost

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_lost: Callable[[bytes], bool]) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(_CHUNK)) and not is_lost(data):
                if hold_s := self._delay_s + len(data) * self._s_per_byte:
                    time.sleep(hold_s)
                if not self._swallows:
                    sink.sendall(data)
        for connection in (source, sink):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _has_arrived(connection: socket.socket) -> bool:
    """Whether everything that was sent is known to have arrived."""
    [unacknowledged] = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
    return bool(unacknowledged == 0)
