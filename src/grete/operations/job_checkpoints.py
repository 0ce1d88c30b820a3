"""A job's checkpoints as its next start sees them: the checkpoint log, and the store beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from grete.checkpoint.applied_startpoints import Applied, read_applied
from grete.checkpoint.commit_history import KnownCommit, commit_history
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.open_store import open_store
from grete.checkpoint.store import CheckpointStore, StoreContext, copies, resolve
from grete.checkpoint.task_commit import Commits, TaskCommit, last_commits, moved_entries, read_commits
from grete.clock import Clock
from grete.metadata.assignments import TaskAssignments
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import JobId, TaskName
from grete.systems.base import System
from grete.systems.factory import open_system


class JobCheckpoints:
    """The checkpoints of one job, read with the configuration in force."""

    def __init__(self, job: JobId, home: Path, stream: CoordinatorStream, clock: Clock) -> None:
        self._job = job
        self._home = home
        self._stream = stream
        self._clock = clock
        self.log_name = checkpoint_log_name(job)
        """The log in the job's system that holds them."""

    @contextmanager
    def system(self) -> Iterator[System]:
        """The system in which the job's containers commit, with its checkpoint log."""
        settings = self._stream.settings()
        with closing(open_system(settings, settings.task.commit_system, self._home, self._clock)) as system:
            yield system

    def read(self) -> dict[TaskName, TaskCommit]:
        """The newest commit of each task, of log and checkpoint store together."""
        with self.system() as system:
            return self._with_store(last_commits(system.checkpoint_log(self.log_name)))

    def read_with_history(self) -> tuple[dict[TaskName, TaskCommit], dict[TaskName, list[KnownCommit]]]:
        """`read` and `history`, of one reading of the log."""
        with self.system() as system:
            records = list(system.checkpoint_log(self.log_name).read())
        return self._with_store(read_commits(records)), commit_history(records)

    def _with_store(self, logged: dict[TaskName, TaskCommit]) -> dict[TaskName, TaskCommit]:
        store = self.open_store()
        if store is None:
            return logged
        with closing(store):
            tasks = {*logged, *TaskAssignments(self._stream).read()}
            return dict(resolve(logged, store.read(tasks)).commits)

    def history(self) -> dict[TaskName, list[KnownCommit]]:
        """Every commit of each task that the checkpoint log still has, oldest first."""
        with self.system() as system:
            return commit_history(system.checkpoint_log(self.log_name).read())

    def applied_startpoints(self) -> dict[TaskName, Applied]:
        """The startpoints that each task has applied."""
        with self.system() as system:
            return read_applied(system.checkpoint_log(self.log_name).read())

    def open_store(self) -> CheckpointStore | None:
        """The job's checkpoint store beside its log, opened; None without one."""
        return open_store(StoreContext(self._job, self._stream.settings(), self._home, self._clock))

    @property
    def has_store(self) -> bool:
        """Whether the job has a checkpoint store beside its log."""
        store = self.open_store()
        if store is not None:
            store.close()
        return store is not None

    def write(self, commits: Commits) -> None:
        """Write them into the log, in one append, and then into the store, if the job has one. Durable on return.

        Of a job that does not run.
        """
        entries = moved_entries(commits, grouper=self._stream.settings().job.ssp_grouper)
        with self.system() as system:
            system.checkpoint_log(self.log_name).append(entries)
        store = self.open_store()
        if store is not None:
            with closing(store):
                store.write(copies(commits))
