"""Spark in a program of somebody else's (`grete.StreamProcessor`): as before, when the last processor has ended.

A context that the program runs goes on. One that containers have started ends with the last processor, and its JVM
with it, whose settings would else be those of whatever Spark the program starts then.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from subprocess import TimeoutExpired
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from grete.spark.jvm import context_of_process, java_sessions, put_back, sessions_of_python
from grete.spark.session.driver import stop_what_was_started

_log = logging.getLogger("grete.processor")
_LOCK = threading.Lock()
_OF_CONTEXTS = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
"""Variables that PySpark sets when a context starts."""
Variables = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class _Sessions:
    """What a program's own calls of `SparkSession.builder.getOrCreate` and `SparkSession.active` give."""

    context: SparkContext | None
    default: SparkSession | None
    active: SparkSession | None
    default_of_jvm: Any
    variables: Variables

    @classmethod
    def of_now(cls) -> _Sessions:
        """Those that are there."""
        context = context_of_process()
        found = None if context is None else java_sessions(context).getDefaultSession()
        return cls(
            context,
            *sessions_of_python(),
            found.get() if found is not None and found.isDefined() else None,
            {name: os.environ.get(name) for name in _OF_CONTEXTS},
        )

    def restore(self) -> None:
        """Nothing where the program has stopped its context, or begun another, meanwhile."""
        if self.default is None or self.context is None or self.context is not context_of_process():
            return  # one that was made meanwhile has Spark's own settings, and the program may have it
        put_back((self.default, self.active))
        if self.default_of_jvm is None:
            java_sessions(self.context).clearDefaultSession()
        else:
            java_sessions(self.context).setDefaultSession(self.default_of_jvm)

    def restore_variables(self) -> None:
        """Those of the environment that PySpark has set."""
        for name, value in self.variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_before: dict[int, _Sessions] = {}
"""Of each processor that has worked with Spark, the first one first; jobs may have processors of one name."""


def take_part(processor: object) -> None:
    """Called before a container of a processor begins; any number of times."""
    with _LOCK:
        _before.setdefault(id(processor), next(iter(_before.values()), _Sessions.of_now()))


def leave(processor: object) -> None:
    """Called when a processor has ended; after the last one everything is as before the first."""
    with _LOCK:
        before = _before.pop(id(processor), None)
        if before is None or _before:
            return
        try:
            if before.context is None:
                stop_what_was_started()
                before.restore_variables()
            before.restore()
        except (Py4JError, PySparkException, OSError, TimeoutExpired) as error:
            _log.warning("Spark could not be left as it was: %s", error)
