"""Sessions in a Spark context that runs already, which others share: nothing of the context or of theirs changes.

A session of grete's own has settings of its own (`spark.sql.*`). Every other setting is the context's, for all
sessions: what the job asks for and a running context has otherwise is refused. Defaults of grete's are not applied.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from grete.config.key_tables.streams import SPARK_MASTER
from grete.config.redact import redact_value
from grete.config.settings.spark import SparkSettings
from grete.errors import ConfigError
from grete.spark.jvm import (
    conf_of,
    default_session,
    hadoop_configuration,
    java_session,
    java_sessions,
    jvm_of,
)
from grete.spark.session.kafka_connector import check_version, no_connector
from grete.spark.session.referring_settings import resolved
from grete.spark.session.worker_python import VARIABLE

OF_SESSIONS = ("spark.sql.", "spark.databricks.")
_LISTS = ("spark.jars", "spark.jars.packages", "spark.files", "spark.archives", "spark.sql.extensions")
"""A context may have more of them than the job needs."""
_OF_HADOOP = "spark.hadoop."
_PYTHON = "spark.pyspark.python"
_IGNORED = ("spark.app.name", "spark.log.level")
"""The program's own."""


def of_sessions(jvm: Any, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that each session has for itself."""
    is_static = jvm.org.apache.spark.sql.internal.SQLConf.isStaticConfigKey
    return {
        key: value for key, value in settings.items() if key.startswith(OF_SESSIONS) and not is_static(key)
    }


def new_session(context: SparkContext, settings: Mapping[str, str]) -> SparkSession:
    """A session of its own in the context, with these settings of sessions. Tables and global views are shared.

    The context's default session is its program's. Where there is none yet, it gets one without these settings.
    """
    default = default_session()
    if default is None or default.sparkContext is not context:
        default = SparkSession(context)
    session = default.newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def make_active(session: SparkSession) -> None:
    """Let Spark take it for the session of this thread. The one of the program, `SparkSession.active`, stays."""
    java_sessions(session).setActiveSession(java_session(session))


def check_context(context: SparkContext, given: SparkSettings, needed: Mapping[str, str]) -> None:
    """Whether the context has what the job's configuration asks for, and what is `needed` for right results.

    Raises:
        ConfigError: it has not; names each key, the two values and the ways out.
    """
    of_each = of_sessions(jvm_of(context), given.options)
    asked = {key: value for key, value in given.options.items() if key not in of_each}
    problems = list(_differences(context, resolved({**asked, **needed})))
    if not problems and context.master.startswith("local") is not given.is_local:
        problems.append(f"{SPARK_MASTER.name} is {context.master!r} there, and {given.master!r} by default")
    problems += _of_workers(context)
    if problems:
        raise ConfigError(
            f"this process runs a Spark context of its own, and a running context takes no other settings: "
            f"{'; '.join(problems)}. Start the context with these values (SparkSession.builder.config), or set the "
            f"job's keys to those of the context or remove them, or let containers run in processes of their own "
            f"(grete run)"
        )


def _differences(context: SparkContext, asked: Mapping[str, str]) -> Iterator[str]:
    for key, value in asked.items():
        found = _running(context, key)
        if key not in _IGNORED and not _is_met(key, value, found):
            shown = "not set" if found is None else repr(redact_value(key, found))
            yield f"{key} is {shown} there, and the job needs {redact_value(key, value)!r}"


def _running(context: SparkContext, key: str) -> str | None:
    """The value of the context: as it was set, else Spark's default."""
    if key == _PYTHON:
        return str(context.pythonExec)
    found: str | None = conf_of(context).get(key)
    if found is None and key.startswith(_OF_HADOOP):
        found = hadoop_configuration(context).get(key.removeprefix(_OF_HADOOP))
    if found is None:
        jvm: Any = jvm_of(context)
        entry = jvm.org.apache.spark.internal.config.ConfigEntry.findEntry(key)
        found = None if entry is None else str(entry.defaultValueString())
    return found


def _of_workers(context: SparkContext) -> Iterator[str]:
    """Spark takes the first `python3` of the path where nothing names an interpreter; it may lack our packages."""
    found = shutil.which(str(context.pythonExec))
    is_here = found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve()
    if VARIABLE not in os.environ and context.master.startswith("local") and not is_here:
        yield (
            f"its workers run {found or context.pythonExec}, and this program {sys.executable}, whose packages they "
            f"need: set {VARIABLE} to it before the context starts"
        )


def _is_met(key: str, asked: str, found: str | None) -> bool:
    if found is None:
        return not asked
    if key in _LISTS:
        return _names(asked) <= _names(found)
    return asked.strip() == found.strip() or asked.strip().lower() == found.lower() in ("true", "false")


def _names(items: str) -> set[str]:
    """The last part of each address: Spark moves files about, and names them anew."""
    return {os.path.basename(item.strip()) for item in items.split(",") if item.strip()}


def check_connector(session: SparkSession, kafka_system: str, spark_version: str) -> None:
    """Whether the session finds Spark's connector to Kafka, of Spark's own version.

    Raises:
        ConfigError: it does not; with the ways out.
    """
    jvm: Any = jvm_of(session)
    sources = jvm.org.apache.spark.sql.execution.datasources.DataSource
    conf = java_session(session).sessionState().conf()
    try:
        found = sources.lookupDataSource("kafka", conf)
    except (AnalysisException, Py4JJavaError) as error:
        raise no_connector(kafka_system, spark_version) from error
    with suppress(Py4JJavaError):  # of a class that is in no file
        place = found.getProtectionDomain().getCodeSource().getLocation().getPath()
        check_version(os.path.basename(place), spark_version)
