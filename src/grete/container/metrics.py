"""A container's metrics: its tasks' additions summed up, and Samza's own of the container (SamzaContainerMetrics)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from grete.clock import Clock
from grete.diagnostics.streams import container_name
from grete.model.ids import TaskName
from grete.tasks.commit.base import BatchOutcome
from grete.wire.metric_values import (
    CONTAINER_GROUP,
    ENGINE,
    TASK_GROUP,
    Count,
    Durations,
    Level,
    Metrics,
    MetricValue,
    ReportedMetrics,
)

_log = logging.getLogger("grete.container")
_WINDOW_S = 300.0
"""Averages of timers are of the last five minutes, as those of Samza's SlidingTimeWindowReservoir."""
_STEP_S = 5.0
_OF_ITS_TASKS = ("process-calls", "window-calls", "timer-calls", "process-ns", "window-ns", "timer-ns")
_LARGEST_REPORT = 512 * 1024
"""Half of what the coordinator takes in one request."""


class _Timer:
    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self._steps: deque[tuple[float, int, float]] = deque()

    def add(self, value: Durations, now_s: float) -> None:
        self.count += value.count
        self.total += value.total
        start_s, count, total = self._steps.pop() if self._steps else (now_s, 0, 0.0)
        if now_s - start_s >= _STEP_S:
            self._steps.append((start_s, count, total))
            start_s, count, total = now_s, 0, 0.0
        self._steps.append((start_s, count + value.count, total + value.total))

    def average(self, now_s: float) -> float:
        """Of what was measured in the window; 0 when nothing was."""
        while self._steps and self._steps[0][0] < now_s - _WINDOW_S:
            self._steps.popleft()
        count = sum(step[1] for step in self._steps)
        return sum(step[2] for step in self._steps) / count if count else 0.0


class _Registry:
    """The totals of a task or of the container."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, int | Level | _Timer]] = {}

    def add(self, metrics: Metrics, now_s: float) -> None:
        for group, values in metrics.items():
            for name, value in values.items():
                self._add(self._groups.setdefault(group, {}), name, value, now_s)

    def _add(self, group: dict[str, Any], name: str, value: MetricValue, now_s: float) -> None:
        match value:
            case Count(added, is_set):
                group[name] = added if is_set else group.get(name, 0) + added
            case Level():
                group[name] = value
            case Durations():
                group.setdefault(name, _Timer()).add(value, now_s)

    def totals(self) -> dict[str, dict[str, MetricValue]]:
        return {
            group: dict(self._numbers(metrics, texts=group.startswith(ENGINE)))
            for group, metrics in self._groups.items()
        }

    def _numbers(
        self, metrics: Mapping[str, int | Level | _Timer], *, texts: bool
    ) -> Iterator[tuple[str, MetricValue]]:
        """Texts of the engine alone: an application's may be of any length, and nothing reads them."""
        for name, one in metrics.items():
            match one:
                case int():
                    yield name, Count(one)
                case _Timer():
                    yield name, Durations(one.count, one.total)
                case Level(value) if value is not None and (texts or not isinstance(value, str)):
                    yield name, one

    def snapshot(self, now_s: float) -> dict[str, dict[str, Any]]:
        return {
            group: {name: _shown(one, now_s) for name, one in metrics.items()}
            for group, metrics in self._groups.items()
        }


def _shown(one: int | Level | _Timer, now_s: float) -> Any:
    match one:
        case _Timer():
            return one.average(now_s)
        case Level(value):
            return value
    return one


def task_source(task: str) -> str:
    """Samza's name of a task as a source of metrics."""
    return f"TaskName-{task}"


class ContainerMetrics:
    """The totals since the container started. Thread-safe."""

    def __init__(self, container: str, clock: Clock) -> None:
        self._name = container_name(container)
        self._now_s = clock.monotonic_s
        self._lock = threading.Lock()
        self._container = _Registry()
        self._tasks: dict[TaskName, _Registry] = {}
        self._is_warned = False

    def add(self, outcome: BatchOutcome) -> None:
        """Commits: their tasks' metrics, how many messages they had and how long they took."""
        now_s, commit_ns, commits = self._now_s(), round(outcome.commit_s * 1e9), max(1, outcome.commits)
        commit: dict[str, MetricValue] = {
            "commit-calls": Count(commits),
            "commit-ns": Durations(commits, commit_ns),
        }
        of_task = {TASK_GROUP: {**commit, "last-commit-ns": Level(commit_ns // commits)}}
        with self._lock:
            for task, metrics in outcome.metrics.items():
                registry = self._tasks.setdefault(task, _Registry())
                registry.add(metrics, now_s)
                registry.add(of_task, now_s)
                own = metrics.get(TASK_GROUP, {})
                summed = {name: own[name] for name in _OF_ITS_TASKS if name in own}
                self._container.add({CONTAINER_GROUP: summed}, now_s)
            of_all = {**commit, "process-envelopes": Count(outcome.records)}
            self._container.add({CONTAINER_GROUP: of_all}, now_s)

    def add_engine(self, metrics: Metrics) -> None:
        """What the engine says of its work, as metrics of the container."""
        with self._lock:
            self._container.add(metrics, self._now_s())

    def keep(self, tasks: Collection[TaskName]) -> None:
        """The container runs these tasks from now on."""
        with self._lock:
            self._tasks = {task: one for task, one in self._tasks.items() if task in tasks}

    def reported(self) -> ReportedMetrics:
        """The totals for the coordinator; the container's alone where its tasks' are too much for a request."""
        with self._lock:
            tasks = {str(task): one.totals() for task, one in sorted(self._tasks.items())}
            report = ReportedMetrics(self._container.totals(), tasks)
        if len(msgspec.json.encode(report)) <= _LARGEST_REPORT:
            return report
        if not self._is_warned:
            self._is_warned = True
            _log.warning(
                "the metrics of %d tasks are more than %d bytes: /metrics shows those of the container only",
                *(len(tasks), _LARGEST_REPORT),
            )
        return ReportedMetrics(report.container, {})

    def snapshot(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Values by source, group and name, as Samza's reporters have them.

        The sources are `TaskName-` with a task's name, and the container's name.
        """
        now_s = self._now_s()
        with self._lock:
            found = {self._name: self._container.snapshot(now_s)}
            return found | {
                task_source(task): one.snapshot(now_s) for task, one in sorted(self._tasks.items())
            }
