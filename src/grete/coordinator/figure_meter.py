"""How a job does between two moments, from what heartbeats and the lag's monitor bring anyway."""

from __future__ import annotations

from collections.abc import Mapping

from grete.clock import Clock
from grete.coordinator.figure_file import Figures
from grete.coordinator.progress import ContainerProgress
from grete.coordinator.view import View
from grete.model.ids import ContainerId
from grete.model.job import TaskMode

_FRESH_S = 30.0
"""A container that was not heard of for so long may be anywhere."""


class FigureMeter:
    """Measures how a job has done since the last time. Used by one thread."""

    def __init__(self, view: View, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._before: tuple[float, dict[str, ContainerProgress]] | None = None

    def measure(self, *, of_executors: bool = False) -> Figures:
        """The figures of now; rates are not known the first time.

        With `of_executors` a container counts with its executors alone, and not before it has said how many it has.
        """
        monitors, now_s = self._view.monitors, self._clock.monotonic_s()
        lag = None if monitors is None else monitors.lag
        now = self._view.containers.progress()
        rate = commit_s = cpu = per_commit = None
        if self._before is not None:
            rate, commit_s, cpu, per_commit = _between(*self._before, now_s, now)
        self._before = (now_s, now)
        at_work = sum(
            (0 if of_executors else 1) if one.executors is None else one.executors
            for id_, one in now.items()
            if one.heartbeat.is_at_work and now_s - one.at_s < _FRESH_S and self._has_tasks(id_)
        )
        behind, worst = (None, None) if lag is None else (lag.total, max(lag.by_ssp.values(), default=0))
        return Figures(self._clock.wall_ms() / 1000, behind, rate, commit_s, at_work, worst, cpu, per_commit)

    def _has_tasks(self, container: str) -> bool:
        """Whether the model gives it tasks; a standby has copies of them."""
        if not self._view.containers.is_ready():
            return True
        _, model = self._view.containers.serving()
        found = model.containers.get(ContainerId(container))
        return found is not None and any(one.mode is TaskMode.ACTIVE for one in found.tasks.values())


def _between(
    before_s: float,
    before: Mapping[str, ContainerProgress],
    now_s: float,
    now: Mapping[str, ContainerProgress],
) -> tuple[float | None, float | None, float | None, float | None]:
    """Records per second, seconds per commit, processors in use, and records per commit.

    Of a container that is new here its records count from its first heartbeat.
    """
    records = new = commits = 0
    commit_s = cpu_s = 0.0
    for id_, one in now.items():
        said, old = one.heartbeat, before.get(id_)
        if old is None or old.heartbeat.epoch != said.epoch:
            new += said.records - one.samples[0][1]
            continue
        records += said.records - old.heartbeat.records
        commits += one.commits.count - old.commits.count
        commit_s += one.commits.total - old.commits.total
        cpu_s += said.cpu_seconds - old.heartbeat.cpu_seconds
    took_s = now_s - before_s
    each_s, each = (max(0.0, commit_s) / commits, max(0, records) / commits) if commits > 0 else (None, None)
    if took_s <= 0:
        return None, each_s, None, each
    return max(0, records + new) / took_s, each_s, max(0.0, cpu_s) / took_s, each
