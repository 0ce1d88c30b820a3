"""The settings with which Spark starts: the job's `spark.*` over safe defaults that start quickly."""

from __future__ import annotations

import logging
import os
import re
import shlex
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from grete.config.settings import Settings
from grete.config.settings.spark import INSTANCES, SparkSettings, local_cores
from grete.config.time_zone import BEFORE, TIME_ZONE
from grete.environment import POD_IP, POD_NAME
from grete.spark.session.defaults import (
    ALWAYS,
    DAEMON,
    EXECUTOR_JAVA_DEFAULTS,
    JAVA_OPTIONS,
    MOST_RESULTS,
    NOT_FOR_SHARES,
    ON_A_CLUSTER,
    ON_THIS_MACHINE,
    PARTITIONS,
    STAGE_ATTEMPTS,
    values,
)
from grete.spark.session.java_options import quick_starts
from grete.spark.session.kafka_connector import connector_settings
from grete.spark.session.libraries import output_settings
from grete.spark.session.versions import ARCHIVE, class_archive, takes_class_archive
from grete.spark.session.worker_python import VARIABLE, worker_python
from grete.spark.session.worker_sockets import socket_settings

_log = logging.getLogger("grete.container")
_WORKER_DAEMON = "grete.spark.worker_daemon"
_QUICK_CODE = "-XX:TieredStopAtLevel=1"
_SCHEDULING_JVM = f"{_QUICK_CODE} -XX:+UseSerialGC"
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"
_PYTHON = "spark.pyspark.python"
"""Read by spark-submit alone, which sets the variable."""
_MEMORY_OF_SPARK = "1g"
_MEMORY = re.compile(r"(\d+)([kmgt]?)b?")
_KIB = {"k": 1, "": 1024, "m": 1024, "g": 1024**2, "t": 1024**3}
"""KiB of a unit; Spark takes a number without one for MiB."""


def context_settings(app_name: str, given: Settings) -> dict[str, str]:
    """The settings with which the context of StreamTasks starts; see `_settings`.

    JVMs schedule and touch no record, so their code is compiled quickly rather than well: the driver's unless
    `spark.driver.extraJavaOptions` is set, those of executors unless theirs say otherwise. `NOT_FOR_SHARES` is off,
    whatever is configured, here or for the cluster.
    """
    settings = _settings(app_name, given, None, java=_SCHEDULING_JVM, executor_java=_QUICK_CODE)
    for key, off in NOT_FOR_SHARES.items():
        if settings.get(key, off.value) != off.value:
            _log.warning("%s=%s is ignored: %s", key, settings[key], off.reason)
    return settings | values(NOT_FOR_SHARES)


def session_settings(app_name: str, given: Settings, kafka_system: str | None = None) -> dict[str, str]:
    """The settings with which the session of a pipeline starts; see `_settings`.

    Unless `spark.python.daemon.module` is set, its workers on this machine are forked from
    `grete.spark.worker_daemon`.
    """
    settings = _settings(app_name, given, kafka_system)
    if local_cores(settings["spark.master"]) is not None:
        settings.setdefault(DAEMON, _WORKER_DAEMON)
    settings.setdefault(TIME_ZONE, BEFORE)
    if (decided := given.autosizing.executors) is not None:
        settings[INSTANCES] = str(decided)  # a restart begins with what was decided
    return settings


def _archived(*said: str) -> str:
    """The option by which a JVM starts from the archive of `grete.spark.class_archive`: a context in 1.9 s, not 2.8.

    Empty where it was not made, and where what is `said` to the JVM keeps it from that. Java goes on without one that
    is not there, or does not suit the other options.
    """
    archive = class_archive()
    is_taken = archive.exists() and takes_class_archive(*said)
    return shlex.quote(f"{ARCHIVE}={archive}") if is_taken else ""


def _settings(
    app_name: str, given: Settings, kafka_system: str | None, *, java: str = "", executor_java: str = ""
) -> dict[str, str]:
    """The settings that Spark starts with: the job's, over those of `grete.spark.session.defaults`.

    With `kafka_system` there is the connector to Kafka (`kafka_connector`). On a local master Spark then
    repeats no task, since rows of a first attempt would stay in a transaction (`spark.sinks.kafka_senders`).

    Spark's ports ask who comes: on a local master by itself, elsewhere as the cluster's own configuration says, since
    all its processes share the secret, and one given here would stand in a command line.

    A shuffle gets as many partitions as there are cores: Spark's default of 200 costs a streaming aggregation over
    ten keys more in task starts than in work. Where the cluster decides how many cores there are, `build_session`
    asks it.

    The driver's JVM starts with `java`, unless `spark.driver.extraJavaOptions` is set, those of executors with
    `executor_java` before what else is said to them; all from the archive of Spark's classes, see `_archived`.
    """
    settings = values(ALWAYS) | _where(given.spark) | given.spark.options | {"spark.app.name": app_name}
    if given.spark.is_local:
        settings |= socket_settings(settings)
        if kafka_system is not None:
            settings.setdefault(STAGE_ATTEMPTS, "1")
    if given.spark.cores is not None:
        settings.setdefault(PARTITIONS, str(given.spark.cores))
    if kafka_system is not None:
        settings |= connector_settings(
            settings,
            given.system(kafka_system).connector_jars,
            spark_version=pyspark.__version__,
            spark_jars=_spark_jars(),
        )
    settings |= output_settings(given, settings, _spark_jars())
    settings.setdefault(MOST_RESULTS, _most_results(settings.get("spark.driver.memory", _MEMORY_OF_SPARK)))
    java = settings.get(JAVA_OPTIONS, java)
    java = f"{_archived(java, os.environ.get('SPARK_SUBMIT_OPTS', ''))} {java}".strip()
    java = quick_starts(java, os.environ, _spark_jars().parent)
    settings[JAVA_OPTIONS] = f"{java} -XX:+ExitOnOutOfMemoryError".strip()
    executor_java = f"{_archived(settings.get(_EXECUTOR_JAVA, ''))} {executor_java}".strip()
    if executor_java and not given.spark.is_local:
        settings.setdefault(EXECUTOR_JAVA_DEFAULTS, executor_java)
    return settings


def driver_environment(
    settings: Mapping[str, str], environment: Mapping[str, str], *, has_jvm: bool
) -> dict[str, str]:
    """The variables of the driver's process while its JVM and its context start with these settings.

    Executors run the interpreter that runs us, so that packages are the same. `has_jvm`: see `worker_python`.
    """
    found = {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LAUNCHER_OPTS": _SCHEDULING_JVM,  # it makes a command line, and ends
    }
    if settings["spark.master"].startswith("local"):
        found["SPARK_LOCAL_IP"] = "127.0.0.1"
    named = {VARIABLE: settings[_PYTHON]} if _PYTHON in settings else {}
    workers = worker_python(settings["spark.master"], {**environment, **named}, has_jvm=has_jvm)
    return {**found, **{key: environment[key] for key in found if key in environment}, **workers}


def _most_results(memory: str) -> str:
    """Half of the driver's memory, a gigabyte at most. Spark says what was too large, a full heap does not."""
    found = _MEMORY.fullmatch(memory.strip().lower())
    return "1g" if found is None else f"{max(1, min(1024, int(found[1]) * _KIB[found[2]] // 2048))}m"


def _where(spark: SparkSettings) -> dict[str, str]:
    """Defaults that depend on where executors are."""
    if spark.is_local:
        return values(ON_THIS_MACHINE)
    found = values(ON_A_CLUSTER)
    if pod := os.environ.get(POD_NAME):
        found["spark.kubernetes.driver.pod.name"] = pod  # executors end with it
    if own := os.environ.get(POD_IP):
        return found | {"spark.driver.host": own, "spark.driver.bindAddress": own}
    host = _address_towards(spark.master)
    return found if host is None else {**found, "spark.driver.host": host}


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
