"""The lag of a job, measured now over its systems, whether it runs or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from grete.checkpoint.lag import JobLag, measure_lag, read_offsets
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import last_commits
from grete.clock import Clock
from grete.config.settings import Settings
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.systems.base import System
from grete.systems.factory import open_system

_MAX_AGE_S = 1.0
_TIMES_ITS_COST = 10


class RecentLag:
    """A lag that is measured again when it is old, by one thread for all that ask.

    Old is a second, or ten times as long as it took to measure: however many partitions there are, a client that
    asks without a pause costs the coordinator a tenth of its time at most.
    """

    def __init__(self, measure: Callable[[], JobLag], clock: Clock) -> None:
        self._measure = measure
        self._clock = clock
        self._lock = threading.Lock()
        self._measured: JobLag | None = None
        self._until_s = 0.0

    def get(self) -> JobLag:
        """The lag as it was measured last, or now."""
        with self._lock:
            started_s = self._clock.monotonic_s()
            if self._measured is None or started_s >= self._until_s:
                self._measured = self._measure()
                ended_s = self._clock.monotonic_s()
                self._until_s = ended_s + max(_MAX_AGE_S, _TIMES_ITS_COST * (ended_s - started_s))
            return self._measured


def job_lag(
    job: JobId,
    settings: Settings,
    tasks: Mapping[TaskName, Sequence[SystemStreamPartition]],
    home: Path,
    clock: Clock,
) -> JobLag:
    """Read the checkpoints and ask the systems; opens them and closes them again."""
    streams = settings.task.all_inputs
    with ExitStack() as stack:
        systems: dict[str, System] = {}
        own = settings.task.commit_system
        for name in sorted({own, *(stream.system for stream in streams)}):
            systems[name] = open_system(settings, name, home, clock)
            stack.callback(systems[name].close)
        offsets = read_offsets(streams, systems)
        commits = last_commits(systems[own].checkpoint_log(checkpoint_log_name(job)))
    return measure_lag(settings, tasks, {task: commit.offsets for task, commit in commits.items()}, offsets)
