"""Appends records from a thread of its own, so that a logging call never waits for a stream.

The buffer is bounded: what does not fit is dropped and counted. So a stream that hangs, a full disk or a flood of
log records costs records of the log, never the job. Samza's appender waits two seconds for room, inside the log call.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

LIMIT = 10_000
"""Records held at most. Samza holds 100, and waits; we do not wait."""
INTERVAL_S = 1.0
"""A write is a transaction of the system's file, which the job's commits need too; so at most one a second."""
_CLOSE_TIMEOUT_S = 15.0
"""A busy disk takes seconds for a write; the last records are those that an operator looks for."""


class BackgroundSink(Protocol[T_contra]):
    """Where records go. Used by one thread."""

    def write(self, records: Sequence[T_contra]) -> None:
        """Write all of them, durable on return."""

    def close(self) -> None:
        """Release it."""


class BackgroundWriter(Generic[T]):
    """Offers come from any thread."""

    def __init__(
        self,
        open_sink: Callable[[], BackgroundSink[T]],
        *,
        name: str,
        limit: int = LIMIT,
        interval_s: float = INTERVAL_S,
        on_lost: Callable[[int], T] | None = None,
    ) -> None:
        self._open_sink = open_sink
        self._name = name
        self._limit = limit
        self._interval_s = interval_s
        self._on_lost = on_lost
        self._records: deque[T] = deque()
        self._taken = self._settled = 0
        self._closing = self._urgent = False
        self._unreported = 0
        self._complained = False
        self._changed = threading.Condition()
        self.written = self.dropped = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the writer itself: what it has to say must not be offered to it again."""
        return threading.current_thread() is self._thread

    def offer(self, record: T) -> bool:
        """Take a record for the stream. Returns at once; False: there was no room, it is dropped and counted."""
        with self._changed:
            if self._closing or len(self._records) >= self._limit:
                self._drop(1)
                return False
            self._records.append(record)
            self._taken += 1
            if len(self._records) == 1 or len(self._records) == self._limit // 2:
                self._changed.notify_all()
            return True

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._unreported += count

    def hurry(self) -> None:
        """Let what was offered be written now, without waiting for it."""
        with self._changed:
            if self._records:
                self._urgent = True
                self._changed.notify_all()

    def flush(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> bool:
        """Wait until everything offered so far is written or dropped; returns whether it is."""
        with self._changed:
            self._urgent, until = True, self._taken
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._settled >= until, timeout_s)

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> bool:
        """Write what is left, wait for it at most `timeout_s`, and end. Says whether all was written."""
        done = self.flush(timeout_s)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s if done else 0)
        return done

    # --- the writer's thread ---

    def _run(self) -> None:
        sink: BackgroundSink[T] | None = None
        while (batch := self._next_batch()) is not None:
            try:
                sink = self._open_sink() if sink is None else sink
                sink.write(batch)
            except Exception as error:  # noqa: BLE001 - reporting must not end the job, whatever the stream has
                self._complain(error)
                self._settle(len(batch), written=False)
            else:
                self._settle(len(batch), written=True)
        if sink is not None:
            sink.close()

    def _next_batch(self) -> list[T] | None:
        """The next batch to write, at most one an interval; None when closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._records or self._closing)
            self._changed.wait_for(self._is_due, self._interval_s)
            if not self._records:
                return None
            batch = list(self._records)
            self._records.clear()
            if self._unreported and self._on_lost is not None:
                batch.append(self._on_lost(self._unreported))
                self._taken += 1
            self._unreported = 0
            self._urgent = False
            return batch

    def _is_due(self) -> bool:
        return self._closing or self._urgent or len(self._records) >= self._limit // 2

    def _settle(self, count: int, *, written: bool) -> None:
        with self._changed:
            if written:
                self.written += count
            else:
                self._drop(count)
            self._settled += count
            self._changed.notify_all()

    def _complain(self, error: Exception) -> None:
        """Say it once, on standard error: a log call here would come back to us."""
        if not self._complained:
            self._complained = True
            print(f"{self._name}: records are lost, cannot write: {error!r}", file=sys.stderr)
