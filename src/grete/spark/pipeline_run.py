"""A DataFrame pipeline's run: its lineage, the frame that it builds, and the query that computes it."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession

from grete.api import DataFramePipeline
from grete.config.choices import LineageState
from grete.config.key_tables.job import APP_CLASS
from grete.config.settings import Settings
from grete.container.control import Ended, Interruption
from grete.container.epochs import OnBatch
from grete.container.housekeeping import housekeeping
from grete.container.offset_publisher import OffsetPublisher
from grete.container.rewind import applied_startpoints
from grete.container.specs import single_system, source_options
from grete.container.start import Started
from grete.errors import ApplicationError, ConfigError, GreteError, JobError
from grete.failpoints import failpoint
from grete.model.ending import failure_of, note
from grete.model.ids import SystemStream
from grete.model.startpoint import StateChoice
from grete.spark import kafka_pipeline
from grete.spark.lineage import Continue, LineageDecision, LineageInfo, decide_lineage, refuse_to_lose_state
from grete.spark.lineage_files import LineageDirectory
from grete.spark.offset_log import SparkProgress
from grete.spark.pipeline_batch import PipelineBatch, PipelineOutput
from grete.spark.pipeline_plan import check_build, check_containers
from grete.spark.planned_source import read_stream
from grete.spark.query import Query, QuerySettings, RunBatch
from grete.tasks.application import load_class
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.ranges import SourceOffsets

_log = logging.getLogger("grete.container")


class PipelineRun:
    """Runs one pipeline from what is committed of it."""

    def __init__(
        self, spark: SparkSession, started: Started, stop: Interruption, publisher: OffsetPublisher | None
    ) -> None:
        self._spark = spark
        self._started = started
        self._stop = stop
        self._publisher = publisher
        self._assignment = started.assignment
        self._system = started.system
        self._settings = Settings.of(started.assignment.config)
        self._system_name = single_system(started.assignment)
        self._connector_system = kafka_pipeline.kafka_system_of(self._settings, self._system_name)
        self._lineages = LineageDirectory(started.assignment.state_directory(started.home) / "lineages")

    def execute(self, on_batch: OnBatch, on_at_work: Callable[[], None]) -> Ended:
        """Run until drained or interrupted.

        Raises:
            GreteError: see Query.run; ConfigError before anything ran.
        """
        started, pipeline = self._started, self._load_pipeline()
        output = SystemStream.parse(pipeline.output)
        plan = f"pipeline {self._settings.job.application_class} to {output}, {pipeline.output_mode}"
        decision = self._decide_lineage(plan)
        frame = self._built(pipeline, decision)
        discard = self._settings.job.lineage_state is LineageState.DISCARD or self._rewind_discards()
        refuse_to_lose_state(decision, had_checkpoint=bool(started.commits), discard=discard)
        lineage = self._lineage_of(decision)

        def run(run_batch: RunBatch) -> Ended:
            return self._run_query(frame, run_batch, lineage, pipeline.output_mode, on_batch, on_at_work)

        if self._connector_system is not None:
            return self._run_on_kafka(lineage, output, run)
        batch = PipelineBatch(
            started.target,
            lineage.id,
            {task.name: task.ssps for task in self._assignment.tasks},
            PipelineOutput(output, self._system.partition_count(output.stream)),
            started.commits,
            started.next_offsets,
        )
        return run(batch.run)

    def plan(self) -> tuple[dict[SystemStream, DataFrame], str]:
        """The frame of each output, checked, and the output mode. Nothing is begun.

        Raises:
            ConfigError, ApplicationError: as `execute` would, before anything ran.
        """
        pipeline = self._load_pipeline()
        frame = self._built(pipeline, self._decide_lineage("plan"))
        return {SystemStream.parse(pipeline.output): frame}, pipeline.output_mode

    def close(self) -> None:
        """Release the lineage's lock."""
        self._lineages.close()

    def _run_on_kafka(
        self, lineage: LineageInfo, output: SystemStream, run: Callable[[RunBatch], Ended]
    ) -> Ended:
        """As on other systems, with batches that Spark writes; lost records show in the offsets of the input."""
        batch = kafka_pipeline.make_batch_writer(self._started, lineage, output)
        try:
            return run(batch.run)
        except JobError as error:
            kafka_pipeline.explain_data_loss(error, batch.position, self._system)
            raise

    def _built(self, pipeline: DataFramePipeline, decision: LineageDecision) -> DataFrame:
        """The frame that the pipeline builds of its inputs, checked before anything of a lineage is touched.

        Raises:
            ConfigError: see `check_build` and `check_containers`.
        """
        if self._connector_system is not None:
            source = kafka_pipeline.read(self._spark, self._assignment, decision.lineage)
        else:
            starting = decision.lineage.starting_offsets
            options = source_options(self._assignment, self._started.home, starting, by_task=False)
            source = read_stream(self._spark, options)
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

    def _decide_lineage(self, plan: str) -> LineageDecision:
        """Whether the current lineage goes on. Nothing is begun or given up yet."""
        current = self._lineages.current()
        if current is not None and not self._lineages.lock(current):
            _log.warning("another process still has lineage %s", current.id)
            progress: SparkProgress | str | None = "another process still runs it"
        else:
            progress = None if current is None else self._lineages.progress(current)
        moved = any(not commit.lineage for commit in self._started.commits.values())
        plan = f"{plan}, {self._task_fingerprint()}"
        return decide_lineage(current, progress, self._started.next_offsets, plan, moved=moved)

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

    def _rewind_discards(self) -> bool:
        """Whether the operator gave Spark's state up with the startpoint from which no batch has run yet."""
        applied = applied_startpoints(self._system, self._started.target.checkpoint_log)
        return any(
            not commit.lineage and task in applied and applied[task].state is StateChoice.DISCARD
            for task, commit in self._started.commits.items()
        )

    def _task_fingerprint(self) -> str:
        """A digest of which tasks read what: with the same one, Spark's planned batches mean the same."""
        text = ";".join(f"{task.name}={','.join(map(str, task.ssps))}" for task in self._assignment.tasks)
        return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"

    def _run_query(
        self,
        frame: DataFrame,
        run_batch: RunBatch,
        lineage: LineageInfo,
        mode: str,
        on_batch: OnBatch,
        on_at_work: Callable[[], None],
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
        query.on_outcome = on_batch
        query.on_at_work = on_at_work
        return query.run(self._spark, frame)
