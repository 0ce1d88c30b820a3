"""The JVM of this process and the context in it, as containers start them, and what of the two they have started."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from grete.config.settings import Settings
from grete.environment import WARM_JVM
from grete.spark.jvm import (
    context_of_process,
    default_session,
    forget_jvm,
    gateway_of_process,
    java_conf,
    jvm_of_process,
    reach_jvm,
    start_jvm_of_process,
)
from grete.spark.session.kafka_connector import could_not_start
from grete.spark.session.referring_settings import for_command_line, resolved
from grete.spark.session.refused_settings import refused_settings
from grete.spark.session.running_context import OF_SESSIONS
from grete.spark.session.settings import driver_environment, session_settings
from grete.spark.session.worker_python import INTERPRETER, VARIABLE, application_python
from grete.spark.session.worker_sockets import make_folder

_log = logging.getLogger("grete.spark")
_WARM_WITHIN_S, _WARM_LOOK_S = 60.0, 0.02
_NO_CLUSTER = {"spark.master": "local[1]"}
_SHOWN_LINES = 12
_END_S = 30.0
STARTS = threading.RLock()
"""Held from the look at what runs to the end of a start: PySpark names a context as the active one seconds before it
can be used, and variables of the environment are put back to what they were by one at a time."""


@dataclass(slots=True)
class _Started:
    """What of Spark this module has started in this process."""

    context: SparkContext | None = None
    has_jvm: bool = False


_started = _Started()


def session_of_process(settings: Mapping[str, str], given: Settings) -> SparkSession:
    """The session that everything in this process has, with all settings.

    Raises:
        ConfigError: see `resolved`.
    """
    make_folder(settings, jvm_of_process())
    is_first, builder = context_of_process() is None, SparkSession.builder
    for key, value in resolved(settings).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if is_first:
        _started.context = session.sparkContext
    session.sparkContext.setLogLevel(given.spark.log_level)
    return session


def is_foreign(context: SparkContext | None) -> bool:
    """Whether a context runs in this process that a program of somebody else's has started."""
    return context is not None and context is not _started.context


def stop_what_was_started() -> None:
    """Stop the context of this module, and the JVM if it is from here as well; nothing where there is none."""
    context, _started.context = _started.context, None
    is_running = context is context_of_process()
    if context is not None and is_running:
        default = default_session()
        (context if default is None else default).stop()
    if _started.has_jvm and context_of_process() is None:
        _end_jvm()


def _end_jvm() -> None:
    """Its settings would be those of whatever starts in it next."""
    gateway = gateway_of_process()
    _started.has_jvm = False
    forget_jvm()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # for which it waits
        gateway.proc.wait(timeout=_END_S)


def reach_hadoop(options: Mapping[str, str]) -> tuple[Any, Any]:
    """The JVM of this process, and Hadoop's configuration with these `spark.*` keys, for a command.

    No context starts, so no cluster is asked for anything, and a second is enough. What Spark says by itself is told
    only where its JVM does not start.

    Raises:
        ConfigError, JobError: see `jvm_started` and `resolved`.
    """
    with tempfile.TemporaryFile() as said:
        settings = jvm_started("grete", Settings.of({**options, **_NO_CLUSTER}), said=said)
    jvm: Any = jvm_of_process()
    conf = java_conf(resolved(settings))
    return jvm, jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf)


def jvm_started(
    app_name: str,
    given: Settings,
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
    with STARTS:
        settings = session_settings(app_name, given, kafka_system)
        if gateway_of_process() is None:
            with driver_variables(settings, given):
                before = os.environ[VARIABLE]
                os.environ |= application_python(given.job, is_local=given.spark.is_local)
                try:
                    start_jvm(settings, given, said)
                finally:
                    os.environ[VARIABLE] = before
    return settings


@contextmanager
def driver_variables(settings: Mapping[str, str], given: Settings) -> Iterator[None]:
    """Set what JVM and context start with; in a process that is not grete's it is as before at the end."""
    jvm: Any = jvm_of_process()
    told = None if jvm is None else jvm.java.lang.System.getenv(INTERPRETER)
    known = {**os.environ, **({} if told is None else {INTERPRETER: told})}
    changed = driver_environment(settings, known, has_jvm=jvm is not None)
    before = {name: os.environ.get(name) for name in changed}
    os.environ |= changed
    try:
        yield
    finally:
        for name, value in before.items() if given.job.is_of_processors else ():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def start_jvm(settings: Mapping[str, str], given: Settings, said: IO[bytes] | None = None) -> None:
    """Start the JVM of this process, if there is none, by a command line without secrets. Its log goes to `said`.

    What sessions have for themselves is in it only where one session is all that there is: every context and session
    that starts in the JVM begins with what stands there.

    Raises:
        ConfigError, JobError: see `for_command_line` and `could_not_start`.
    """
    if gateway_of_process() is not None or _reached_warm_jvm():
        return
    named = for_command_line(settings)
    if given.job.is_of_processors:
        named = {key: value for key, value in named.items() if not key.startswith(OF_SESSIONS)}
    conf = SparkConf().setAll(list(named.items()))
    try:
        start_jvm_of_process(conf, said)
    except PySparkRuntimeError as error:
        raise could_not_start(settings, error, "" if said is None else _end_of(said)) from error
    _started.has_jvm = True


def _reached_warm_jvm() -> bool:
    """Whether this process now uses the JVM that `grete dev` keeps for containers; one of its own where it does not
    answer.
    """
    named = os.environ.get(WARM_JVM, "")
    if not named:
        return False
    keeper, _, place = named.partition(":")
    until_s = time.monotonic() + _WARM_WITHIN_S
    while not Path(place).exists():
        if time.monotonic() > until_s or not Path(f"/proc/{keeper}").exists():
            return False
        time.sleep(_WARM_LOOK_S)
    try:
        found = json.loads(Path(place).read_text())
        reach_jvm(found["port"], found["token"])
    except Exception as error:  # noqa: BLE001 - Py4J's errors are of any kind, and a JVM of one's own is as good
        _log.warning("the JVM that is kept for this job does not answer (%s): starting one", error)
        return False
    return True


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:])


def context_with(settings: Mapping[str, str], given: Settings) -> SparkContext:
    """The context with these settings, if none runs.

    Raises:
        ConfigError: see `resolved` and `refused_settings`.
    """
    with STARTS:
        is_first = context_of_process() is None
        make_folder(settings, jvm_of_process())
        with driver_variables(settings, given), refused_settings(given.spark.options):
            context = SparkContext.getOrCreate(SparkConf().setAll(list(resolved(settings).items())))
        if is_first:
            _started.context = context
            context.setLogLevel(given.spark.log_level)
        return context
