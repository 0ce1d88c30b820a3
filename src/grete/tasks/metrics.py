"""Metrics of a task where it runs: those of its application, and Samza's own of its calls.

A task reports additions, not totals, so that its container's totals are right whichever worker runs it. An attempt
that failed reports nothing. What Samza measures for each message is measured here for all rows that came together and
divided, so that a message pays for no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from grete.application.metrics import Plain, SetCounter, SetGauge
from grete.clock import Clock
from grete.errors import IllegalStateError
from grete.wire.metric_values import TASK_GROUP, Count, Durations, Level, Metrics, MetricValue

_DEFAULT_GROUP = "application"
_MOST = 1_000
"""Metrics of one task: one for each key of the input would be a store, and every reader would get all of them."""
_LONGEST_NAME = 200
_LONGEST_TEXT = 1_000
_WHOLE_BELOW = 2**63


class TaskCounter(SetCounter):
    """A counter whose additions are reported."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        super().__init__()
        self._reported: int | None = None

    def take(self) -> Count | None:
        """What was added since the last time; None for nothing."""
        before, self._reported = self._reported, self.count
        if self.was_set():
            return Count(_whole(self.count), is_set=True)
        if before == self.count:
            return None
        return Count(_whole(self.count - (before or 0)))


class TaskGauge(SetGauge):
    """A gauge whose values are reported."""

    __slots__ = ()

    def take(self) -> Level | None:
        """The value if it was set since the last time."""
        return Level(_plain(self.value)) if self.was_set() else None


class TaskTimer:
    """Implements `grete.Timer`."""

    __slots__ = ("_count", "_is_new", "_total")

    def __init__(self) -> None:
        self._count, self._total, self._is_new = 0, 0.0, True

    def update(self, duration: float) -> None:
        """See grete.Timer."""
        if 0 < duration < math.inf:
            self.add(1, duration)

    def add(self, count: int, total: float) -> None:
        """Add so many durations at once."""
        self._count += count
        self._total += total

    def take(self) -> Durations | None:
        """What was measured since the last time; None for nothing."""
        if not self._count and not self._is_new:
            return None
        taken = Durations(self._count, self._total)
        self._count, self._total, self._is_new = 0, 0.0, False
        return taken


_Metric = TaskCounter | TaskGauge | TaskTimer
_M = TypeVar("_M", TaskCounter, TaskGauge, TaskTimer)


class TaskMetrics:
    """Implements `grete.MetricsRegistry` for one task. Used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self.now_s = clock.monotonic_s
        self._groups: dict[str, dict[str, _Metric]] = {}
        self._size = 0
        own = {
            name: self.counter(name, group=TASK_GROUP)
            for name in ("process-calls", "window-calls", "timer-calls", "send-calls")
        }
        self._processes, self._windows, self._timers, self._sends = own.values()
        self._process_ns = self.timer("process-ns", group=TASK_GROUP)
        self._window_ns = self.timer("window-ns", group=TASK_GROUP)
        self._timer_ns = self.timer("timer-ns", group=TASK_GROUP)
        self._restored = self.counter("restored-messages", group=TASK_GROUP)
        self._restore_ns = self.timer("restore-ns", group=TASK_GROUP)

    def counter(self, name: str, *, group: str = _DEFAULT_GROUP) -> TaskCounter:
        """See grete.MetricsRegistry."""
        return self._registered(TaskCounter, TaskCounter, group, name)

    def gauge(self, name: str, value: Plain = 0, *, group: str = _DEFAULT_GROUP) -> TaskGauge:
        """See grete.MetricsRegistry."""
        return self._registered(TaskGauge, lambda: TaskGauge(value), group, name)

    def timer(self, name: str, *, group: str = _DEFAULT_GROUP) -> TaskTimer:
        """See grete.MetricsRegistry."""
        return self._registered(TaskTimer, TaskTimer, group, name)

    def _registered(self, kind: type[_M], make: Callable[[], _M], group: str, name: str) -> _M:
        found = self._groups.get(group, {}).get(name)
        if found is None:
            self._check(group, name)
            found = self._groups.setdefault(group, {})[name] = make()
            self._size += 1
        if not isinstance(found, kind):
            raise IllegalStateError(
                f"metric {name!r} of group {group!r} is another kind already; name one of them differently"
            )
        return found

    def _check(self, group: str, name: str) -> None:
        for text in (group, name):
            if not (0 < len(text) <= _LONGEST_NAME and text.isprintable()):
                raise IllegalStateError(
                    f"{text[:_LONGEST_NAME]!r} cannot name a metric or its group: write 1 to {_LONGEST_NAME} "
                    f"printable characters"
                )
        if self._size >= _MOST:
            raise IllegalStateError(
                f"a task has at most {_MOST} metrics, so {name!r} is one too many; keep what is counted by key in a "
                f"store"
            )

    # --- Samza's own ---

    def processed(self, records: int, start_s: float) -> None:
        """So many messages were processed since `start_s`."""
        self._processes.inc(records)
        self._process_ns.add(records, self._ns_since(start_s))

    def windowed(self, start_s: float) -> None:
        """`window` ran, since `start_s`."""
        self._windows.inc()
        self._window_ns.add(1, self._ns_since(start_s))

    def called_timer(self, start_s: float) -> None:
        """`on_timer` ran, since `start_s`."""
        self._timers.inc()
        self._timer_ns.add(1, self._ns_since(start_s))

    def sent(self, records: int) -> None:
        """So many messages were sent."""
        self._sends.inc(records)

    def restored(self, changes: int, seconds: float) -> None:
        """A store has read so many changes of its changelog, which took so long."""
        self._restored.inc(changes)
        self._restore_ns.add(1, round(seconds * 1e9))

    def snapshot_is_of(self, wall_ms: int) -> None:
        """The newest snapshots of all of its stores are of this time or later; 0: of some store there is none."""
        gauge = self.gauge("snapshot-time-ms", group=TASK_GROUP)
        if gauge.value != wall_ms:
            gauge.set(wall_ms)

    def _ns_since(self, start_s: float) -> float:
        return round(max(0.0, self.now_s() - start_s) * 1e9)

    def take(self) -> Metrics:
        """What was added since the last time, and gauges that were set."""
        taken: dict[str, dict[str, MetricValue]] = {}
        for group, metrics in self._groups.items():
            values = {name: value for name, one in metrics.items() if (value := one.take()) is not None}
            if values:
                taken[group] = values
        return taken


def _whole(number: int) -> int:
    return max(-_WHOLE_BELOW, min(_WHOLE_BELOW - 1, number))


def _plain(value: Plain) -> Plain:
    """A value that any JSON can have."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return _whole(int(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value[:_LONGEST_TEXT].encode("utf-8", "replace").decode()
