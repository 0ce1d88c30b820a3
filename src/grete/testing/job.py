"""Runs a StreamTask job inside a test: no Spark, no Java, no waiting, and nothing in place of the real code.

What is real: validation, the job model, the coordinator stream, serdes, the task runner, store files, changelogs,
checkpoints, commits and fences. What a test decides: which messages arrive and when the job sees them, what time it
is, where a batch ends, when the process dies and what is left of its disk. A batch runs when the test says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from grete.checkpoint.applied_startpoints import read_applied
from grete.checkpoint.task_commit import TaskCommit, commit_entries, read_commits
from grete.config.rules.changes import refused_changes
from grete.config.settings.job import JobSettings
from grete.container.assignment import Assignment
from grete.container.metrics import task_source
from grete.container.standby import StandbyRun
from grete.errors import ConfigError, IllegalStateError
from grete.keyed_log.base import KeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.startpoint_hand_over import StartpointHandOver
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.model.job import JobModel, TaskMode
from grete.model.startpoint import PendingStart
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.testing.applications import Application, Pipeline
from grete.testing.clock import ManualClock
from grete.testing.controlled_log import ControlledLog
from grete.testing.job_config import prepared, with_checkpoints_in
from grete.testing.job_container import ContainerUnderTest, TestedContainer
from grete.testing.job_model import assignments_of, write_job_model
from grete.testing.job_world import JobWorld

_MOST_BATCHES = 10_000


class Ran(NamedTuple):
    """The work of `run`: batches, messages processed (poison among them), messages put aside as dead letters."""

    batches: int
    records: int
    dead_letters: int


class JobUnderTest(JobWorld):
    """A job that runs in the test's own thread. Use it in a `with`, which starts it and removes its files.

    Every system of the configuration is an embedded one in `directory` (a temporary one by default); paths that the
    configuration names for systems, state and checkpoints are not used, so that a production file can be tried as it
    is. Inputs
    that are not there are created, with `partitions` (by `system.stream`), `streams.<name>.samza.partitions`, or one;
    of a broadcast stream as many as the configuration names.

    Raises:
        ConfigError: the configuration is refused, as `grete run` would refuse it; or it is a DataFrame pipeline,
            which needs Spark.
    """

    def __init__(
        self,
        application: Application | Pipeline | None = None,
        config: Mapping[str, str] | None = None,
        *,
        config_files: Sequence[str | Path] = (),
        partitions: Mapping[str, int] | None = None,
        directory: Path | None = None,
        clock: ManualClock | None = None,
        coordinator_log: KeyedLog | None = None,
    ) -> None:
        clock = ManualClock() if clock is None else clock
        loaded = prepared(application, config or {}, config_files)
        self._check_kind(loaded.job)
        self._partitions = dict(partitions or {})
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="grete-test-")) if directory is None else directory
        super().__init__(
            with_checkpoints_in(self.directory, loaded), LocalSystem(self.directory / "local", clock), clock
        )
        self._log = ControlledLog(clock) if coordinator_log is None else coordinator_log
        self._containers: list[TestedContainer] = []
        self._epoch = 0
        self._create_inputs()

    def _check_kind(self, job: JobSettings) -> None:
        if job.is_pipeline:
            raise ConfigError(
                f"app.class={job.application_class}: a DataFrame pipeline needs Spark; use "
                f"grete.testing.pipeline.PipelineUnderTest"
            )

    def _create_inputs(self) -> None:
        settings = self._settings
        broadcast = settings.task.broadcast_inputs
        for stream in settings.task.all_inputs:
            listed = max((ssp.partition for ssp in broadcast if ssp.system_stream == stream), default=0)
            said = settings.stream(stream).partitions or listed + 1
            count = self._partitions.get(str(stream), said)
            self._system.ensure_stream(StreamSpec(stream.stream, count))

    # --- life ---

    def start(self, *, until_drained: bool = False) -> Self:
        """Submit the job and open its containers. From now on messages are new, whatever the offset default says.

        With `until_drained` the inputs end where they end now.
        """
        if self._containers:
            raise IllegalStateError("the job is started already; restart() starts it again")
        self._epoch += 1
        stream = self.coordinator_stream()
        if stream.config() != self._settings.raw:
            stream.write_config(self._settings.raw, run_id=f"test-{self._epoch}", reason="")
        self._model = write_job_model(
            stream,
            self._system,
            lambda: read_commits(self._checkpoint_log().read()),
            self.directory,
            self.clock,
        )
        self._containers = [
            self._container(assignment)
            for assignment in assignments_of(
                self._model, self._epoch, self._pending_starts(), until_drained=until_drained
            )
        ]
        return self

    def _container(self, assignment: Assignment) -> TestedContainer:
        """Open a container, which fences the one before off."""
        return ContainerUnderTest(
            assignment, self._system, self._ends, self.clock, self.directory, coordinator_log=self._log
        )

    def _pending_starts(self) -> dict[TaskName, PendingStart]:
        """Startpoints in the coordinator stream, handed over as a coordinator does."""

        def applied() -> dict[TaskName, Mapping[SystemStreamPartition, int]]:
            return {task: one.created_ms for task, one in read_applied(self._checkpoint_log().read()).items()}

        tasks = {
            task: model.partitions
            for task, model in self.model.tasks.items()
            if model.mode is TaskMode.ACTIVE
        }
        return StartpointHandOver(self.coordinator_stream(), self.clock, applied).pending(tasks)

    def stop(self) -> None:
        """Stop at a batch boundary: every task is closed."""
        containers, self._containers = self._containers, []
        for container in containers:
            container.close()

    def kill(self) -> None:
        """End as `kill -9` does: what is not committed is gone, no task is closed."""
        containers, self._containers = self._containers, []
        for container in containers:
            container.kill()

    def restart(self, *, lose_stores: bool = False, config: Mapping[str, str] | None = None) -> Self:
        """Kill the job and start it from its checkpoints; where there is none, its offset default counts.

        `lose_stores` takes the store files away, as another host would; `config` changes keys, as submitting the
        job again does.

        Raises:
            ConfigError: the changed configuration is refused.
        """
        self.kill()
        if lose_stores:
            for stores in (self.directory / "jobs").glob("*/stores"):
                shutil.rmtree(stores)
        if config:
            changed = with_checkpoints_in(
                self.directory, prepared(None, {**self._settings.raw, **config}, ())
            )
            problems = refused_changes(self._settings.raw, changed.raw)
            if problems:
                raise ConfigError(*problems)
            self._settings = changed
            self._create_inputs()
        return self.start()

    def close(self) -> None:
        """Stop, and remove the files if they are temporary."""
        self.stop()
        self.close_streams()
        if self._temporary:
            shutil.rmtree(self.directory)

    def __enter__(self) -> Self:
        return self if self._containers else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what the test decides ---

    def replay(self, stream: str, *, offset: int = 0, partition: int | None = None) -> None:
        """Give the job a stream's messages again, from `offset`: its checkpoints are set back and it is restarted.

        Stores keep what they hold, as with an operator's rewind.
        """
        wanted = SystemStream.parse(stream)
        commits = {}
        for task in self._running().tasks.values():
            mine = [
                s for s in task.partitions if s.system_stream == wanted and partition in (None, s.partition)
            ]
            if mine:
                before = self._commits().get(task.name, TaskCommit({})).offsets
                commits[task.name] = TaskCommit({**before, **dict.fromkeys(mine, str(offset - 1))})
        if not commits:
            raise IllegalStateError(f"no task reads {stream}, partition {partition}")
        self._write_checkpoints(commits)
        self.restart()

    def set_checkpoint(self, task: str, offsets: Mapping[str, int]) -> None:
        """Set a task's last processed offsets (`system.stream.partition` -> offset) before the job is started."""
        if self._containers:
            raise IllegalStateError("the job runs: set checkpoints before start(), or use replay()")
        parsed = {SystemStreamPartition.parse(ssp): str(offset) for ssp, offset in offsets.items()}
        self._write_checkpoints({TaskName(task): TaskCommit(parsed)})

    def _write_checkpoints(self, commits: Mapping[TaskName, TaskCommit]) -> None:
        grouper = self._settings.job.ssp_grouper
        self._checkpoint_log().append(commit_entries(commits, grouper=grouper))

    def follow(self) -> None:
        """Let the standby containers of the model catch up (`job.standbytasks.replication.factor`)."""
        for assignment in assignments_of(self._running(), self._epoch, {}, TaskMode.STANDBY):
            follower = StandbyRun(assignment, self.directory, self.clock)
            try:
                follower.catch_up()
            finally:
                follower.close()

    # --- running ---

    def run(self) -> Ran:
        """Run batches until there is nothing left to do.

        Raises:
            ProcessingError: a message cannot be processed; what was committed before stays.
            IllegalStateError: the job is not started, or does not come to an end.
        """
        batches = records = dead = 0
        while (ran := self.run_batch()) is not None:
            batches, records, dead = batches + 1, records + ran.records, dead + ran.dead_letters
            if batches > _MOST_BATCHES:
                raise IllegalStateError(f"after {_MOST_BATCHES} batches there is still something to do")
        return Ran(batches, records, dead)

    def drain(self) -> Ran:
        """Stop, start again until all is consumed that is there now, and run; tasks see the end of their inputs.

        Raises:
            ProcessingError, IllegalStateError: see `run`.
        """
        self._running()
        self.stop()
        return self.start(until_drained=True).run()

    def run_batch(self, *, commit: bool = True) -> Ran | None:
        """Run one batch of each container that has something to do; None when none has.

        Without `commit` everything is processed and nothing committed, as when the process dies in between:
        restart() or run again, and it must be as if it had never been.
        """
        self._running()
        outcomes = [
            outcome
            for container in self._containers
            if (outcome := container.run_batch(commit=commit)) is not None
        ]
        if not outcomes:
            return None
        return Ran(1, sum(o.records for o in outcomes), sum(o.dead_letters for o in outcomes))

    def _running(self) -> JobModel:
        if not self._containers:
            raise IllegalStateError("the job does not run: use it in a `with`, or call start()")
        return self.model

    # --- what came of it ---

    @property
    def shut_down(self) -> list[TaskName]:
        """Tasks that asked to be shut down, sorted."""
        return sorted(task for container in self._containers for task in container.shut_down)

    @property
    def has_ended(self) -> bool:
        """Whether a task has asked to end each container."""
        return bool(self._containers) and all(c.all_shut_down for c in self._containers)

    def metrics(self, task: str | None = None) -> dict[str, dict[str, Any]]:
        """What a task has measured since the job was started, else what its first container has: by group and name.

        Of a timer it is the average of five minutes. Those of the application are in the group `application` where
        it names none, Samza's own in groups of the names of its classes.

        Raises:
            IllegalStateError: the job does not run, or has no such task, or nothing of the task was committed.
        """
        self._running()
        snapshots = [container.metrics.snapshot() for container in self._containers]
        source = next(iter(snapshots[0])) if task is None else task_source(task)
        for snapshot in snapshots:
            if source in snapshot:
                return snapshot[source]
        raise IllegalStateError(f"there are no metrics of task {task!r}: none, or no commit of it")

    def coordinator_stream(self) -> CoordinatorStream:
        """A new reader of the job's coordinator stream, from its start."""
        return CoordinatorStream(self._log, self.clock, source="test")
