"""The Spark session or context of a container: the job's `spark.*` settings over safe defaults that start quickly."""

from __future__ import annotations

import logging
import os
import re
import shlex
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from grete.config.settings import Settings
from grete.config.settings.spark import SparkSettings, local_cores
from grete.container.assignment import Assignment
from grete.errors import GreteError
from grete.spark.java import quick_starts, rename_without_programs
from grete.spark.kafka_connector import connector_settings, could_not_start
from grete.spark.kafka_options import REDACTED_OPTIONS
from grete.spark.libraries import output_settings
from grete.spark.referring_settings import for_command_line, resolved
from grete.spark.refused_settings import refused_settings
from grete.spark.versions import class_archive
from grete.spark.worker_python import VARIABLE, application_python, worker_python
from grete.spark.worker_sockets import make_folder, socket_settings

_log = logging.getLogger("grete.container")
EXIT_OUT_OF_MEMORY = 3
"""How a JVM ends that has no memory left; one that went on without could do anything."""
_NOT_FOR_SHARES = {
    "spark.speculation": "each second attempt at a share of StreamTasks would end the first",
    "spark.dynamicAllocation.enabled": "a share takes a core for as long as it runs, and an epoch has as many as "
    "there are cores when it begins; say how many there shall be with spark.executor.instances or spark.cores.max",
}
"""Switched off, whatever is configured, and why."""
STAGE_ATTEMPTS = "spark.stage.maxConsecutiveAttempts"
_ARCHIVE = "-XX:SharedArchiveFile"
_WORKER_DAEMON = "grete.spark.worker_daemon"
_SCHEDULING_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.master.rest.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),  # in digits: its workers take no other
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stopTimeout": "120s",  # Spark's own default is to wait for ever
    "spark.sql.redaction.options.regex": REDACTED_OPTIONS,
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|sensitive|sas|jaas|credential",
}


_ON_THIS_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",  # with a secret that Spark draws and keeps to itself
}
"""Further defaults on a local master."""
_ON_A_CLUSTER = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "30s",
}
"""Further defaults elsewhere: shares, shuffles and the look at executors begin with all that were asked for."""
_NO_CLUSTER = {"spark.master": "local[1]"}
_SHOWN_LINES = 12
_EXECUTORS_S, _QUIET_S, _LOOK_S = 30.0, 1.0, 0.1
_PYTHON = "spark.pyspark.python"
"""Read by spark-submit alone, which sets the variable."""
_PARTITIONS = "spark.sql.shuffle.partitions"
_MEMORY = re.compile(r"(\d+)([kmgt]?)b?")
_KIB = {"k": 1, "": 1024, "m": 1024, "g": 1024**2, "t": 1024**3}
"""KiB of a unit; Spark takes a number without one for MiB."""
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
    builder = SparkSession.builder
    for key, value in resolved(settings).items():
        builder = builder.config(key, value)
    with refused_settings(Settings.of(config).spark.options):
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel(_log_level(config))
        if not Settings.of(config).job.has_lineages_on_hadoop:
            rename_without_programs(session)
    _await_executors(session.sparkContext, Settings.of(config).spark)
    if _PARTITIONS not in settings:
        session.conf.set(_PARTITIONS, str(session.sparkContext.defaultParallelism))
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
    make_folder(settings, SparkContext._jvm)


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:])


def _context(settings: Mapping[str, str], given: SparkSettings) -> SparkContext:
    """The context with these settings, of which `given` are those that the configuration has.

    Raises:
        ConfigError: see `resolved` and `refused_settings`.
    """
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


def context_settings(app_name: str, config: Mapping[str, str]) -> dict[str, str]:
    """The settings with which the context of StreamTasks starts; see `_settings`.

    The driver's JVM schedules and touches no record, so unless `spark.driver.extraJavaOptions` is set its code is
    compiled quickly rather than well. `_NOT_FOR_SHARES` is off, whatever is configured, here or for the cluster.
    """
    settings = _settings(app_name, config, None, java=_SCHEDULING_JVM)
    for key, reason in _NOT_FOR_SHARES.items():
        if settings.get(key, "false") != "false":
            _log.warning("%s=%s is ignored: %s", key, settings[key], reason)
    return settings | dict.fromkeys(_NOT_FOR_SHARES, "false")


def session_settings(
    app_name: str, config: Mapping[str, str], kafka_system: str | None = None
) -> dict[str, str]:
    """The settings with which the session of a pipeline starts; see `_settings`.

    Unless `spark.driver.extraJavaOptions` is set, or the environment names another one for every JVM of Spark's, the
    driver's starts from the archive of its classes, where it was made (`grete.spark.class_archive`). Unless
    `spark.python.daemon.module` is, its workers on this machine are forked from `grete.spark.worker_daemon`.
    """
    archive, is_named = class_archive(), _ARCHIVE in os.environ.get("SPARK_SUBMIT_OPTS", "")
    java = shlex.quote(f"{_ARCHIVE}={archive}") if archive.exists() and not is_named else ""
    settings = _settings(app_name, config, kafka_system, java=java)
    if local_cores(settings["spark.master"]) is not None:
        settings.setdefault("spark.python.daemon.module", _WORKER_DAEMON)
    return settings


def _log_level(config: Mapping[str, str]) -> str:
    return Settings.of(config).spark.options.get("spark.log.level", "WARN")


def _settings(
    app_name: str, config: Mapping[str, str], kafka_system: str | None, *, java: str
) -> dict[str, str]:
    """The settings that Spark starts with. Executors run the interpreter that runs us, so that packages are the same.

    With `kafka_system` there is the connector to Kafka (`grete.spark.kafka_connector`). On a local master Spark then
    repeats no task, since rows of a first attempt would stay in a transaction (`spark.sinks.kafka_senders`).

    Spark's ports ask who comes: on a local master by itself, elsewhere as the cluster's own configuration says, since
    all its processes share the secret, and one given here would stand in a command line.

    A shuffle gets as many partitions as there are cores: Spark's default of 200 costs a streaming aggregation over
    ten keys more in task starts than in work. Where the cluster decides how many cores there are, `build_session`
    asks it.
    """
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _SCHEDULING_JVM)  # it makes a command line, and ends
    given = Settings.of(config)
    settings = _DEFAULTS | _where(given.spark) | given.spark.options | {"spark.app.name": app_name}
    named = {VARIABLE: settings[_PYTHON]} if _PYTHON in settings else {}
    os.environ |= worker_python(settings["spark.master"], {**os.environ, **named})
    if given.spark.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= socket_settings(settings)
        if kafka_system is not None:
            settings.setdefault(STAGE_ATTEMPTS, "1")
    if given.spark.cores is not None:
        settings.setdefault(_PARTITIONS, str(given.spark.cores))
    if kafka_system is not None:
        settings |= connector_settings(
            settings,
            given.system(kafka_system).connector_jars,
            spark_version=pyspark.__version__,
            spark_jars=_spark_jars(),
        )
    settings |= output_settings(given, settings, _spark_jars())
    settings.setdefault("spark.driver.maxResultSize", _most_results(settings["spark.driver.memory"]))
    java = quick_starts(settings.get("spark.driver.extraJavaOptions", java), os.environ, _spark_jars().parent)
    settings["spark.driver.extraJavaOptions"] = f"{java} -XX:+ExitOnOutOfMemoryError".strip()
    return settings


def _most_results(memory: str) -> str:
    """Half of the driver's memory, a gigabyte at most. Spark says what was too large, a full heap does not."""
    found = _MEMORY.fullmatch(memory.strip().lower())
    return "1g" if found is None else f"{max(1, min(1024, int(found[1]) * _KIB[found[2]] // 2048))}m"


def _where(spark: SparkSettings) -> dict[str, str]:
    """Defaults that depend on where executors are."""
    if spark.is_local:
        return _ON_THIS_MACHINE
    host = _address_towards(spark.master)
    return _ON_A_CLUSTER if host is None else {**_ON_A_CLUSTER, "spark.driver.host": host}


def _address_towards(master: str) -> str | None:
    """The address of this machine on the way to the master, by which executors beside it reach us; None if unknown.

    What the machine's own name resolves to, which Spark would take, is often a loopback address, or none at all.
    """
    found = re.search(r"://\[?([^/,\]]+?)\]?:(\d+)", master.removeprefix("k8s://"))
    if found is None:
        return None
    with suppress(OSError):
        kind, _, _, _, address = socket.getaddrinfo(found[1], int(found[2]), type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as towards:
            towards.connect(address)  # sends nothing
            own: str = towards.getsockname()[0]
            return own
    return None


def _spark_jars() -> Path:
    """Where Spark's own jars are."""
    return Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent)) / "jars"
