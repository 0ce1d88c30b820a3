"""A job opened for looking at it and for asking things of it, running or not. Imports neither Spark nor Arrow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from grete.checkpoint.applied_startpoints import Applied, read_applied
from grete.checkpoint.commit_history import KnownCommit, commit_history
from grete.checkpoint.lag import JobLag
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.open_store import open_store
from grete.checkpoint.store import CheckpointStore, StoreContext, copies, resolve
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.clock import Deadline, SystemClock
from grete.config.choices import LauncherChoice
from grete.config.key_tables.kubernetes import CONTEXT, KUBECONFIG
from grete.config.settings import Settings
from grete.coordination.base import (
    Coordination,
    Holder,
    Leadership,
    forget_scope,
)
from grete.coordination.factory import open_coordination
from grete.coordination.lead import lead
from grete.coordination.membership import Member, Membership, standbys
from grete.coordinator.lag import job_lag
from grete.environment import grete_home
from grete.errors import GreteError, HeldByOther, JobError, JobNotFound, LogNotFound
from grete.keyed_log.base import KeyedLog
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.config_history import Generation, config_generations
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.container_requests import ask_container
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.metadata.examine import examined
from grete.metadata.history import Ending, History, HistoryEvent, endings, rests
from grete.metadata.job_index import jobs, where_submitted
from grete.metadata.job_state import (
    JobState,
    Request,
    RequestKind,
    StopRequest,
    read_state,
    recorded_epoch,
    write_request,
    write_stop_request,
)
from grete.metadata.launches import LaunchRecord, read_launches
from grete.metadata.locality import LocalityManager
from grete.metadata.quarantine import Quarantined
from grete.model.fence import job_scope
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.job import TaskMode
from grete.suggestions import did_you_mean, or_one_of
from grete.systems.base import System
from grete.systems.factory import open_system

Answer = TypeVar("Answer")
_ANSWERS_WITHIN_S = 5.0
"""A leader gives up a question after a share of its lease, which is half a second of the shortest one. Who only looks
has time: `grete leader step-down` ended with an error for one slow answer, having asked for what was then done."""


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
    """One job's stream, checkpoints and system, opened by `open_job`."""

    def __init__(self, job: JobId, home: Path, log: KeyedLog, given: Settings, stack: ExitStack) -> None:
        """`given` is used as long as the stream has no configuration. What is opened later is closed with `stack`."""
        self.job = job
        self.home = home
        self._clock = SystemClock()
        self._given = given
        self._stack = stack
        self._is_forgotten = False
        self.coordinator_log = log
        self.stream = CoordinatorStream(self.coordinator_log, self._clock, source="grete-cli")

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

    @property
    def lease_s(self) -> float:
        """How long a silent coordinator is left alone."""
        return self._known.coordinator.lease_ttl_s

    @property
    def _known(self) -> Settings:
        settings = self.settings
        return settings if settings.raw else self._given

    @cached_property
    def _coordination(self) -> Coordination:
        """Opened when it is first asked: on Kafka it takes a connection of its own."""
        given = self._given.raw
        own = {key.name: given[key.name] for key in (KUBECONFIG, CONTEXT) if key.name in given}
        known = Settings.of({**self._known.raw, **own})  # a pod reaches its API server otherwise than we do
        coordination = open_coordination(known, self.home, self._clock, ttl_s=self.lease_s)
        self._stack.callback(coordination.close)
        return coordination

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
        """What the service that elects leaders says, asked again while it does not answer."""
        deadline = Deadline(self._clock, _ANSWERS_WITHIN_S)
        while True:
            try:
                return ask()
            except GreteError as error:
                if not error.may_pass or not deadline.pause():
                    raise

    def holder(self) -> Holder | None:
        """The coordinator that runs the job now."""
        return self._answer(lambda: self._coordination.holder(job_scope(self.job)))

    def is_silent(self) -> bool:
        """Whether the holder has given no sign of life for the lease since the first call: it is dead or hangs."""
        return self._answer(lambda: self._coordination.is_silent(job_scope(self.job)))

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

    @contextmanager
    def commit_system(self) -> Iterator[System]:
        """The system in which the job's containers commit, with its checkpoint log."""
        with self.system(self.settings.task.commit_system) as system:
            yield system

    def checkpoints(self) -> dict[TaskName, TaskCommit]:
        """The commits of each task, as its next start sees it: log and checkpoint store together."""
        with self.commit_system() as system:
            logged = read_commits(system.checkpoint_log(checkpoint_log_name(self.job)).read())
        store = self.checkpoint_store()
        if store is None:
            return logged
        with closing(store):
            return dict(resolve(logged, store.read({*logged, *self.assignments()})).commits)

    @property
    def copies_checkpoints(self) -> bool:
        """Whether the job has a checkpoint store beside its log."""
        store = self.checkpoint_store()
        if store is not None:
            store.close()
        return store is not None

    def copy_checkpoints(self, commits: Mapping[TaskName, TaskCommit]) -> None:
        """Give the job's checkpoint store, if it has one, its copy of what was written to the log."""
        store = self.checkpoint_store()
        if store is not None:
            with closing(store):
                store.write(copies(commits))

    def checkpoint_store(self) -> CheckpointStore | None:
        """The job's checkpoint store beside its log, opened; None without one."""
        return open_store(StoreContext(self.job, self.settings, self.home, self._clock))

    def lag(self) -> JobLag:
        """How far behind its inputs the job is, by task and SSP."""
        return job_lag(self.job, self.settings, self.task_inputs(), self.home, self._clock)

    def task_inputs(self) -> dict[TaskName, tuple[SystemStreamPartition, ...]]:
        """The inputs of each task of the job model; standby tasks read nothing."""
        assignments = TaskAssignments(self.stream)
        modes = assignments.modes()
        return {t: s for t, s in assignments.ssps().items() if modes.get(t) is not TaskMode.STANDBY}

    @property
    def checkpoint_log_name(self) -> str:
        """The log in the job's system that holds its checkpoints."""
        return checkpoint_log_name(self.job)

    def checkpoint_history(self) -> dict[TaskName, list[KnownCommit]]:
        """Every commit of each task that the checkpoint log still has, oldest first."""
        with self.commit_system() as system:
            return commit_history(system.checkpoint_log(self.checkpoint_log_name).read())

    def applied_startpoints(self) -> dict[TaskName, Applied]:
        """The startpoints that each task has applied."""
        with self.commit_system() as system:
            return read_applied(system.checkpoint_log(self.checkpoint_log_name).read())

    @contextmanager
    def stopped(self, way_out: str) -> Iterator[Leadership]:
        """Keep the job from being started while the caller changes what it starts from, or ends what is left of it.

        Raises:
            HeldByOther: it runs; names who runs it, and the way out.
        """
        scope = job_scope(self.job)
        floor = recorded_epoch(self.stream)
        try:
            leadership = lead(self._coordination, self.coordinator_log, scope, self._clock, epoch_floor=floor)
        except HeldByOther as error:
            raise HeldByOther(f"job {self.job.shown}", f"{error.holder}: {way_out}") from error
        try:
            yield leadership
        finally:
            if not self._is_forgotten:
                self._coordination.release(leadership)

    def forget_leadership(self, leadership: Leadership) -> None:
        """Remove the job from the service that elects its leaders; see `forget_scope`."""
        forget_scope(self._coordination, leadership)
        self._is_forgotten = True

    def request_stop(self, deadline_s: float, reason: str) -> None:
        """Ask the running coordinator to stop.

        Raises:
            JobError: the job is not running.
        """
        write_stop_request(self.stream, StopRequest(self._leading_epoch(), deadline_s, reason))

    def request_step_down(self, reason: str) -> int:
        """Ask the running coordinator to let another one lead; returns its epoch.

        Raises:
            JobError: the job is not running, or its containers would end with its coordinator.
        """
        if self.settings.job.launcher == LauncherChoice.THREAD:
            raise JobError(
                f"job {self.job.shown} has its containers in its coordinator, and they would end with it"
            )
        epoch = self._leading_epoch()
        write_request(self.stream, Request(RequestKind.STEP_DOWN, epoch, reason))
        return epoch

    def leading_epoch(self) -> int | None:
        """The epoch of the coordinator that leads now; None when none does."""
        return self._answer(lambda: self._coordination.leading_epoch(job_scope(self.job)))

    def standbys(self) -> Sequence[Member]:
        """The coordinators that stand by for this job, the first to begin first."""
        cells = self._coordination.cells(job_scope(self.job))
        return self._answer(standbys(cells, self._clock, lease_s=self.lease_s).heard_of)

    def heard_of(self, scope: str) -> Sequence[Member]:
        """The members of a scope of cells that gave notice within the lease, the first to join first; for people."""
        members = Membership(self._coordination.cells(scope), self._clock, ttl_s=self.lease_s)
        return self._answer(members.heard_of)

    def request_drain(self, reason: str) -> None:
        """Ask the running coordinator to end the job when what is there is consumed.

        Raises:
            JobError: the job is not running.
        """
        write_request(self.stream, Request(RequestKind.DRAIN, self._leading_epoch(), reason))

    def request_container(self, container: ContainerId, what: str, deadline_s: float, reason: str) -> str:
        """Ask the running coordinator to `stop`, `start` or `restart` one container; returns the request's id.

        Raises:
            JobError: the job is not running, or has no such container.
        """
        epoch = self._leading_epoch()
        known = sorted(set(self.assignments().values()))
        if container not in known:
            raise JobError(
                f"job {self.job.shown} has no container {container!r}{or_one_of(container, known)}"
            )
        return ask_container(self.stream, container, what, epoch, deadline_s, reason)

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

    def _leading_epoch(self) -> int:
        """Whom to ask. The recorded state is still that of the run before while a coordinator starts."""
        epoch = self.leading_epoch()
        if epoch is None:
            raise JobError(f"job {self.job.shown} is not running")
        return epoch


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
