"""The progress that containers report in their heartbeats: the source of liveness, rates and restarts."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from msgspec import UNSET

from grete.application.expectations import EXPECTATION
from grete.clock import Clock
from grete.model.ending import ContainerEnd
from grete.wire.container_protocol import Heartbeat
from grete.wire.metric_values import ENGINE, Count, Durations, Level, MetricValue, ReportedMetrics

_WINDOW_S = 60.0
_OUTAGE_OVER_S = 60.0
"""A container that has been at work for so long waits for nothing more, though no batch has shown it."""


@dataclass(slots=True)
class ContainerProgress:
    """The last heartbeat of an incarnation, when it came, and the records it had processed during the last minute.

    `restarts` counts the incarnations that reported before it. `metrics` are its last, which `heartbeat` has not, and
    neither has it the `end`.
    `waited_s` is when it was last seen not at work. The message of its heartbeat says for what it waits.
    """

    heartbeat: Heartbeat
    at_s: float
    samples: deque[tuple[float, int]] = field(default_factory=deque)
    restarts: int = 0
    metrics: ReportedMetrics | None = None
    waited_s: float = 0.0
    end: ContainerEnd | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """Those of Spark and of expectations, where there are some."""
        both = {"spark": self.engine, "expectations": self.expectations}
        return {name: found for name, found in both.items() if found}

    @property
    def engine(self) -> dict[str, dict[str, float | str]]:
        """Spark's own figures of a pipeline's query: by group, without `spark.`, and name; of a timer the average.

        In the group `query` there may be a text, the address of Spark's own `page`.
        """
        groups = {} if self.metrics is None else self.metrics.container
        return {
            group.removeprefix(ENGINE): {name: _shown(value) for name, value in sorted(values.items())}
            for group, values in sorted(groups.items())
            if group.startswith(ENGINE)
        }

    @property
    def _query(self) -> dict[str, MetricValue]:
        return {} if self.metrics is None else self.metrics.container.get(f"{ENGINE}query", {})

    @property
    def executors(self) -> int | None:
        """Those that a pipeline has on a cluster; None of any other container."""
        found = self._query.get("executors")
        return found.value if isinstance(found, Level) and isinstance(found.value, int) else None

    @property
    def commits(self) -> Durations:
        """How many there were, and how long they took together, in seconds; of a pipeline its batches."""
        batches = self._query.get("batch-ms")
        if isinstance(batches, Durations):
            return Durations(batches.count, batches.total / 1000)
        return Durations(self.heartbeat.commits, self.heartbeat.commit_seconds)

    @property
    def expectations(self) -> dict[str, dict[str, int]]:
        """What its tasks or its pipeline have checked, and what of it failed, by expectation, since it started."""
        if self.metrics is None:
            return {}
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for groups in (self.metrics.container, *self.metrics.tasks.values()):
            for group, values in groups.items():
                if group.startswith(EXPECTATION):
                    counted = {name: one.value for name, one in values.items() if isinstance(one, Count)}
                    found[group.removeprefix(EXPECTATION)].update(counted)
        return {name: dict(counted) for name, counted in sorted(found.items())}

    @property
    def records_per_s(self) -> float:
        """Records processed a second, over the last minute or since the first heartbeat."""
        (first_s, first), (last_s, last) = self.samples[0], self.samples[-1]
        return max(0, last - first) / (last_s - first_s) if last_s > first_s else 0.0


def _shown(value: MetricValue) -> float | str:
    match value:
        case Level(str() as text):
            return text
        case Durations(count, total):
            return total / count if count else 0.0
        case Level(int() | float() as number) | Count(number):
            return number
    return 0.0


class ReportedProgress:
    """The progress of each container. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reported: dict[str, ContainerProgress] = {}

    def record(self, container: str, heartbeat: Heartbeat) -> None:
        """Remember a heartbeat that was accepted."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            before = self._reported.get(container)
            is_new = before is None or before.heartbeat.epoch != heartbeat.epoch
            samples = deque() if before is None or is_new else before.samples
            restarts = 0 if before is None else before.restarts + is_new
            samples.append((now_s, heartbeat.records))
            while samples[0][0] < now_s - _WINDOW_S and len(samples) > 1:
                samples.popleft()
            metrics = None if before is None or is_new else before.metrics
            if heartbeat.metrics is not UNSET:
                metrics = heartbeat.metrics
            end = None if heartbeat.end is UNSET else heartbeat.end.end()
            heartbeat = msgspec.structs.replace(heartbeat, metrics=UNSET, known=UNSET, end=UNSET)
            waited_s = now_s if before is None or is_new or not heartbeat.is_at_work else before.waited_s
            if now_s - waited_s > _OUTAGE_OVER_S:
                heartbeat = msgspec.structs.replace(heartbeat, message="")
            self._reported[container] = ContainerProgress(
                heartbeat, now_s, samples, restarts, metrics, waited_s, end
            )

    def by_container(self) -> dict[str, ContainerProgress]:
        """The progress of each container that has reported."""
        with self._lock:
            return {
                id_: replace(one, samples=deque((one.samples[0], one.samples[-1])))
                for id_, one in self._reported.items()
            }
