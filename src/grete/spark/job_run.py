"""One run of a container's work: offsets, lineage, session, query. Everything the container holds is opened here."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession

from grete.api import DataFramePipeline
from grete.checkpoint.store import CheckpointStore
from grete.clock import Clock, SystemClock
from grete.config.choices import LineageState
from grete.config.key_tables.job import APP_CLASS
from grete.config.settings import Settings
from grete.container import start
from grete.container.assignment import Assignment
from grete.container.checkpoints import checkpoint_store
from grete.container.control import Ended, Interruption
from grete.container.housekeeping import housekeeping
from grete.container.offset_publisher import OffsetPublisher, open_publisher
from grete.container.rewind import applied_startpoints
from grete.container.specs import single_system, source_options
from grete.container.start import Started
from grete.errors import ApplicationError, ConfigError, GreteError, JobError
from grete.failpoints import failpoint
from grete.model.ending import failure_of, note
from grete.model.ids import SystemStream
from grete.model.startpoint import StateChoice
from grete.spark import kafka_pipeline
from grete.spark.lineage import (
    Continue,
    LineageDecision,
    LineageInfo,
    decide_lineage,
    refuse_to_lose_state,
    too_large,
)
from grete.spark.lineage_files import LineageDirectory
from grete.spark.offset_log import SparkProgress
from grete.spark.pipeline_batch import PipelineBatch, PipelineOutput
from grete.spark.pipeline_plan import check_build, check_containers
from grete.spark.planned_source import read_stream
from grete.spark.query import Query, QuerySettings, RunBatch
from grete.spark.session import build_session
from grete.spark.stream_task import Reading, StreamTaskBatch, keep_workers
from grete.systems.factory import open_system
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.ranges import SourceOffsets
from grete.tasks.read_plan import BatchLimits, ReadPlan, SourceOptions, batch_sizes
from grete.tasks.runtime import load_class

_log = logging.getLogger("grete.container")


class JobRun:
    """A container's work for one assignment, from the fence to the end of its query."""

    def __init__(self, assignment: Assignment, home: Path, *, stop: Interruption) -> None:
        self._assignment = assignment
        self._home = home
        self._stop = stop
        self._clock: Clock = SystemClock()
        self._config = assignment.config
        self._settings = Settings.of(assignment.config)
        self._system_name = single_system(assignment)
        self._connector_system = kafka_pipeline.kafka_system_of(self._settings, self._system_name)
        self._system = open_system(self._settings, self._system_name, home, self._clock)
        self._lineages = LineageDirectory(assignment.state_directory(home) / "lineages")
        self._checkpoints: CheckpointStore | None = None
        self._publisher: OffsetPublisher | None = None
        self.on_outcome: Callable[[int, BatchOutcome], None] = lambda batch_id, outcome: None
        self.on_at_work: Callable[[], None] = lambda: None

    def execute(self) -> Ended:
        """Run until drained, interrupted or shut down by a task.

        Raises:
            GreteError: see Query.run; ConfigError and OffsetOutOfRange before anything ran.
        """
        assignment = self._assignment
        self._checkpoints = checkpoint_store(assignment, self._clock, self._home)
        started = start.prepare(assignment, self._system, self._checkpoints, self._clock, self._home)
        start.report_skipped(assignment, started.skipped, self._home)
        spark = build_session(
            f"grete {assignment.job} container {assignment.container_id}",
            self._config,
            kafka_system=self._connector_system,
        )
        failpoint("container.session-started")
        with open_publisher(assignment, self._system, self._clock, started.next_offsets) as self._publisher:
            if self._settings.job.is_pipeline:
                ended = self._run_pipeline(spark, started)
            else:
                ended = self._run_stream_task(spark, started)
        failpoint("container.drained")
        return ended

    def close(self) -> None:
        """Release files and locks; Spark is stopped when the process ends."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._lineages.close()
        self._system.close()

    # --- StreamTasks ---

    def _run_stream_task(self, spark: SparkSession, started: Started) -> Ended:
        lineage = self._lineage_of(self._decide_lineage(started, "stream-task", stateful=False))
        commits = started.batch_commits(lineage.id)
        options = self._source_options(lineage, by_task=True)
        if (
            self._system.capabilities.commits_on_executors
        ):  # a share more than cores is an opening, a commit and a turn more
            slots = min(options.partitions_at_most, spark.sparkContext.defaultParallelism)
            options = replace(options, partitions_at_most=slots)
        first = ReadPlan(options, self._system, self._clock).initial()
        reading = Reading(options, self._lineages.spark_checkpoint(lineage), first)
        batch = StreamTaskBatch(commits, reading)
        return self._run_query(spark, read_stream(spark, options), batch.run, lineage, "append")

    # --- DataFrame pipelines ---

    def _run_pipeline(self, spark: SparkSession, started: Started) -> Ended:
        pipeline = self._load_pipeline()
        output = SystemStream.parse(pipeline.output)
        plan = f"pipeline {self._settings.job.application_class} to {output}, {pipeline.output_mode}"
        decision = self._decide_lineage(started, plan, stateful=True)
        frame = self._built(spark, pipeline, decision)
        discard = self._settings.job.lineage_state is LineageState.DISCARD or self._rewind_discards(started)
        refuse_to_lose_state(decision, had_checkpoint=bool(started.commits), discard=discard)
        lineage = self._lineage_of(decision)
        if self._connector_system is not None:
            return self._run_on_kafka(spark, frame, lineage, output, started, pipeline.output_mode)
        batch = PipelineBatch(
            started.target,
            lineage.id,
            {task.name: task.ssps for task in self._assignment.tasks},
            PipelineOutput(output, self._system.partition_count(output.stream)),
            started.commits,
            started.next_offsets,
        )
        return self._run_query(spark, frame, batch.run, lineage, pipeline.output_mode)

    def _run_on_kafka(
        self,
        spark: SparkSession,
        frame: DataFrame,
        lineage: LineageInfo,
        output: SystemStream,
        started: Started,
        mode: str,
    ) -> Ended:
        """As on other systems, with batches that Spark writes; lost records show in the offsets of the input."""
        batch = kafka_pipeline.make_batch_writer(started, lineage, output)
        try:
            return self._run_query(spark, frame, batch.run, lineage, mode)
        except JobError as error:
            kafka_pipeline.explain_data_loss(error, batch.position, self._system)
            raise

    def _built(
        self, spark: SparkSession, pipeline: DataFramePipeline, decision: LineageDecision
    ) -> DataFrame:
        """The frame that the pipeline builds of its inputs, checked before anything of a lineage is touched.

        Raises:
            ConfigError: see `check_build` and `check_containers`.
        """
        if self._connector_system is not None:
            source = kafka_pipeline.read(spark, self._assignment, decision.lineage)
        else:
            source = read_stream(spark, self._source_options(decision.lineage, by_task=False))
        streams = sorted({str(ssp.system_stream) for ssp in self._assignment.ssps})
        inputs = {name: source.where(source["stream"] == name) for name in streams}
        if len(streams) == 1:
            inputs = {streams[0]: source}
        frame = check_build(self._build(pipeline, inputs), str(self._settings.job.application_class))
        check_containers(frame, self._settings.job.container_count)
        return frame

    def _build(self, pipeline: DataFramePipeline, inputs: dict[str, DataFrame]) -> Any:
        try:
            return pipeline.build(inputs)
        except (GreteError, Py4JNetworkError):
            raise
        except Exception as error:
            problem = ApplicationError(f"build of {self._settings.job.application_class} failed: {error}")
            note(problem, failure_of(error))
            raise problem from error

    def _load_pipeline(self) -> DataFramePipeline:
        path = self._settings.job.application_class
        made = load_class(path or "", APP_CLASS.name)()
        if not isinstance(made, DataFramePipeline):
            raise ConfigError(f"{APP_CLASS.name}: {path!r} is not a grete.DataFramePipeline")
        return made

    # --- both ---

    def _decide_lineage(self, started: Started, plan: str, *, stateful: bool) -> LineageDecision:
        """Whether the current lineage goes on. Nothing is begun or given up yet."""
        current = self._lineages.current()
        if current is not None and not self._lineages.lock(current):
            _log.warning("another process still has lineage %s", current.id)
            progress: SparkProgress | str | None = "another process still runs it"
        else:
            progress = None if current is None else self._lineages.progress(current)
        moved = stateful and any(not commit.lineage for commit in started.commits.values())
        plan, wanted = f"{plan}, {self._task_fingerprint()}", started.next_offsets
        task = self._settings.task
        limits = BatchLimits(task.max_records_per_batch, task.max_bytes_per_batch)
        large = "" if stateful else too_large(progress, wanted, self._size_of, limits)
        return decide_lineage(current, progress, wanted, plan, moved=moved, too_large=large)

    def _size_of(self, start: Mapping[str, int], end: Mapping[str, int]) -> int:
        return sum(batch_sizes(self._system, start, end).values())

    def _lineage_of(self, decision: LineageDecision) -> LineageInfo:
        """The lineage to run: the current one, or a new one, which is durable on return."""
        lineage = decision.lineage
        if isinstance(decision, Continue):
            _log.info("continuing lineage %s", lineage.id)
        else:
            lineage = self._lineages.start(lineage.starting_offsets, lineage.plan)
            _log.info("starting lineage %s: %s", lineage.id, decision.reason or "the first one")
        failpoint("container.lineage-decided")
        return lineage

    def _rewind_discards(self, started: Started) -> bool:
        """Whether the operator gave Spark's state up with the startpoint from which no batch has run yet."""
        applied = applied_startpoints(self._system, started.target.checkpoint_log)
        return any(
            not commit.lineage and task in applied and applied[task].state is StateChoice.DISCARD
            for task, commit in started.commits.items()
        )

    def _task_fingerprint(self) -> str:
        """A digest of which tasks read what: with the same one, Spark's planned batches mean the same."""
        text = ";".join(f"{task.name}={','.join(map(str, task.ssps))}" for task in self._assignment.tasks)
        return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"

    def _source_options(self, lineage: LineageInfo, *, by_task: bool) -> SourceOptions:
        return source_options(self._assignment, self._home, lineage.starting_offsets, by_task=by_task)

    def _run_query(
        self, spark: SparkSession, frame: DataFrame, run_batch: RunBatch, lineage: LineageInfo, mode: str
    ) -> Ended:
        settings = QuerySettings(
            checkpoint=self._lineages.spark_checkpoint(lineage),
            system=self._system_name,
            until_drained=self._assignment.until_drained,
            interval_ms=self._settings.task.trigger_interval_ms,
            output_mode=mode,
        )
        tidy = housekeeping(self._assignment, self._system)

        def run_and_publish(batch: DataFrame, batch_id: int, end: SourceOffsets) -> BatchOutcome:
            outcome = run_batch(batch, batch_id, end)
            if self._publisher is not None:
                self._publisher.publish(end.next_offsets, outcome.shutdown_tasks)
            tidy()
            return outcome

        query = Query(run_and_publish, settings, self._stop)
        query.on_outcome = self.on_outcome
        if not self._settings.job.is_pipeline:
            query.keep_workers = lambda: keep_workers(spark)
        query.on_at_work = self.on_at_work
        return query.run(spark, frame)
