"""Looks at jobs now and then, so that a page has figures at once, and those of the last hour."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from grete.coordinator.figure_file import Figures, read_figures
from grete.errors import GreteError
from grete.model.ids import JobId
from grete.operations.job_status import JobLook, empty_row

_log = logging.getLogger("grete.pages")
_EVERY_S = 2.0
_IDLE_S = 30.0
_KEPT = 1_800
"""Samples of a job: the last hour at one in two seconds, some 200 kB."""
_MARK_EVERY_S = 10.0
_HOUR_S = 3_600.0
_WITHIN_S = 3.0
_FIRST_S = 0.2
"""A page does not wait longer for the first look: it follows by itself."""


class Sample(NamedTuple):
    """How far a job was: records left, and the sum of its positions, from which its rate is told."""

    at_s: float
    behind: int | None
    position: int


class Mark(NamedTuple):
    """Where each task's partitions were at a time."""

    at_s: float
    positions: Mapping[tuple[str, str], int]


class Watch:
    """The rows of some jobs, and their figures over time; looked at every two seconds while somebody does."""

    def __init__(self, jobs: Callable[[], Sequence[JobId]]) -> None:
        self._jobs = jobs
        self._rows: dict[JobId, dict[str, Any]] = {}
        self._samples: dict[JobId, deque[Sample]] = {}
        self._marks: dict[JobId, deque[Mark]] = {}
        self._seen_s = 0.0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._looked_at_s = 0.0
        self._wanted_s = time.monotonic()
        self._closed = threading.Event()
        self.number = 0
        """Grows with each look."""
        self._thread = threading.Thread(target=self._run, name="pages-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether nobody looks any more."""
        return self._closed.is_set()

    def want(self) -> None:
        """Somebody is there: look every two seconds."""
        with self._changed:
            is_idle = self._pause_s() > _EVERY_S
            self._wanted_s = time.monotonic()
            if is_idle:
                self._changed.notify_all()

    def rows(self) -> dict[JobId, dict[str, Any]]:
        """The row of each job, as `grete status -o json` has it; before the first look has ended, its name alone."""
        self.want()
        with self._changed:
            self._changed.wait_for(lambda: self.number > 0 or self._closed.is_set(), _FIRST_S)
            if self.number:
                return dict(self._rows)
        return {job: empty_row(job, "being looked at", "") for job in self._jobs()}

    def knows(self, job: JobId) -> bool:
        """Whether the job is one of those that are looked at."""
        return job in self._jobs()

    def samples(self, job: JobId) -> list[Sample]:
        """What was seen of the job in the last hour, oldest first."""
        with self._lock:
            return list(self._samples.get(job, ()))

    def course(self, job: JobId, folder: Path) -> LastHour:
        """The last hour of a job: what its coordinator has written in its folder, then what was seen since."""
        return course_of(read_figures(folder), self.samples(job), time.time())

    def partition_rates(self, job: JobId) -> Callable[[str, str], float | None]:
        """Records per second of a task's partition over the last ten to twenty seconds; None where not known."""
        with self._lock:
            marks, row = tuple(self._marks.get(job, ())), self._rows.get(job)
        if not marks or row is None or self._seen_s - marks[0].at_s < _EVERY_S / 2:
            return lambda task, partition: None
        passed_s, before, now = self._seen_s - marks[0].at_s, marks[0].positions, _positions(row["lag"])

        def rate(task: str, partition: str) -> float | None:
            first, last = before.get((task, partition)), now.get((task, partition))
            return None if first is None or last is None else max(0, last - first) / passed_s

        return rate

    def look_again(self) -> None:
        """Something was changed: let the next look be now."""
        with self._changed:
            self._wanted_s = time.monotonic()
            self._looked_at_s = 0.0
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._look()
            except (GreteError, OSError):  # the pages go on with what they know
                _log.exception("jobs could not be looked at")
            with self._changed:
                self._looked_at_s = time.monotonic()
                self.number += 1
                self._changed.notify_all()
                self._changed.wait_for(self._is_due, self._pause_s())

    def _is_due(self) -> bool:
        return self._closed.is_set() or time.monotonic() - self._looked_at_s >= self._pause_s()

    def _pause_s(self) -> float:
        return _EVERY_S if time.monotonic() - self._wanted_s < 3 * _EVERY_S else _IDLE_S

    def _look(self) -> None:
        looks = {job: JobLook(job) for job in self._jobs()}
        until_s = time.monotonic() + _WITHIN_S
        rows = {job: look.row_at(until_s, f"no answer within {_WITHIN_S:g} s") for job, look in looks.items()}
        now_s = time.time()
        with self._lock:
            self._rows = rows
            self._samples = {job: self._samples.get(job) or deque(maxlen=_KEPT) for job in rows}
            self._marks = {job: self._marks.get(job) or deque(maxlen=2) for job in rows}
            self._seen_s = now_s
            for job, row in rows.items():
                if row["run_by"] is None:
                    self._marks[job].clear()
                    continue
                positions = _positions(row["lag"])
                self._samples[job].append(Sample(now_s, row["behind"], sum(positions.values())))
                if not self._marks[job] or now_s - self._marks[job][-1].at_s >= _MARK_EVERY_S:
                    self._marks[job].append(Mark(now_s, positions))


class LastHour(NamedTuple):
    """Points of a chart, each a time and a value, oldest first."""

    behind: list[tuple[float, float]]
    rate: list[tuple[float, float]]
    commit_s: list[tuple[float, float]]


def course_of(figures: Sequence[Figures], samples: Sequence[Sample], now_s: float) -> LastHour:
    """Figures as far as there are no samples, which are closer to one another, of the hour before `now_s`."""
    recent = [one for one in figures if now_s - _HOUR_S <= one.at_s <= now_s]
    seen_s = samples[0].at_s if samples else now_s
    before = [one for one in recent if one.at_s < seen_s]
    behind = [(one.at_s, one.behind) for one in before] + [(one.at_s, one.behind) for one in samples]
    return LastHour(
        behind=[(at_s, float(records)) for at_s, records in behind if records is not None],
        rate=[(one.at_s, one.records_per_s) for one in before if one.records_per_s is not None]
        + rates(samples),
        commit_s=[(one.at_s, one.commit_s) for one in recent if one.commit_s is not None],
    )


def _positions(lag: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """What is processed of each task's partition: it grows by one with each record, but for markers of a broker's."""
    return {
        (row["task"] or "", f"{row['system']}.{row['stream']}.{row['partition']}"): int(row["checkpointed"])
        for row in lag["partitions"]
        if row["checkpointed"] is not None and row["checkpointed"].isdecimal()
    }


def rates(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Records per second between samples; a rewind counts as none."""
    found = []
    for before, after in pairwise(samples):
        passed_s = after.at_s - before.at_s
        if 0 < passed_s < 2 * _IDLE_S:
            found.append((after.at_s, max(0, after.position - before.position) / passed_s))
    return found


def rate_now(samples: Sequence[Sample]) -> float | None:
    """Records per second over the last ten seconds; None where it is not known."""
    recent = [one for one in samples if samples[-1].at_s - one.at_s <= 5 * _EVERY_S] if samples else []
    if len(recent) < 2 or recent[-1].at_s <= recent[0].at_s:
        return None
    return max(0, recent[-1].position - recent[0].position) / (recent[-1].at_s - recent[0].at_s)
