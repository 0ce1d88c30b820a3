"""The Spark session or context of a container: its JVM, started once, with `grete.spark.session.settings`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import pyspark
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from grete.config.settings import Settings
from grete.config.settings.spark import SparkSettings
from grete.container.assignment import Assignment
from grete.errors import GreteError
from grete.spark.jvm import context_of_process, jvm_of_process
from grete.spark.session.defaults import NOT_FOR_SHARES, PARTITIONS, values
from grete.spark.session.driver import (
    STARTS,
    context_with,
    driver_variables,
    is_foreign,
    jvm_started,
    session_of_process,
    start_jvm,
)
from grete.spark.session.executor_count import executors
from grete.spark.session.java_options import rename_without_programs
from grete.spark.session.libraries import needed_by_outputs
from grete.spark.session.referring_settings import resolved
from grete.spark.session.refused_settings import refused_settings
from grete.spark.session.running_context import (
    check_connector,
    check_context,
    new_session,
    of_sessions,
)
from grete.spark.session.settings import context_settings

EXIT_OUT_OF_MEMORY = 3
"""How a JVM ends that has no memory left; one that went on without could do anything."""
_EXECUTORS_S, _QUIET_S, _LOOK_S = 30.0, 1.0, 0.1


def build_session(app_name: str, given: Settings, *, kafka_system: str | None = None) -> SparkSession:
    """Start (or get) the session of a DataFrame pipeline; see `session_settings`.

    In a process that is not grete's, or beside a context that another program has started, it is one of its own: see
    `grete.spark.session.running_context`.

    Raises:
        ConfigError, JobError: see `connector_settings`, `could_not_start`, `refused_settings`, `check_context` and
            `check_connector`.
    """
    settings = jvm_started(app_name, given, kafka_system)
    with refused_settings(given.spark.options):
        with STARTS:
            if given.job.is_of_processors or is_foreign(context_of_process()):
                session = _own_session(settings, given)
            else:
                session = session_of_process(settings, given)
        if kafka_system is not None:
            check_connector(session, kafka_system, pyspark.__version__)
        if not given.job.has_lineages_on_hadoop:
            rename_without_programs(session)
    _await_executors(session.sparkContext, given.spark)
    if PARTITIONS not in settings:
        session.conf.set(PARTITIONS, str(session.sparkContext.defaultParallelism))
    return session


def _own_session(settings: Mapping[str, str], given: Settings) -> SparkSession:
    """A session beside others of the process, in the context that runs or in a new one.

    Raises:
        ConfigError: see `resolved` and `check_context`.
    """
    of_session = of_sessions(jvm_of_process(), settings)
    context = context_of_process()
    if context is None:
        context = context_with({k: v for k, v in settings.items() if k not in of_session}, given)
    elif is_foreign(context):
        check_context(context, given.spark, needed=needed_by_outputs(given))
    return new_session(context, resolved(of_session))


@contextmanager
def session_ahead(assignment: Assignment) -> Iterator[None]:
    """Start the JVM of a pipeline's session while the block does something else; nothing for StreamTasks.

    A JVM takes seconds until it answers, and needs nothing but its settings. Where it does not start, `build_session`
    tries again and says why. The block's end waits for it, so that it outlives no container that fails.
    """

    def start() -> None:
        with suppress(GreteError, PySparkRuntimeError, OSError):
            jvm_started(app_name(assignment), assignment.settings, kafka_system_of(assignment))

    if not assignment.settings.job.is_pipeline:
        yield
        return
    thread = threading.Thread(target=start, name="grete-jvm", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def app_name(assignment: Assignment) -> str:
    """The container's name among Spark's applications."""
    return f"grete {assignment.job} container {assignment.container_id}"


def kafka_system_of(assignment: Assignment) -> str | None:
    """A system that Spark's connector to Kafka is there for; None where the coordinator's is the only one.

    `build` names its outputs only once there is a session.
    """
    settings = assignment.settings
    outputs = (one.system for one in settings.task.outputs)
    return connected_system(settings, {*(ssp.system for ssp in assignment.ssps), *outputs})


def connected_system(settings: Settings, systems: Iterable[str]) -> str | None:
    """As `kafka_system_of`, of the systems of inputs and outputs."""
    known = set(systems)
    names = [name for name in settings.system_names if name in known or name != settings.coordinator.system]
    return next((name for name in names if settings.system(name).capabilities.spark_connector), None)


def build_context(app_name: str, given: Settings) -> SparkContext:
    """Start (or get) the context of StreamTasks, which need nothing of Spark SQL; see `context_settings`.

    A session is 60 MB and at least 1.5 s of a processor more at each start.

    Raises:
        ConfigError, JobError: see `could_not_start` and `refused_settings`.
    """
    with STARTS:
        running = context_of_process()
        if running is not None and is_foreign(running):
            check_context(running, given.spark, needed=values(NOT_FOR_SHARES))
            return running
        settings = context_settings(app_name, given)
        with driver_variables(settings, given):
            start_jvm(settings, given)
        context = context_with(settings, given)
    _await_executors(context, given.spark)
    return context


def start_context(given: Settings) -> None:
    """Start the context that containers of this process take over, ahead of them; it has the job's name.

    Raises:
        ConfigError, JobError: as `build_session`.
    """
    name = f"grete {given.job.id.shown}"
    if not given.job.is_pipeline:
        build_context(name, given)
        return
    context_with(jvm_started(name, given), given)


def _await_executors(context: SparkContext, spark: SparkSettings) -> None:
    """Where it is not said how many there shall be, wait until no more come: a cluster gives all that it has."""
    if spark.is_local or spark.cores is not None:
        return
    until_s, quiet_s, before = time.monotonic() + _EXECUTORS_S, time.monotonic() + _QUIET_S, 0
    while time.monotonic() < min(until_s, quiet_s):
        there = executors(context)
        if there != before or not there:
            before, quiet_s = there, time.monotonic() + _QUIET_S
        time.sleep(_LOOK_S)
