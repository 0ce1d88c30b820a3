"""A job opened for looking at it and for asking things of it, running or not. Imports neither Spark nor Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from grete.checkpoint.lag import JobLag
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordinator.lag import job_lag
from grete.environment import grete_home
from grete.errors import JobError, JobNotFound, LogNotFound
from grete.keyed_log.base import KeyedLog
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.config_history import Generation, config_generations
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.metadata.examine import examined
from grete.metadata.history import Ending, History, HistoryEvent, endings, rests
from grete.metadata.job_index import jobs, where_submitted
from grete.metadata.job_state import (
    JobState,
    read_state,
)
from grete.metadata.launches import LaunchRecord, read_launches
from grete.metadata.locality import LocalityManager
from grete.metadata.quarantine import Quarantined
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.job import TaskMode
from grete.operations.job_checkpoints import JobCheckpoints
from grete.operations.job_election import JobElection
from grete.operations.job_requests import JobRequests
from grete.suggestions import did_you_mean, or_one_of
from grete.systems.base import System
from grete.systems.factory import open_system


def no_such_job(job: JobId, home: Path, owner: JobId | None = None) -> JobNotFound:
    """There is none of that name, and what may have been meant: `owner` has the stream that it would have (S1-5)."""
    known = [one.shown for one in jobs(home)]
    meant = did_you_mean(job.shown, known) if owner is None else f"; did you mean {owner.shown}?"
    return JobNotFound(f"there is no job {job.shown} in {home}{meant or '; `grete status` lists the jobs'}")


def no_such_task(job: JobId, task: str, tasks: Collection[TaskName]) -> JobError:
    """The job does not have it; names those that it has."""
    if not tasks:
        return JobError(f"job {job.shown} has no task {task!r}: it has no job model yet; run it once")
    return JobError(f"job {job.shown} has no task {task!r}{or_one_of(task, tasks)}")


def not_read(task: str, ssp: SystemStreamPartition, reads: Sequence[SystemStreamPartition]) -> JobError:
    """The task does not read the SSP; names those that it reads."""
    return JobError(f"task {task!r} does not read {ssp}{or_one_of(str(ssp), map(str, reads), 'it reads')}")


class JobHandle:
    """What is written of one job, opened by `open_job`; who leads it, what is asked of it and its checkpoints."""

    def __init__(self, job: JobId, home: Path, log: KeyedLog, given: Settings, stack: ExitStack) -> None:
        """`given` is used as long as the stream has no configuration. What is opened later is closed with `stack`."""
        self.job = job
        self.home = home
        self._clock = SystemClock()
        self.coordinator_log = log
        self.stream = CoordinatorStream(self.coordinator_log, self._clock, source="grete-cli")
        self.election = JobElection(job, home, log, self.stream, given, self._clock, stack)
        self.requests = JobRequests(job, self.stream, self.election)
        self.checkpoints = JobCheckpoints(job, home, self.stream, self._clock)

    def config(self) -> dict[str, str]:
        """The configuration in force."""
        return self.stream.config()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.stream.settings()

    def config_generations(self) -> list[Generation]:
        """Every generation that is still in the stream, oldest first."""
        return config_generations(self.coordinator_log)

    def history(self) -> list[HistoryEvent]:
        """Rows of the history."""
        return History(self.stream).rows()

    def quarantined(self) -> list[Quarantined]:
        """The records of the coordinator stream that are not understood, by offset."""
        return examined(self.stream)

    def remove_quarantined(self, offsets: Collection[int], *, reason: str) -> None:
        """Delete records that are not understood, and say so in the history."""
        self.stream.remove_quarantined(offsets)
        where = ",".join(map(str, offsets))
        History(self.stream).append("records-removed", offsets=where[:2000], reason=reason)

    def state(self) -> JobState | None:
        """The recorded state; `running` of a job without a leader means that its coordinator died."""
        return read_state(self.stream)

    def localities(self) -> dict[ContainerId, str]:
        """The host of each container."""
        return LocalityManager(self.stream).read_locality()

    def assignments(self) -> dict[TaskName, ContainerId]:
        """The container of each task."""
        return TaskAssignments(self.stream).read()

    def active_tasks(self) -> list[TaskName]:
        """The tasks that process, without their standby copies; sorted."""
        modes = TaskAssignments(self.stream).modes()
        return sorted(t for t in self.assignments() if modes.get(t) is not TaskMode.STANDBY)

    def changelog_mapping(self) -> dict[TaskName, int]:
        """The changelog partition of each task there ever was."""
        return ChangelogMapping(self.stream).read()

    def changelogs(self) -> dict[TaskName, int]:
        """The changelog partition of each task that processes now."""
        active = set(self.active_tasks())
        return {task: number for task, number in self.changelog_mapping().items() if task in active}

    @property
    def state_directory(self) -> Path:
        """The folder of lineages, store files, logs and token."""
        return self.settings.job.state_directory(self.job, self.home)

    @contextmanager
    def system(self, name: str) -> Iterator[System]:
        """The job's system of that name."""
        system = open_system(self.settings, name, self.home, self._clock)
        try:
            yield system
        finally:
            system.close()

    def lag(self) -> JobLag:
        """How far behind its inputs the job is, by task and SSP."""
        return job_lag(self.job, self.settings, self.task_inputs(), self.home, self._clock)

    def task_inputs(self) -> dict[TaskName, tuple[SystemStreamPartition, ...]]:
        """The inputs of each task of the job model; standby tasks read nothing."""
        assigned = self.assigned_inputs().items()
        return {task: tuple(ssp.whole for ssp in ssps) for task, ssps in assigned}

    def assigned_inputs(self) -> dict[TaskName, tuple[SystemStreamPartition, ...]]:
        """As `task_inputs`, of an elastic job with the bucket of keys that is the task's."""
        assignments = TaskAssignments(self.stream)
        modes = assignments.modes()
        return {t: s for t, s in assignments.ssps().items() if modes.get(t) is not TaskMode.STANDBY}

    def launches(self) -> dict[ContainerId, LaunchRecord]:
        """The incarnation of each container that was started and has not been seen to end."""
        return read_launches(self.stream)

    def rests(self) -> dict[ContainerId, str]:
        """Why containers do not run that were given up or stopped, and not started since."""
        started = self.launches()
        return {id_: why for id_, why in rests(self.history()).items() if id_ not in started}

    def endings(self) -> dict[ContainerId, Ending]:
        """How containers ended that ran since the job's last start, and do not run now."""
        started = self.launches()
        return {id_: how for id_, how in endings(self.history()).items() if id_ not in started}


@contextmanager
def open_job(job: JobId, settings: Settings | None = None, *, must_exist: bool = True) -> Iterator[JobHandle]:
    """Open a job's stream.

    Raises:
        JobNotFound: there is no such job in this GRETE_HOME, or nothing of it was ever written.
    """
    home = grete_home()
    given = settings or where_submitted(job, home)
    with ExitStack() as stack:
        try:
            log = open_coordinator_log(given, stream_name(job), home, SystemClock(), must_exist=must_exist)
        except LogNotFound as error:
            meant = did_you_mean(job.shown, [one.shown for one in jobs(home)])
            way_out = meant or ": run it first, set GRETE_HOME, or name its configuration with --config"
            raise JobNotFound(f"there is no job {job.shown} ({error}){way_out}") from error
        stack.enter_context(closing(log))
        if must_exist and log.end() < 0:
            raise no_such_job(job, home)
        handle = JobHandle(job, home, log, given, stack)
        owner = ConfigInForce(handle.stream).owner(job)
        if owner != job:
            raise no_such_job(job, home, owner)
        yield handle
