"""Writes down how a job does while it runs: its coordinator's pages show the last hour, whoever has led meanwhile.

The figures are those that heartbeats and the lag's monitor bring anyway; a line each ten seconds costs nothing that
was to be measured. They are for people: who cannot write them says so once, and coordinates on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from grete.clock import Clock, SystemClock
from grete.coordinator.figure_file import FigureFile, Figures
from grete.coordinator.progress import ContainerProgress
from grete.coordinator.view import View

_log = logging.getLogger("grete.coordinator")
_EVERY_S = 10.0


class FigureRecorder:
    """Writes the figures of a running job, every ten seconds from a thread of its own."""

    def __init__(self, view: View, folder: Path, clock: Clock | None = None) -> None:
        self._view = view
        self._file = FigureFile(folder)
        self._clock = SystemClock() if clock is None else clock
        self._before: tuple[float, dict[str, ContainerProgress]] | None = None
        self._has_failed = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="figures", daemon=True)

    def start(self) -> None:
        """Begin; the first line comes after ten seconds."""
        self._thread.start()

    def close(self) -> None:
        """Write no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_S):
            self.record()

    def record(self) -> None:
        """Write how the job has done since the last call."""
        monitors, now_s = self._view.monitors, self._clock.monotonic_s()
        lag = None if monitors is None else monitors.lag
        now = self._view.containers.progress()
        rate = commit_s = None
        if self._before is not None:
            rate, commit_s = _between(*self._before, now_s, now)
        self._before = (now_s, now)
        behind = None if lag is None else lag.total
        try:
            self._file.append(Figures(self._clock.wall_ms() / 1000, behind, rate, commit_s))
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                _log.warning("the job's figures over time are not written: %s", error)
            self._has_failed = True


def _between(
    before_s: float,
    before: Mapping[str, ContainerProgress],
    now_s: float,
    now: Mapping[str, ContainerProgress],
) -> tuple[float | None, float | None]:
    """Records per second, and seconds per commit; a container that is new here counts from its first heartbeat."""
    records = commits = 0
    commit_s = 0.0
    for id_, one in now.items():
        said, old = one.heartbeat, before.get(id_)
        if old is None or old.heartbeat.epoch != said.epoch:
            records += said.records - one.samples[0][1]
            continue
        records += said.records - old.heartbeat.records
        commits += said.commits - old.heartbeat.commits
        commit_s += said.commit_seconds - old.heartbeat.commit_seconds
    rate = max(0, records) / (now_s - before_s) if now_s > before_s else None
    return rate, max(0.0, commit_s) / commits if commits > 0 else None
