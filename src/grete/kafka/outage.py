"""Log lines of the brokers' clients: one line when brokers go, one when they are back, however long that lasts.

librdkafka logs each failed attempt to connect, of every client and every broker: 500 lines in half a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger("grete.kafka")
_QUIET_S = 5.0
"""Brokers that do not answer are tried again every two seconds at least: for so long without a complaint is back."""


class BrokerLog:
    """The `logger` of all clients of the same brokers in this process. Thread-safe."""

    def __init__(self, servers: str, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._servers = servers
        self._now_s = now_s
        self._lock = threading.Lock()
        self._complained_s: float | None = None

    def log(self, level: int, message: str, *arguments: object, **_: object) -> None:
        """Called by clients with librdkafka's log lines."""
        if level < logging.WARNING:
            _log.log(level, message, *arguments)
            return
        with self._lock:
            is_first, self._complained_s = self._complained_s is None, self._now_s()
        if is_first:
            text = message % arguments if arguments else message
            _log.warning("trouble with the brokers %s; one line when it is over: %s", self._servers, text)
        else:
            _log.debug(message, *arguments)

    def answered(self) -> None:
        """A broker has answered a request."""
        with self._lock:
            since_s = self._complained_s
            if since_s is None or self._now_s() - since_s < _QUIET_S:
                return
            self._complained_s = None
        _log.warning("the brokers %s answer again", self._servers)


_known: dict[str, BrokerLog] = {}
_lock = threading.Lock()


def broker_log(servers: str) -> BrokerLog:
    """The one of these brokers, in this process."""
    with _lock:
        return _known.setdefault(servers, BrokerLog(servers))
