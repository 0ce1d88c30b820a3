"""Spark in a program of somebody else's (`grete.StreamProcessor`): as before, when the last processor has ended.

A context that the program runs goes on. One that containers have started ends with the last processor, and its JVM
with it, whose settings would else be those of whatever Spark the program starts then.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from subprocess import TimeoutExpired
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from grete.spark.driver import stop_what_was_started

_log = logging.getLogger("grete.processor")
_LOCK = threading.Lock()
_OF_CONTEXTS = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
"""Variables that PySpark sets when a context starts."""


@dataclass(frozen=True, slots=True)
class _Sessions:
    """What a program's own calls of `SparkSession.builder.getOrCreate` and `SparkSession.active` give."""

    context: SparkContext | None
    default: SparkSession | None
    active: SparkSession | None
    default_of_jvm: Any

    @classmethod
    def of_now(cls) -> _Sessions:
        """Those that are there."""
        context = SparkContext._active_spark_context
        found = None if context is None else _sessions(context).getDefaultSession()
        return cls(
            context,
            SparkSession._instantiatedSession,
            SparkSession._activeSession,
            found.get() if found is not None and found.isDefined() else None,
        )

    def restore(self) -> None:
        """Nothing where the program has stopped its context, or begun another, meanwhile."""
        if self.context is None or self.context is not SparkContext._active_spark_context:
            return
        SparkSession._instantiatedSession, SparkSession._activeSession = self.default, self.active
        if self.default_of_jvm is None:
            _sessions(self.context).clearDefaultSession()
        else:
            _sessions(self.context).setDefaultSession(self.default_of_jvm)


def _sessions(context: SparkContext) -> Any:
    jvm: Any = context._jvm
    return SparkSession._get_j_spark_session_class(jvm)


_before: dict[str, _Sessions] = {}
"""Of each processor that has worked with Spark, the first one first."""


def take_part(processor: str) -> None:
    """Called before a container of a processor begins; any number of times."""
    with _LOCK:
        _before.setdefault(processor, next(iter(_before.values()), _Sessions.of_now()))


def leave(processor: str) -> None:
    """Called when a processor has ended; after the last one everything is as before the first."""
    with _LOCK:
        before = _before.pop(processor, None)
        if before is None or _before:
            return
        try:
            if before.context is None:
                stop_what_was_started()
                for name in _OF_CONTEXTS:
                    os.environ.pop(name, None)
            before.restore()
        except (Py4JError, OSError, TimeoutExpired) as error:
            _log.warning("Spark could not be left as it was: %s", error)
