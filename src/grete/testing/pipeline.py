"""Runs a DataFrame pipeline inside a test: rows in, batches, restarts, rewinds, rows out; no broker, no processes.

What is real: validation, the job model, the coordinator stream, Spark, the plan and its checks, the query, lineages
with Spark's checkpoint location, commits, checkpoints and fences. It is `grete.testing.job` with Spark below, in the
test's own process: one Spark for all tests of the process, which takes some seconds at the first.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Event
from typing import Self

from grete.checkpoint.applied_startpoints import Applied, applied_entry
from grete.checkpoint.task_commit import TaskCommit
from grete.clock import Clock
from grete.config.settings import Settings
from grete.config.settings.job import JobSettings
from grete.container.assignment import Assignment
from grete.container.checkpoints import checkpoint_store
from grete.container.metrics import ContainerMetrics
from grete.container.offset_publisher import OffsetPublishers
from grete.container.start import Started, prepare
from grete.errors import ConfigError, GreteError, IllegalStateError, MissingExtra
from grete.keyed_log.base import Entry, KeyedLog
from grete.model.ids import SystemStream, TaskName
from grete.model.startpoint import StateChoice
from grete.systems.base import System
from grete.systems.commit_group import SegmentWrite
from grete.tasks.commit.base import BatchOutcome, CommitTarget
from grete.testing.applications import Pipeline
from grete.testing.clock import ManualClock
from grete.testing.job import JobUnderTest, Ran
from grete.testing.job_container import TestedContainer

try:
    from pyspark.sql import SparkSession

    from grete.spark.pipeline.plan_text import checked_plan
    from grete.spark.pipeline.run import PipelineRun
    from grete.spark.session.container_session import build_session
    from grete.spark.session.java_options import rename_without_programs
except ModuleNotFoundError as error:
    raise MissingExtra(str(error.name), "spark") from error

_SHARED = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@cache
def shared_session() -> SparkSession:
    """The session of all pipelines under test: on two cores of this machine, stopped when the process ends."""
    session = build_session("grete tests", Settings.of(_SHARED))
    atexit.register(session.stop)
    return session


class PipelineUnderTest(JobUnderTest):
    """A DataFrame pipeline that runs in the test's own thread. Use it in a `with`, as JobUnderTest.

    `application` is a class, or `module:Class`; without one the configuration's `app.class` counts. Its keys
    `spark.sql.*` are set for this pipeline; what else is Spark's is that of `spark`, by default `shared_session()`.

    Messages cannot be held back (`block`): Spark looks for them itself.

    Raises:
        ConfigError: the configuration is refused, as `grete run` would refuse it; or it names no pipeline.
    """

    def __init__(
        self,
        application: Pipeline | str | None = None,
        config: Mapping[str, str] | None = None,
        *,
        config_files: Sequence[str | Path] = (),
        partitions: Mapping[str, int] | None = None,
        directory: Path | None = None,
        clock: ManualClock | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        named = {"app.class": application} if isinstance(application, str) else {}
        super().__init__(
            None if isinstance(application, str) else application,
            {**(config or {}), **named},
            config_files=config_files,
            partitions=partitions,
            directory=directory,
            clock=clock,
        )
        self.spark = (spark or shared_session()).newSession()
        """The session in which `build` is called, for tables that it reads."""
        rename_without_programs(self.spark)  # which a new session does not take over
        for key, value in self._settings.spark.options.items():
            if key.startswith("spark.sql.") and self.spark.conf.isModifiable(key):
                self.spark.conf.set(key, value)

    def _check_kind(self, job: JobSettings) -> None:
        if not job.is_pipeline:
            raise ConfigError(
                "name a grete.DataFramePipeline; a StreamTask is for grete.testing.job.JobUnderTest"
            )

    def _container(self, assignment: Assignment) -> TestedContainer:
        return PipelineContainer(
            assignment, self._system, self.spark, self.clock, self.directory, coordinator_log=self._log
        )

    def run(self) -> Ran:
        """Run batches until there is nothing left to do, in one query of Spark's.

        Raises:
            ApplicationError: Spark refuses the plan, or `build` fails.
            GreteError: a batch failed; what was committed before stays.
            IllegalStateError: the job is not started.
        """
        self._running()
        outcomes = [one for container in self._pipelines() for one in container.run_all()]
        records = sum(one.records for one in outcomes)
        return Ran(len(outcomes), records, sum(one.dead_letters for one in outcomes))

    def _pipelines(self) -> list[PipelineContainer]:
        return [one for one in self._containers if isinstance(one, PipelineContainer)]

    def restart(
        self,
        *,
        lose_stores: bool = False,
        config: Mapping[str, str] | None = None,
        lose_lineages: bool = False,
    ) -> Self:
        """Kill the job and start it from its checkpoints. See JobUnderTest.

        `lose_lineages` takes Spark's checkpoint locations away, as another host would: the next run is refused,
        unless `job.lineage.state=discard`.
        """
        self.kill()
        if lose_lineages:
            for folder in (self.directory / "jobs").glob("*/container-*/lineages"):
                shutil.rmtree(folder)
        return super().restart(lose_stores=lose_stores, config=config)

    def replay(
        self,
        stream: str,
        *,
        offset: int = 0,
        partition: int | None = None,
        discard_state: bool = False,
    ) -> None:
        """Give the job a stream's messages again, from `offset`: a rewind. The job is restarted.

        With `discard_state` it is the rewind of an operator who says `--state discard`; without, the next run is
        refused, as it is then.
        """
        if discard_state:
            wanted = SystemStream.parse(stream)
            tasks = [
                task.name
                for task in self._running().tasks.values()
                if any(
                    one.system_stream == wanted and partition in (None, one.partition) for one in task.ssps
                )
            ]
            grouper = self._settings.job.ssp_grouper
            applied = Applied({}, StateChoice.DISCARD)
            self._checkpoint_log().append([applied_entry(task, applied, grouper=grouper) for task in tasks])
        super().replay(stream, offset=offset, partition=partition)

    def plan(self) -> str:
        """Spark's physical plan of each output, as `grete run --dry-run` shows it.

        Raises:
            ConfigError, ApplicationError: it could not run.
        """
        self._running()
        return self._pipelines()[0].plan()

    def block(self, stream: str, partition: int | None = None) -> None:
        """Not possible."""
        raise IllegalStateError("Spark looks for messages itself: send them when the job is to see them")

    def unblock(self, stream: str, partition: int | None = None) -> None:
        """Not possible."""
        raise IllegalStateError("Spark looks for messages itself: send them when the job is to see them")


class _NotCommitted(GreteError):
    """Ends a batch as a process that is killed just before its commit."""


@dataclass(frozen=True, slots=True)
class _NoCommit(CommitTarget):
    """Where nothing is committed."""

    def commit(
        self,
        segments: Iterable[SegmentWrite],
        commits: Mapping[TaskName, TaskCommit],
        *,
        also: Sequence[Entry] = (),
    ) -> dict[tuple[str, int], int]:
        raise _NotCommitted("this batch was not to be committed")


class PipelineContainer:
    """One incarnation of one container. Opening it fences the one before, as starting a real one does."""

    def __init__(
        self,
        assignment: Assignment,
        system: System,
        spark: SparkSession,
        clock: Clock,
        home: Path,
        *,
        coordinator_log: KeyedLog | None = None,
    ) -> None:
        self._assignment = replace(assignment, until_drained=True)
        self._system = system
        self._spark = spark
        self._clock = clock
        self._home = home
        self._store = checkpoint_store(assignment, clock, home, coordinator_log)
        self._started: Started | None = self._prepared()
        self.metrics = ContainerMetrics(assignment.container_id, clock)
        self.all_shut_down = False

    def _prepared(self) -> Started:
        return prepare(self._assignment, self._system, self._store, self._clock, self._home)

    @property
    def shut_down(self) -> list[TaskName]:
        """No task of a pipeline asks to be shut down."""
        return []

    def run_batch(self, *, commit: bool) -> BatchOutcome | None:
        """Run the next batch; None when there is nothing to do."""
        if commit:
            found = self._run(batches=1)
            return found[0] if found else None
        try:
            self._run(batches=1, commit=False)
        except _NotCommitted:
            return BatchOutcome()
        return None

    def run_all(self) -> list[BatchOutcome]:
        """Run batches until there is nothing to do."""
        return self._run()

    def _run(self, *, batches: int | None = None, commit: bool = True) -> list[BatchOutcome]:
        """Work for the assignment, as a container does after each interruption: from what is committed."""
        started, self._started = self._started or self._prepared(), None
        if not commit:
            target = started.target
            blind = _NoCommit(
                target.store, target.fences, target.checkpoint_log, target.grouper, target.now_ms
            )
            started = replace(started, target=blind)
        done, stop = list[BatchOutcome](), Event()

        def on_batch(batch_id: int, outcome: BatchOutcome) -> None:
            self.metrics.add(outcome)
            done.append(outcome)
            if len(done) == batches:
                stop.set()

        run = PipelineRun(self._spark, started, stop, OffsetPublishers())
        run.on_progress = self.metrics.add_engine
        try:
            run.execute(on_batch, lambda: None)
        finally:
            run.close()
        return done

    def plan(self) -> str:
        """Spark's plan of each output."""
        run = PipelineRun(self._spark, self._prepared(), Event(), OffsetPublishers())
        try:
            built = run.plan()
            return "\n".join(
                f"{name}\n{checked_plan(frame, built.output_mode)}" for name, frame in built.frames.items()
            )
        finally:
            run.close()

    def close(self) -> None:
        """End: between batches nothing runs."""
        if self._store is not None:
            self._store.close()

    def kill(self) -> None:
        """As `close`: what is not committed is nowhere."""
        self.close()
