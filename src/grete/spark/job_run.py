"""One run of a container's work: offsets, lineage, session, query. Everything the container holds is opened here."""

from __future__ import annotations

import logging
import sys
import threading
import uuid
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from grete.api import DataFramePipeline
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.offset_manager import StartingOffsets, starting_offsets
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.clock import Clock, SystemClock
from grete.config.stores import changelog_stream, store_names
from grete.errors import ConfigError, StreamNotFound
from grete.failpoints import failpoint
from grete.model.ids import SystemStream, TaskName
from grete.spark.assignment import Assignment
from grete.spark.lineage import Continue, LineageInfo, decide_lineage, refuse_to_lose_state
from grete.spark.lineage_files import LineageDirectory
from grete.spark.local_source import SourceOptions, read_stream
from grete.spark.pipeline_batch import PipelineBatch, PipelineOutput
from grete.spark.plan import RunnerSpec, StoreSpec, TaskSpec
from grete.spark.query import Query, QuerySettings, RunBatch
from grete.spark.session import build_session
from grete.spark.spark_log import SparkProgress
from grete.spark.stream_task_batch import BatchOutcome, CommitTarget, StreamTaskBatch
from grete.spark.task_worker import load_class
from grete.systems.base import StreamSpec
from grete.systems.local import LocalSystem

_log = logging.getLogger("grete.container")


class JobRun:
    """What one container does between its start and its end."""

    def __init__(
        self, assignment: Assignment, home: Path, *, until_drained: bool, stop: threading.Event
    ) -> None:
        self._assignment = assignment
        self._home = home
        self._until_drained = until_drained
        self._stop = stop
        self._clock: Clock = SystemClock()
        self._config = assignment.config
        self._system_name = _single_system(assignment)
        self._system = LocalSystem(_system_directory(assignment, self._system_name, home), self._clock)
        self._lineages = LineageDirectory(assignment.state_directory(home) / "lineages")
        self.on_outcome: Callable[[int, BatchOutcome], None] = lambda batch_id, outcome: None

    def execute(self) -> None:
        """Run until drained or stopped.

        Raises:
            GreteError: see Query.run; ConfigError and OffsetOutOfRange before anything ran.
        """
        assignment = self._assignment
        self._system.raise_fence([assignment.fence])
        failpoint("container.fence-raised")
        commits = self._commits()
        starting = starting_offsets(
            {task.name: task.ssps for task in assignment.tasks},
            {task: commit.offsets for task, commit in commits.items()},
            self._config,
            {self._system_name: self._system},
        )
        self._create_outputs()
        path = self._config.get("job.application.path")
        if path and path not in sys.path:
            sys.path.insert(0, path)
        spark = build_session(f"grete {assignment.job} container {assignment.container_id}", self._config)
        failpoint("container.session-started")
        if "app.class" in self._config:
            self._run_pipeline(spark, starting, commits)
        else:
            self._run_stream_task(spark, starting, commits)

    def close(self) -> None:
        """Release files and locks; Spark is stopped when the process ends."""
        self._lineages.close()
        self._system.close()

    def _commits(self) -> dict[TaskName, TaskCommit]:
        log = self._system.checkpoint_log(checkpoint_log_name(self._assignment.job))
        mine = {task.name for task in self._assignment.tasks}
        return {task: commit for task, commit in read_commits(log.read()).items() if task in mine}

    def _target(self) -> CommitTarget:
        return CommitTarget(
            store=self._system,
            fences=(self._assignment.fence,),
            checkpoint_log=checkpoint_log_name(self._assignment.job),
            grouper=self._config.get("job.systemstreampartition.grouper.factory", _DEFAULT_GROUPER),
            now_ms=self._clock.wall_ms,
        )

    def _create_outputs(self) -> None:
        """Create the declared outputs that do not exist, with as many partitions as the largest input."""
        largest = max((ssp.partition + 1 for ssp in self._assignment.ssps), default=1)
        for name in _declared_outputs(self._config):
            stream = SystemStream.parse(name)
            partitions = int(self._config.get(f"streams.{stream.stream}.samza.partitions", largest))
            try:
                self._system.stream(stream.stream)
            except StreamNotFound:
                self._system.create_stream(StreamSpec(stream.stream, partitions))

    # --- StreamTasks ---

    def _run_stream_task(
        self, spark: SparkSession, starting: StartingOffsets, commits: Mapping[TaskName, TaskCommit]
    ) -> None:
        lineage = self._choose_lineage(starting, "stream-task", stateful=False, commits=commits)
        spec = self._runner_spec()
        batch = StreamTaskBatch(spec, self._target(), lineage.id, commits, self._store_positions(spec))
        frame = read_stream(spark, self._source(lineage, by_task=True))
        self._run_query(spark, frame, batch.run, lineage, "append")

    def _runner_spec(self) -> RunnerSpec:
        assignment = self._assignment
        ssps = assignment.ssps
        index = {ssp: i for i, ssp in enumerate(ssps)}
        tasks = tuple(
            TaskSpec(i, task.name, tuple(index[ssp] for ssp in task.ssps), task.changelog_partition)
            for i, task in enumerate(assignment.tasks)
        )
        task_class = self._config.get("task.class")
        if not task_class:
            raise ConfigError("neither task.class nor app.class is set: name the application as module:Class")
        dead_letters = None
        if self._config.get("task.poison.policy", "fail") == "dead-letter":
            dead_letters = SystemStream.parse(self._config["task.poison.dead-letter.stream"]).stream
        return RunnerSpec(
            incarnation=uuid.uuid4().hex,
            job=str(assignment.job),
            config=self._config,
            task_class=task_class,
            application_path=self._config.get("job.application.path"),
            ssps=ssps,
            tasks=tasks,
            stores=self._stores(),
            store_directory=str(assignment.store_directory(self._home)),
            default_system=self._system_name,
            system_directory=str(self._system.directory),
            dead_letter_stream=dead_letters,
        )

    def _stores(self) -> tuple[StoreSpec, ...]:
        specs = []
        for name in store_names(self._config):
            stream = changelog_stream(name, self._assignment.job, self._config)
            specs.append(StoreSpec(name, stream, self._system.stream(stream).uid))
        return tuple(specs)

    def _store_positions(self, spec: RunnerSpec) -> dict[int, dict[str, int]]:
        """Where each task's changelogs end now: everything in them is committed, so that is the task's state."""
        ends = {store.name: self._system.offsets(store.changelog_stream) for store in spec.stores}
        return {
            task.index: {name: int(ends[name][task.changelog_partition].upcoming) for name in ends}
            for task in spec.tasks
        }

    # --- DataFrame pipelines ---

    def _run_pipeline(
        self, spark: SparkSession, starting: StartingOffsets, commits: Mapping[TaskName, TaskCommit]
    ) -> None:
        pipeline = self._load_pipeline()
        output = SystemStream.parse(pipeline.output)
        plan = f"pipeline {self._config['app.class']} to {output}, {pipeline.output_mode}"
        lineage = self._choose_lineage(starting, plan, stateful=True, commits=commits)
        source = read_stream(spark, self._source(lineage, by_task=False))
        streams = sorted({str(ssp.system_stream) for ssp in self._assignment.ssps})
        inputs = {name: source.where(source["stream"] == name) for name in streams}
        if len(streams) == 1:
            inputs = {streams[0]: source}
        frame = pipeline.build(inputs)
        batch = PipelineBatch(
            self._target(),
            lineage.id,
            {task.name: task.ssps for task in self._assignment.tasks},
            PipelineOutput(output, self._system.partition_count(output.stream)),
            commits,
            {str(ssp): int(offset) for ssp, offset in starting.by_ssp.items()},
        )
        self._run_query(spark, frame, batch.run, lineage, pipeline.output_mode)

    def _load_pipeline(self) -> DataFramePipeline:
        path = self._config["app.class"]
        made = load_class(path, "app.class")()
        if not isinstance(made, DataFramePipeline):
            raise ConfigError(f"app.class: {path!r} is not a grete.DataFramePipeline")
        return made

    # --- both ---

    def _choose_lineage(
        self,
        starting: StartingOffsets,
        plan: str,
        *,
        stateful: bool,
        commits: Mapping[TaskName, TaskCommit],
    ) -> LineageInfo:
        wanted = {str(ssp): int(offset) for ssp, offset in starting.by_ssp.items()}
        current = self._lineages.current()
        if current is not None and not self._lineages.lock(current):
            _log.warning("another process still has lineage %s", current.id)
            progress: SparkProgress | str | None = "another process still runs it"
        else:
            progress = None if current is None else self._lineages.progress(current)
        decision = decide_lineage(current, progress, wanted, f"{plan}, {self._task_fingerprint()}")
        if stateful:
            discard = self._config.get("job.lineage.state") == "discard"
            refuse_to_lose_state(decision, had_checkpoint=bool(commits), discard=discard)
        if isinstance(decision, Continue):
            _log.info("continuing lineage %s", decision.lineage.id)
            lineage = decision.lineage
        else:
            lineage = self._lineages.start(wanted, f"{plan}, {self._task_fingerprint()}")
            _log.info("starting lineage %s: %s", lineage.id, decision.reason or "the first one")
        failpoint("container.lineage-decided")
        return lineage

    def _task_fingerprint(self) -> str:
        """What makes Spark's planned batches mean the same: which tasks read what."""
        text = ";".join(f"{task.name}={','.join(map(str, task.ssps))}" for task in self._assignment.tasks)
        return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"

    def _source(self, lineage: LineageInfo, *, by_task: bool) -> SourceOptions:
        ssps = self._assignment.ssps
        index = {ssp: i for i, ssp in enumerate(ssps)}
        tasks = tuple(tuple(index[ssp] for ssp in task.ssps) for task in self._assignment.tasks)
        window_ms = int(self._config.get("task.window.ms", "-1"))
        return SourceOptions(
            directory=str(self._system.directory),
            ssps=tuple(str(ssp) for ssp in ssps),
            starting_offsets=dict(lineage.starting_offsets),
            tasks=tasks if by_task else None,
            max_records=int(self._config.get("task.max.records.per.batch", "200000")),
            tick_ms=max(0, window_ms) if by_task else 0,
            bootstrap=tuple(
                sorted({str(s.system_stream) for s in ssps if _is_bootstrap(s.system_stream, self._config)})
            ),
        )

    def _run_query(
        self, spark: SparkSession, frame: DataFrame, run_batch: RunBatch, lineage: LineageInfo, mode: str
    ) -> None:
        settings = QuerySettings(
            checkpoint=self._lineages.spark_checkpoint(lineage),
            until_drained=self._until_drained,
            interval_ms=int(self._config.get("task.trigger.interval.ms", "0")),
            output_mode=mode,
        )
        query = Query(run_batch, settings, self._stop)
        query.on_outcome = self.on_outcome
        query.run(spark, frame)


_DEFAULT_GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"


def _declared_outputs(config: Mapping[str, str]) -> list[str]:
    named = [name.strip() for name in config.get("task.outputs", "").split(",") if name.strip()]
    dead_letters = config.get("task.poison.dead-letter.stream")
    return [*named, dead_letters] if dead_letters else named


def _is_bootstrap(stream: SystemStream, config: Mapping[str, str]) -> bool:
    keys = (
        f"streams.{stream.stream}.samza.bootstrap",
        f"systems.{stream.system}.streams.{stream.stream}.samza.bootstrap",
    )
    return any(config.get(key, "").lower() == "true" for key in keys)


def _single_system(assignment: Assignment) -> str:
    systems = sorted({ssp.system for ssp in assignment.ssps})
    if len(systems) != 1:
        raise ConfigError(
            f"a container reads from one system, because its outputs and checkpoints commit there; "
            f"task.inputs names {', '.join(systems) or 'none'}"
        )
    return systems[0]


def _system_directory(assignment: Assignment, system: str, home: Path) -> Path:
    return Path(assignment.config.get(f"systems.{system}.path", str(home / "local")))
