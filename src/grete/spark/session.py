"""The Spark session or context of a container: its JVM, started once, with `grete.spark.session_settings`."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from grete.config.settings import Settings
from grete.config.settings.spark import SparkSettings
from grete.container.assignment import Assignment
from grete.errors import GreteError
from grete.spark.java import rename_without_programs
from grete.spark.kafka_connector import could_not_start
from grete.spark.referring_settings import for_command_line, resolved
from grete.spark.refused_settings import refused_settings
from grete.spark.session_settings import PARTITIONS, context_settings, session_settings
from grete.spark.worker_python import VARIABLE, application_python
from grete.spark.worker_sockets import make_folder

_log = logging.getLogger("grete.container")
EXIT_OUT_OF_MEMORY = 3
"""How a JVM ends that has no memory left; one that went on without could do anything."""
_NO_CLUSTER = {"spark.master": "local[1]"}
_SHOWN_LINES = 12
_EXECUTORS_S, _QUIET_S, _LOOK_S = 30.0, 1.0, 0.1
_JVM = threading.Lock()
"""Held while the JVM of a pipeline starts."""


def build_session(
    app_name: str, config: Mapping[str, str], *, kafka_system: str | None = None
) -> SparkSession:
    """Start (or get) the session of a DataFrame pipeline; see `session_settings`.

    Raises:
        ConfigError, JobError: see `connector_settings`, `could_not_start` and `refused_settings`.
    """
    settings = _jvm_started(app_name, config, kafka_system)
    make_folder(settings, SparkContext._jvm)
    builder = SparkSession.builder
    for key, value in resolved(settings).items():
        builder = builder.config(key, value)
    with refused_settings(Settings.of(config).spark.options):
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel(_log_level(config))
        if not Settings.of(config).job.has_lineages_on_hadoop:
            rename_without_programs(session)
    _await_executors(session.sparkContext, Settings.of(config).spark)
    if PARTITIONS not in settings:
        session.conf.set(PARTITIONS, str(session.sparkContext.defaultParallelism))
    return session


@contextmanager
def session_ahead(assignment: Assignment) -> Iterator[None]:
    """Start the JVM of a pipeline's session while the block does something else; nothing for StreamTasks.

    A JVM takes seconds until it answers, and needs nothing but its settings. Where it does not start, `build_session`
    tries again and says why. The block's end waits for it, so that it outlives no container that fails.
    """

    def start() -> None:
        with suppress(GreteError, PySparkRuntimeError, OSError):
            _jvm_started(app_name(assignment), assignment.config, kafka_system_of(assignment))

    if not Settings.of(assignment.config).job.is_pipeline:
        yield
        return
    thread = threading.Thread(target=start, name="grete-jvm", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def reach_hadoop(options: Mapping[str, str]) -> tuple[Any, Any]:
    """The JVM of this process, and Hadoop's configuration with these `spark.*` keys, for a command.

    No context starts, so no cluster is asked for anything, and a second is enough. What Spark says by itself is told
    only where its JVM does not start.

    Raises:
        ConfigError, JobError: see `_jvm_started` and `resolved`.
    """
    with tempfile.TemporaryFile() as said:
        settings = _jvm_started("grete", {**options, **_NO_CLUSTER}, said=said)
    jvm: Any = SparkContext._jvm
    java_conf = SparkConf(_jvm=jvm).setAll(list(resolved(settings).items()))._jconf
    return jvm, jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(java_conf)


def _jvm_started(
    app_name: str,
    config: Mapping[str, str],
    kafka_system: str | None = None,
    said: IO[bytes] | None = None,
) -> dict[str, str]:
    """The settings of a pipeline's session, with whose first part its JVM runs.

    Functions that the JVM gets through Spark Connect are evaluated by the interpreter that its own variables name:
    they are those of this process while it starts. One that runs already has its own, and a context that starts in
    another thread at the same time must see nothing of it.

    Raises:
        ConfigError, JobError: see `connector_settings`, `application_python` and `could_not_start`.
    """
    with _JVM:
        settings = session_settings(app_name, config, kafka_system)
        if SparkContext._gateway is None:
            given, before = Settings.of(config), os.environ[VARIABLE]
            os.environ |= application_python(given.job, is_local=given.spark.is_local)
            try:
                _start_jvm(settings, said)
            finally:
                os.environ[VARIABLE] = before
    return settings


def _start_jvm(settings: Mapping[str, str], said: IO[bytes] | None = None) -> None:
    """Start the JVM of this process, if there is none, by a command line without secrets. Its log goes to `said`.

    Raises:
        ConfigError, JobError: see `for_command_line` and `could_not_start`.
    """
    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(for_command_line(settings).items()))
    try:
        gateway = None if said is None else launch_gateway(conf, {"stderr": said})
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    except PySparkRuntimeError as error:
        raise could_not_start(settings, error, "" if said is None else _end_of(said)) from error


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:])


def _context(settings: Mapping[str, str], given: SparkSettings) -> SparkContext:
    """The context with these settings, of which `given` are those that the configuration has.

    Raises:
        ConfigError: see `resolved` and `refused_settings`.
    """
    make_folder(settings, SparkContext._jvm)
    with refused_settings(given.options):
        return SparkContext.getOrCreate(SparkConf().setAll(list(resolved(settings).items())))


def app_name(assignment: Assignment) -> str:
    """The container's name among Spark's applications."""
    return f"grete {assignment.job} container {assignment.container_id}"


def kafka_system_of(assignment: Assignment) -> str | None:
    """A system that Spark's connector to Kafka is there for; None where the coordinator's is the only one.

    `build` names its outputs only once there is a session.
    """
    settings = Settings.of(assignment.config)
    known = {*(ssp.system for ssp in assignment.ssps), *(one.system for one in settings.task.outputs)}
    names = [name for name in settings.system_names if name in known or name != settings.coordinator.system]
    return next((name for name in names if settings.system(name).capabilities.spark_connector), None)


def build_context(app_name: str, config: Mapping[str, str]) -> SparkContext:
    """Start (or get) the context of StreamTasks, which need nothing of Spark SQL; see `context_settings`.

    A session is 60 MB and at least 1.5 s of a processor more at each start.

    Raises:
        ConfigError, JobError: see `could_not_start` and `refused_settings`.
    """
    settings = context_settings(app_name, config)
    given = Settings.of(config).spark
    _start_jvm(settings)
    context = _context(settings, given)
    context.setLogLevel(_log_level(config))
    _await_executors(context, given)
    return context


def start_context(config: Mapping[str, str]) -> None:
    """Start the context that containers of this process take over, ahead of them; it has the job's name.

    Raises:
        ConfigError, JobError: as `build_session`.
    """
    settings = Settings.of(config)
    name = f"grete {settings.job.id.shown}"
    if not settings.job.is_pipeline:
        build_context(name, config)
        return
    _context(_jvm_started(name, config), settings.spark)


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


def executors(context: SparkContext) -> int:
    """The executors that have begun, without the driver."""
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def _log_level(config: Mapping[str, str]) -> str:
    return Settings.of(config).spark.options.get("spark.log.level", "WARN")
