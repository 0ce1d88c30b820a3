"""One run of a container's work: offsets, session, batches. Everything the container holds is opened here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from grete.clock import Clock, SystemClock
from grete.container.assignment import Assignment
from grete.container.control import Ended, Interruption
from grete.container.epochs import OnBatch, run_epoch
from grete.container.process_state import ProcessState
from grete.container.resources import open_resources
from grete.failpoints import failpoint
from grete.spark.executors.preflight import check_executors
from grete.spark.executors.shipping import Shipped, ship
from grete.spark.session.container_session import app_name, build_context, build_session, kafka_system_of
from grete.spark.session.executor_count import ask_for_executors
from grete.spark.stream_task import SparkEngine, start_workers
from grete.wire.metric_values import Metrics


def run_job(
    assignment: Assignment,
    home: Path,
    stop: Interruption,
    *,
    on_batch: OnBatch,
    on_at_work: Callable[[], None],
    on_progress: Callable[[Metrics], None] = lambda metrics: None,
    on_outputs: Callable[[list[str]], None] = lambda streams: None,
    kept: ProcessState,
    clock: Clock | None = None,
) -> Ended:
    """Work for one assignment, from the fence to the end: drained, interrupted, or shut down by a task.

    `kept` is the container's. `on_at_work` is called when it begins to look for input, `on_progress` with Spark's
    own figures of a pipeline's batches, `on_outputs` with the streams that one writes. Spark is
    stopped when the process ends.

    Raises:
        GreteError: see `open_resources`, `run_epoch` and `Query.run`.
    """
    clock = SystemClock() if clock is None else clock
    settings = assignment.settings
    with open_resources(assignment, home, clock, kept) as (started, publishers):
        if settings.job.is_pipeline:
            # with all sinks: 0.08 s of a start that StreamTasks do not need
            from grete.spark.pipeline.run import PipelineRun

            spark = _session_with_executors(assignment, home)
            failpoint("container.session-started")
            with closing(PipelineRun(spark, started, stop, publishers)) as run:
                run.on_progress, run.on_outputs = on_progress, on_outputs
                ended = run.execute(on_batch, on_at_work)
        else:
            context, shipped = _context_with_executors(assignment, home)
            failpoint("container.session-started")
            on_at_work()
            engine = SparkEngine(context, kept=kept, shipped=shipped)
            ended = run_epoch(started, engine, stop, clock, on_batch, publishers, kept)
        failpoint("container.drained")
        return ended


def open_spark(assignment: Assignment, home: Path) -> None:
    """What `run_job` begins with: the process's session or context, and executors that have what the job needs.

    Raises:
        GreteError: see `build_session`, `ship`, `check_executors` and `start_workers`.
    """
    if assignment.settings.job.is_pipeline:
        _session_with_executors(assignment, home)
    else:
        start_workers(*_context_with_executors(assignment, home))


def _session_with_executors(assignment: Assignment, home: Path) -> SparkSession:
    settings, kafka_system = assignment.settings, kafka_system_of(assignment)
    spark = build_session(app_name(assignment), settings, kafka_system=kafka_system)
    if (decided := settings.autosizing.executors) is not None:
        ask_for_executors(spark.sparkContext, decided)
    shipped = ship(spark.sparkContext, settings, _archives(assignment, home))
    check_executors(spark.sparkContext, settings, stores=None, shipped=shipped)
    return spark


def _context_with_executors(assignment: Assignment, home: Path) -> tuple[SparkContext, Shipped]:
    settings = assignment.settings
    context = build_context(app_name(assignment), settings)
    shipped = ship(context, settings, _archives(assignment, home))
    check_executors(context, settings, assignment.store_directory(home), shipped)
    return context, shipped


def _archives(assignment: Assignment, home: Path) -> Path:
    return assignment.state_directory(home).parent / "shipped"
