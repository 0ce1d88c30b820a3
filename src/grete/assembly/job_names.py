"""Jobs that would share what each believes its own, found before anything is written.

Two jobs can be given the same changelog, since Samza's name for it is `<name>-<id>-<store>-changelog` and each part
may hold a `-`. Folders, fences and leaderships have names of their own (`JobId.key`); earlier versions named them
`<name>-<id>` too, and a job of theirs whose id holds a `-` is moved to its new names when it is started.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from grete.clock import Clock
from grete.config.key_tables.streams import STORE_CHANGELOG
from grete.config.rules.changes import effective
from grete.config.settings import Settings
from grete.coordination.base import Coordination
from grete.errors import Fenced, GreteError, HeldByOther, JobError, LogNotFound
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.metadata.job_index import jobs, where_submitted
from grete.metadata.launches import read_launches
from grete.model.fence import Fence
from grete.model.ids import JobId, SystemStream
from grete.systems.base import System

_log = logging.getLogger("grete.coordinator")
MARK = "grete-job-key"
"""The stream of a job whose id holds a `-` says by it that the job has its new names."""

Changelogs = dict[tuple[str, str], str]
"""The store of each (place of the system, stream)."""


def refuse_shared_changelogs(job: JobId, settings: Settings, home: Path, clock: Clock) -> None:
    """Make sure that no other job which can be found keeps its state in one of the job's changelogs.

    Found are the jobs whose coordinator stream is in this home or on the job's own coordinator system, and of others
    those whose name and id read the same. Another job that cannot be read is passed over, unless its name says
    that the changelog is its own.

    Raises:
        JobError: one does; names it, and the way out.
    """
    mine = _changelogs(settings, home)
    if not mine:
        return
    for other in sorted({*jobs(home), *_read_the_same(job)} - {job}):
        theirs = _changelogs_of(other, {stream for _, stream in mine}, settings, home, clock)
        for place in sorted(mine.keys() & theirs.keys()):
            raise JobError(
                f"job {job.shown} would share the changelog {place[1]!r} of its store {mine[place]!r} with job "
                f"{other.shown}, and each would take the other's state for its own; choose another job.name or "
                f"job.id, or name another stream with stores.{mine[place]}.changelog"
            )


def _changelogs_of(other: JobId, mine: set[str], beside: Settings, home: Path, clock: Clock) -> Changelogs:
    """Those of another job, as far as it is to be asked."""
    is_named_so = any(stream.startswith(f"{other}-") for stream in mine)
    is_elsewhere = where_submitted(other, home).raw not in ({}, beside.coordinator.for_containers)
    if is_elsewhere and not is_named_so:
        return {}  # its brokers may be away, and that is no reason not to start
    try:
        settings = _settings_of(other, beside, home, clock)
        return {} if settings is None else _changelogs(settings, home)
    except GreteError as error:
        if is_named_so:
            raise
        _log.warning("job %s cannot be read, so its changelogs are not compared: %s", other.shown, error)
        return {}


def _read_the_same(job: JobId) -> Iterator[JobId]:
    """Every other way to part `name-id`."""
    text = str(job)
    for at, letter in enumerate(text):
        if letter == "-" and text[:at] and text[at + 1 :]:
            yield JobId(text[:at], text[at + 1 :])


def _changelogs(settings: Settings, home: Path) -> Changelogs:
    found = {}
    for store in settings.store_names:
        named = effective(STORE_CHANGELOG, STORE_CHANGELOG.named(store), settings.raw)
        stream = SystemStream.parse(named or "")
        found[settings.system(stream.system).place(home), stream.stream] = store
    return found


def _settings_of(job: JobId, beside: Settings, home: Path, clock: Clock) -> Settings | None:
    """The settings of another job, where this home knows it or beside ours; None when there is no such job."""
    try:
        submitted = where_submitted(job, home)
        place = submitted if submitted.raw else beside
        log = open_coordinator_log(place, stream_name(job), home, clock, must_exist=True)
    except LogNotFound:
        return None
    with closing(log):
        settings = CoordinatorStream(log, clock, source="job-runner").settings()
    return settings if settings.job.written_id == job else None


class OldNames:
    """Folders, fences and leaderships that an earlier version named `<name>-<id>`, of a job with another key now."""

    def __init__(self, job: JobId, stream: CoordinatorStream, home: Path) -> None:
        self._job = job
        self._stream = stream
        self._home = home
        has_other_key = job.key != str(job)
        self._is_noted = not has_other_key or MARK in self._stream.raw(MARK)
        self.are_in_use = not self._is_noted and bool(stream.config())

    def check(self, coordination: Coordination) -> None:
        """Make sure that the job may take what has its old names.

        Raises:
            JobError: another job of this home had the same ones.
            HeldByOther: an earlier version runs the job.
        """
        if not self.are_in_use:
            return
        others = [other for other in jobs(self._home) if other != self._job and str(other) == str(self._job)]
        if others:
            raise JobError(
                f"job {self._job.shown} and job {others[0].shown} had the same folder {str(self._job)!r} and the "
                f"same fences in earlier versions, and it is unknown whose files these are: submit it with a new "
                f"job.id"
            )
        holder = coordination.holder(f"job/{self._job}")
        if holder is not None:
            raise HeldByOther(f"job {self._job.shown}", f"{holder}, an earlier version: stop it first")

    def take(self, settings: Settings, system: System) -> None:
        """Fence off containers that run under the old names, and give the job's folders their new ones."""
        if self.are_in_use:
            for container, record in read_launches(self._stream).items():
                with suppress(Fenced):  # above this epoch already: no commit is accepted under a lower one
                    system.raise_fence([Fence(f"container/{self._job}/{container}", record.fence + 1)])
            for folder in {settings.job.state_folder(self._home), settings.job.standby_folder(self._home)}:
                _rename(folder / str(self._job), folder / self._job.key)
            self.are_in_use = False
        self.note_new()

    def note_new(self) -> None:
        """Say in the stream that the job has its new names, unless it has the old ones still."""
        if not self._is_noted and not self.are_in_use:
            self._stream.append([self._stream.entry(MARK, MARK, {"value": self._job.key})])
            self._is_noted = True


def _rename(old: Path, new: Path) -> None:
    if old.exists() and not new.exists():
        old.rename(new)
