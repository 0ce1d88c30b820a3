"""The keyed log in memory: the reference that the other back ends are compared with, and the one tests use."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from grete.clock import Clock, Deadline
from grete.errors import Fenced, IllegalStateError
from grete.keyed_log.base import TOMBSTONE_RETENTION_MS, Entry, Fence, KeyedLog, Record


class MemoryKeyedLog(KeyedLog):
    """Keeps everything of one process in a list."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: list[Record] = []
        self._end = -1
        self._epochs: dict[str, int] = {}
        self._appends: dict[str, int] = {}
        self._lock = threading.Lock()
        self._waiting: set[threading.Event] = set()
        self._closed = False

    def _check(self, fence: Fence) -> None:
        seen = self._epochs.get(fence.scope, -1)
        if seen > fence.epoch:
            raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)
        self._epochs[fence.scope] = fence.epoch

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the log is closed")

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        """See KeyedLog."""
        with self._lock:
            self._check_open()
            if fence is not None:
                self._check(fence)
            if append_id is not None and append_id in self._appends:
                return self._appends[append_id]
            if not entries:
                return self._end
            now_ms = self._clock.wall_ms()
            epoch = None if fence is None else fence.epoch
            for entry in entries:
                self._end += 1
                self._records.append(Record(self._end, entry.key, entry.value, now_ms, epoch))
            if append_id is not None:
                self._appends[append_id] = self._end
            for event in self._waiting:
                event.set()
            return self._end

    def resolve(self, append_id: str) -> int | None:
        """See KeyedLog."""
        with self._lock:
            return self._appends.get(append_id)

    def raise_fence(self, fence: Fence) -> None:
        """See KeyedLog."""
        with self._lock:
            self._check_open()
            self._check(fence)

    def claim(self, fence: Fence) -> None:
        """See KeyedLog."""
        with self._lock:
            self._check_open()
            seen = self._epochs.get(fence.scope, -1)
            if seen >= fence.epoch:
                raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)
            self._epochs[fence.scope] = fence.epoch

    def read(self, after: int = -1) -> Iterator[Record]:
        """See KeyedLog."""
        with self._lock:
            self._check_open()
            records = list(self._records)
        return (record for record in records if record.offset > after)

    def end(self) -> int:
        """See KeyedLog."""
        with self._lock:
            self._check_open()
            return self._end

    def wait(self, after: int, timeout_s: float) -> bool:
        """See KeyedLog."""
        deadline = Deadline(self._clock, timeout_s)
        event = threading.Event()
        with self._lock:
            self._waiting.add(event)
        try:
            while self.end() <= after:
                if deadline.is_over or not self._clock.wait(event, deadline.left_s):
                    return self.end() > after
                event.clear()
            return True
        finally:
            with self._lock:
                self._waiting.discard(event)

    def compact(self) -> int:
        """See KeyedLog."""
        with self._lock:
            self._check_open()
            last = {record.key: record.offset for record in self._records}
            horizon_ms = self._clock.wall_ms() - TOMBSTONE_RETENTION_MS
            kept = [
                record
                for record in self._records
                if last[record.key] == record.offset
                and (record.value is not None or record.timestamp_ms > horizon_ms)
            ]
            dropped = len(self._records) - len(kept)
            self._records = kept
            return dropped

    def delete(self) -> None:
        """See KeyedLog."""
        with self._lock:
            self._check_open()
            self._records = []

    def close(self) -> None:
        """See KeyedLog."""
        self._closed = True
