"""Which append wrote what: the ids among the last records of a topic, read once and then followed."""

from __future__ import annotations

import threading
from collections import OrderedDict

from grete.keyed_log import kafka_header
from grete.keyed_log.kafka_reader import LogReader, header_of

_WINDOW = 40_000
"""Offsets. A record and its marker for each append, and as many aborted ones: 10,000 later records at the least."""


class AppendIds:
    """The last offset of each append among the last offsets of a log."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._next: int | None = None
        self._last: OrderedDict[str, int] = OrderedDict()

    def find(self, append_id: str) -> int | None:
        """The offset of the append's last entry, None when it is not there.

        Waits until no transaction is open that began before, so the answer can not change by itself.
        """
        with self._lock:
            end = self._reader.settled_end()
            first = max(0, end - _WINDOW)
            if self._next is None or self._next < first:
                self._last.clear()
                self._next = first
            self._follow(self._next, end)
            self._next = end
            while self._last and next(iter(self._last.values())) < first:
                self._last.popitem(last=False)
            return self._last.get(append_id)

    def _follow(self, first: int, end: int) -> None:
        for chunk in self._reader.messages(first, end):
            for message in chunk:
                found = kafka_header.split(header_of(message) or b"")
                origin = None if found is None else kafka_header.decode(found[1])
                if found is not None and origin is not None:
                    self._last[origin.append_id] = (message.offset() or 0) + found[0]
