"""A DataFrame pipeline's run: its lineage, the frame that it builds, and the query that computes it."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from grete.api import DataFramePipeline
from grete.application.expectations import letters_of
from grete.application.pipeline import GivenInputs, RunContext, build_failed, load_pipeline, named_outputs
from grete.clock import SystemClock
from grete.config.application_config import ApplicationConfig
from grete.config.choices import LineageState
from grete.container.control import Ended, Interruption
from grete.container.epochs import OnBatch
from grete.container.housekeeping import housekeeping
from grete.container.offset_publisher import OffsetPublishers
from grete.container.rewind import applied_startpoints
from grete.container.slow_calls import logged_while_it_runs
from grete.container.start import Started, check_inputs
from grete.errors import ConfigError, GreteError, JobError, StateDoesNotFit
from grete.failpoints import failpoint
from grete.model.ending import failure_of, note
from grete.model.ids import SystemStream
from grete.model.startpoint import StateChoice
from grete.spark.lineage.decision import (
    Checkpointed,
    Continue,
    LineageDecision,
    LineageInfo,
    StartNew,
    decide_lineage,
    refuse_to_lose_state,
    started_over,
    with_query,
)
from grete.spark.lineage.files import LineageDirectory, Lineages
from grete.spark.lineage.location import Location
from grete.spark.lineage.offset_log import SparkProgress
from grete.spark.lineage.on_hadoop import HadoopLineages
from grete.spark.lineage.parted_sources import Parts, parts_of
from grete.spark.pipeline import columns_used
from grete.spark.pipeline.batch import PipelineBatches
from grete.spark.pipeline.beside import PipelineBeside
from grete.spark.pipeline.decoding import dead_letters, decoded_inputs
from grete.spark.pipeline.encoding import encoded
from grete.spark.pipeline.inputs import (
    INPUT,
    check_all_used,
    read_inputs,
    read_once,
    renamed_topics,
    sources_of,
    used_file,
    used_in,
)
from grete.spark.pipeline.kafka_source import explain_data_loss
from grete.spark.pipeline.outputs import Shared
from grete.spark.pipeline.places import check_places
from grete.spark.pipeline.plan_checks import check_containers, gathers
from grete.spark.pipeline.query import Query, QuerySettings, RunBatch
from grete.spark.pipeline.query_progress import ProgressReader
from grete.spark.pipeline.same_inputs import SameInputs
from grete.spark.pipeline.state_partitions import moved_state, wanted_partitions
from grete.spark.pipeline.tried_on import compared
from grete.spark.session.executor_count import executors
from grete.spark.sinks.factory import Sinks, check_format, output_streams
from grete.spark.sinks.rows import check_types
from grete.spark.sinks.upserts import check_upsert
from grete.tasks.batch_traces import BatchTraces
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.ranges import SourceOffsets
from grete.wire.metric_values import Metrics

_log = logging.getLogger("grete.container")


@dataclass(frozen=True, slots=True)
class BuiltPlan:
    """The frame of each output by its name, and the stream that it goes to; None for what is no stream.

    `shared` is the query that they make together, `sources` what it reads, in Spark's order. `dead_letters` is the
    output that is none of `build`'s. `fixed` is what must not change within a lineage, in words.
    """

    frames: Mapping[str, DataFrame]
    streams: Mapping[str, SystemStream | None]
    output_mode: str
    shared: Shared
    sources: tuple[str, ...]
    dead_letters: str | None
    fixed: str


class PipelineRun:
    """Runs one pipeline from what is committed of it."""

    def __init__(
        self, spark: SparkSession, started: Started, stop: Interruption, publishers: OffsetPublishers
    ) -> None:
        self._spark = spark
        self._started = started
        self._stop = stop
        self._publishers = publishers
        self._assignment = started.assignment
        self._system = started.system
        self._settings = started.assignment.settings
        self._topics = renamed_topics(self._settings)
        place = started.assignment.lineage_place(started.home)
        self._lineages: Lineages = (
            HadoopLineages.of(spark, place, self._topics)
            if isinstance(place, str)
            else LineageDirectory(place, self._topics)
        )
        self._has_begun = False
        self._partitions: int | None = None
        """In how many the state shall be, while it is in another number."""
        self._held = ExitStack()
        self._held.callback(self._lineages.close)
        self.on_progress: Callable[[Metrics], None] = lambda metrics: None
        """Called with Spark's own figures of its batches, some time after them."""
        self.on_outputs: Callable[[list[str]], None] = lambda streams: None
        """Called with the streams that it writes, when it has been built."""

    def execute(self, on_batch: OnBatch, on_at_work: Callable[[], None]) -> Ended:
        """Run until drained or interrupted.

        Raises:
            GreteError: see Query.run; ConfigError before anything ran.
        """
        pipeline = self._load_pipeline()
        built, decision = self._planned(pipeline)
        own = [name for name, stream in built.streams.items() if stream is None]
        lineages = self._assignment.lineage_place(self._started.home)
        check_places(self._spark, self._settings, built.shared.frame, own, lineages)
        discard = self._settings.job.lineage_state is LineageState.DISCARD or self._rewind_discards()
        current = self._lineages.current()
        refuse_to_lose_state(
            decision,
            checkpoint="" if current is None else str(self._lineages.spark_checkpoint(current)),
            had_checkpoint=bool(self._started.commits),
            discard=discard,
            kept=_kept_by_spark(built),
            outside=[name for name, stream in built.streams.items() if stream is None],
        )
        try:
            return self._run(pipeline, built, decision, on_batch, on_at_work)
        except StateDoesNotFit as error:
            if not discard or self._has_begun:
                raise
            reason = str(error)
        offsets = self._started.next_offsets
        anew = StartNew(reason, LineageInfo("", dict(offsets), decision.lineage.plan), unfinished=True)
        built = self._built(pipeline, anew)
        known = with_query(anew, built.sources, _kept_by_spark(built), offsets)
        return self._run(pipeline, built, known, on_batch, on_at_work)

    def _run(
        self,
        pipeline: DataFramePipeline,
        built: BuiltPlan,
        decision: LineageDecision,
        on_batch: OnBatch,
        on_at_work: Callable[[], None],
    ) -> Ended:
        """Run the query; `_has_begun` once it has committed."""
        started, lineage = self._started, self._lineage_of(decision)
        used = columns_used.columns_used(built.shared.frame, INPUT)
        columns_used.write(used_file(started), used)
        same = SameInputs(lambda: check_inputs(self._assignment, started.systems))
        with (
            closing(same),
            closing(Sinks(self._spark, started, lineage.id, built.streams, pipeline)) as sinks,
        ):
            frame = sinks.query(built.shared.frame)
            batches = PipelineBatches(
                sinks.target,
                lineage.id,
                {task.name: task.ssps for task in self._assignment.tasks},
                started.commits,
                started.next_offsets,
                built.shared,
                sinks.by_name,
                sinks.stamps,
                built.dead_letters,
                check_inputs=same.check_now,
                has_foreign_sources=bool(lineage.foreign_sources),
            )
            query = self._query(self._traced(batches.run), lineage, pipeline.output_mode)

            def done(batch_id: int, outcome: BatchOutcome) -> None:
                if not self._has_begun:
                    outcome.rewound_ms = self._started.rewound_ms
                self._has_begun = True
                on_batch(batch_id, outcome)

            query.on_started, query.on_outcome, query.on_at_work = sinks.await_open, done, on_at_work
            context = self._spark.sparkContext
            there = None if self._settings.spark.is_local else partial(executors, context)
            progress = ProgressReader(lineage.sources, context.uiWebUrl, there)
            self.on_progress(progress.standing())

            def look(streaming: StreamingQuery) -> None:
                same.check_seen()
                for metrics in progress.new(streaming):
                    self.on_progress(metrics)

            query.on_look = look
            try:
                self.on_outputs(list(map(str, sinks.streams)))
                ended = self._run_query(query, lineage, frame)
                sinks.confirm()
                return ended
            except JobError as error:
                explain_data_loss(error, batches.position, started.systems)
                raise
            finally:
                progress.close()

    def _run_query(self, query: Query, lineage: LineageInfo, frame: DataFrame) -> Ended:
        """Run it until it ends; of a job whose inputs have ends, batch by batch until there is none before them.

        Before its state is moved, a batch that was begun comes to its end.
        """
        ends, ended = self._ends, Ended.DRAINED
        if self._partitions is not None:  # a batch was begun with those that there are
            settings, query.settings = query.settings, replace(query.settings, one_batch=True)
            if (ended := query.run(self._spark, frame)) is not Ended.DRAINED:
                return ended
            lineage = self._with_partitions(lineage)
            query.settings = replace(settings, checkpoint=self._lineages.spark_checkpoint(lineage))
        if not ends:
            return query.run(self._spark, frame)
        while ended is Ended.DRAINED and self._lineages.plan_up_to(
            lineage, ends, self._started.target.now_ms()
        ):
            ended = query.run(self._spark, frame)
        return ended

    @property
    def _ends(self) -> Mapping[str, int]:
        """See `task.inputs.ends`; empty where it does not count."""
        return self._settings.task.ends if self._assignment.until_drained else {}

    def _traced(self, run: RunBatch) -> RunBatch:
        """The same, with a trace for each batch where the job's batches are traced."""
        traces = BatchTraces.of(self._settings.traces, SystemClock())
        if traces is None:
            return run

        def traced(batch: DataFrame, batch_id: int, end: SourceOffsets) -> BatchOutcome:
            traces.begin(batch_id)
            traces.arrived()
            outcome = run(batch, batch_id, end)
            outcome.traced = traces.committed(batch_id, outcome.records, outcome.commit_s)
            return outcome

        return traced

    def plan(self) -> BuiltPlan:
        """What would run, checked. Nothing is begun.

        Raises:
            ConfigError, ApplicationError: as `execute` would, before anything ran.
        """
        pipeline = self._load_pipeline()
        return self._built(pipeline, self._decide_lineage(self._fixed(pipeline)))

    def compared(self, built: BuiltPlan, query: Path) -> dict[str, Any]:
        """How a lineage would describe what is built, and as `misfit` why it does not fit a query's location.

        `query` is a copy, see `copy_without_state`.
        """
        problem = self._misfit(built, query, parts_of(query, built.sources))
        kept = _kept_by_spark(built)
        return {"plan": built.fixed, "sources": built.sources, "kept": kept or "", "misfit": problem}

    def _misfit(self, built: BuiltPlan, query: Location, parts: Parts | None) -> str:
        return compared(built.shared.frame, built.output_mode, built.sources, query, parts, self._topics)

    def close(self) -> None:
        """Release the lineage's lock, and end the application's process if there is one."""
        self._held.close()

    def _planned(self, pipeline: DataFramePipeline) -> tuple[BuiltPlan, LineageDecision]:
        """The query and its outputs, checked before anything of a lineage is touched.

        A lineage goes on only when `build` reads the inputs that it read, in their order; else it is built once more,
        from where a new one begins.

        Raises:
            ConfigError: see `named_outputs` and `check_containers`.
        """
        decision = self._decide_lineage(self._fixed(pipeline))
        built = self._built(pipeline, decision)
        kept, wanted = _kept_by_spark(built), self._started.next_offsets
        known = with_query(decision, built.sources, kept, wanted)
        if isinstance(known, Continue) and known.widened is not None:
            checkpoint = self._lineages.spark_checkpoint(decision.lineage)
            if problem := self._misfit(built, checkpoint, known.widened):
                known = started_over(decision.lineage, problem, built.sources, kept, wanted)
        if isinstance(decision, Continue) and isinstance(known, StartNew):
            built = self._built(pipeline, known)
        return built, known

    def _fixed(self, pipeline: DataFramePipeline) -> str:
        """What must not change within a lineage, in words. Tasks and what they read are of it: with the same ones,
        Spark's planned batches mean the same."""
        tasks = ";".join(f"{task.name}={','.join(map(str, task.ssps))}" for task in self._assignment.tasks)
        digest = zlib.crc32(tasks.encode("utf-8", "surrogatepass"))
        to = f" to {pipeline.output}" if pipeline.output else ""
        return f"pipeline {self._settings.job.application_class}{to}, {pipeline.output_mode}, {digest:08x}"

    def _built(self, pipeline: DataFramePipeline, decision: LineageDecision) -> BuiltPlan:
        application = str(self._settings.job.application_class)
        inputs = read_inputs(self._spark, self._started, decision.lineage.starting_offsets)
        decoded = decoded_inputs(inputs, self._assignment)
        built = self._build(pipeline, decoded.frames)
        for frame in built.values():
            check_containers(frame, self._settings.job.container_count)
        check_all_used(inputs, used_in(built.values()), application)
        built, failed = letters_of(built)
        streams = output_streams(built, self._settings, pipeline)
        for name, output in self._settings.outputs.items():
            if name in streams:
                check_format(self._spark, output)
                check_upsert(output, built[name], replaces=pipeline.output_mode == "complete")
        written = {name: self._encoded(frame, streams[name]) for name, frame in built.items()}
        aside = [*decoded.letters, *(dead_letters(rows, self._assignment) for rows in failed)]
        frames = read_once(self._with_letters(written, aside))
        shared = Shared.of(frames)
        letters = {name: SystemStream.parse(name) for name in frames if name not in streams}
        sources = sources_of(shared.frame)
        return BuiltPlan(
            frames,
            streams | letters,
            pipeline.output_mode,
            shared,
            sources,
            next(iter(letters), None),
            self._fixed(pipeline),
        )

    def _encoded(self, frame: DataFrame, stream: SystemStream | None) -> DataFrame:
        if stream is None:
            return frame
        made = encoded(frame, stream, self._settings)
        try:
            check_types(dict(made.dtypes), ("key", "value"))
        except ConfigError as error:
            raise ConfigError(
                f"output {stream}: {error}. Cast it, or take away `value`, and all columns make the value as JSON"
            ) from error
        return made

    def _with_letters(
        self, outputs: dict[str, DataFrame], letters: Sequence[DataFrame]
    ) -> dict[str, DataFrame]:
        """The outputs, and as one more the stream of dead letters where there may be any."""
        stream = self._settings.task.dead_letters
        if not letters:
            return outputs
        if stream is None:
            raise ConfigError(
                "app.class: build expects rows with action='dead-letter', and the job has no stream of dead letters: "
                "set task.poison.policy=dead-letter and task.poison.dead-letter.stream"
            )
        if str(stream) in outputs:
            raise ConfigError(
                f"{stream} is an output of the pipeline and the stream of its dead letters: name another"
            )
        return outputs | {str(stream): reduce(DataFrame.unionAll, letters)}

    def _build(self, pipeline: DataFramePipeline, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        application = str(self._settings.job.application_class)
        pipeline.context = context = RunContext(self._spark, ApplicationConfig(self._settings.raw))
        try:
            with logged_while_it_runs(f"build of {application}"):
                built = pipeline.build(GivenInputs(inputs))
        except (GreteError, Py4JNetworkError):
            raise
        except (Exception, SystemExit) as error:
            problem = build_failed(application, error)
            note(problem, failure_of(error))
            raise problem from error
        outputs = named_outputs(built, DataFrame, application, pipeline.output)
        return outputs | context.expectations.set_aside

    def _load_pipeline(self) -> DataFramePipeline:
        path = self._settings.job.application_class or ""
        if not self._settings.job.is_isolated:
            return load_pipeline(path)
        beside = PipelineBeside(self._spark, path, self._settings)
        self._held.callback(beside.close)
        return beside

    def _decide_lineage(self, plan: str) -> LineageDecision:
        """Whether the current lineage goes on. Nothing is begun or given up yet."""
        current = self._lineages.current()
        if current is not None and not self._lineages.lock(current):
            _log.warning("another process still has lineage %s", current.id)
            progress: SparkProgress | str | None = "another process still runs it"
        else:
            progress = None if current is None else self._lineages.progress(current)
        commits = self._started.commits.values()
        return decide_lineage(
            *(current, progress, self._started.next_offsets, plan),
            moved=any(not commit.lineage for commit in commits),
            checkpointed=None if current is None else Checkpointed.of(current, commits),
        )

    def _lineage_of(self, decision: LineageDecision) -> LineageInfo:
        """The lineage to run: the current one, or a new one, which is durable on return."""
        lineage, self._partitions = decision.lineage, None
        if isinstance(decision, Continue):
            _log.info("continuing lineage %s", lineage.id)
            if decision.widened is None:
                self._lineages.go_on(lineage)
            else:
                lineage = self._lineages.widen(lineage, decision.widened, self._started.target.now_ms())
            self._partitions = wanted_partitions(self._spark, self._settings, self._lineages, lineage)
            if self._partitions is not None and not self._lineages.is_open(lineage):
                lineage = self._with_partitions(lineage)
        else:
            lineage = self._lineages.start(lineage)
            _log.info("starting lineage %s: %s", lineage.id, decision.reason or "the first one")
        failpoint("container.lineage-decided")
        return lineage

    def _with_partitions(self, lineage: LineageInfo) -> LineageInfo:
        """The lineage with its state in as many partitions as the operator wants."""
        wanted, self._partitions = self._partitions, None
        if wanted is None:
            return lineage
        return moved_state(self._spark, self._lineages, lineage, wanted, self._started.target.now_ms())

    def _rewind_discards(self) -> bool:
        """Whether the operator gave Spark's state up with the startpoint from which no batch has run yet."""
        applied = applied_startpoints(self._system, self._started.target.checkpoint_log)
        return any(
            not commit.lineage and task in applied and applied[task].state is StateChoice.DISCARD
            for task, commit in self._started.commits.items()
        )

    def _query(self, run_batch: RunBatch, lineage: LineageInfo, mode: str) -> Query:
        settings = QuerySettings(
            checkpoint=self._lineages.spark_checkpoint(lineage),
            sources=lineage.sources,
            until_drained=self._assignment.until_drained,
            one_batch=bool(self._ends),
            interval_ms=self._settings.task.trigger_interval_ms,
            output_mode=mode,
            topics=self._topics,
        )
        tidy = housekeeping(self._assignment, self._system, [self._assignment.fence])

        def run_and_publish(batch: DataFrame, batch_id: int, end: SourceOffsets) -> BatchOutcome:
            outcome = run_batch(batch, batch_id, end)
            self._publishers.publish(end.next_offsets, outcome.shutdown_tasks)
            tidy()
            return outcome

        return Query(run_and_publish, settings, self._stop)


def _kept_by_spark(built: BuiltPlan) -> str | None:
    """What of the query is in Spark's checkpoint alone: see `refuse_to_lose_state`."""
    if "" in built.sources:
        return "a source that is not grete's, whose offsets are Spark's"
    return gathers(built.shared.frame)
