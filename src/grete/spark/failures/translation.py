"""Failures of Spark and of its workers, as errors of grete."""

from __future__ import annotations

import contextlib
import re
import subprocess

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from grete.errors import (
    ApplicationError,
    CheckpointsMoved,
    ConfigError,
    ContainerGone,
    Fenced,
    GreteError,
    JobError,
    LoginRefused,
    LogUnreachable,
    OffsetOutOfRange,
    OffsetsRemoved,
    ProcessingError,
    StorageFull,
    StreamUnreachable,
)
from grete.model.ending import failure_of, note, noted_in
from grete.spark.failures.error_classes import refused
from grete.spark.failures.failed_functions import place_of_failure, raised_by_function
from grete.spark.jvm import gateway_of
from grete.spark.session.container_session import EXIT_OUT_OF_MEMORY
from grete.text_logs import shortened

_NO_ROOM = ("OutOfMemoryError", "spark.driver.maxResultSize")
_TOO_LARGE = (
    "a batch was too large for Spark's driver (OutOfMemoryError, or spark.driver.maxResultSize). Lower "
    "task.max.records.per.batch or task.max.bytes.per.batch, which a DataFrame pipeline follows from the batch after "
    "the planned one on, or raise spark.driver.memory"
)
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
_JVM_END_S = 10.0
_WORKER_ENDED = re.compile(r"\((\S+) executor (\S+)\): \S+: Python worker exited unexpectedly")


def failed(
    error: BaseException,
    context: SparkContext | None = None,
    *,
    has_worked: bool = False,
    checkpoint: str = "",
) -> GreteError:
    """The error behind one of Spark: of the application or of grete where a worker raised it.

    With the context of a pipeline an error of one of its functions is explained, see `raised_by_function`. What
    another start would meet again: see `grete.spark.failures.error_classes`.
    """
    text = str(error)
    reason = executor_error(text) or _no_room(text)
    if reason is None and context is not None:
        reason = raised_by_function(text, lambda: place_of_failure(context), has_worked=has_worked)
    reason = reason or refused(text_with_traces(error), checkpoint, has_worked=has_worked)
    if reason is None:
        way_out = f"{_TOO_LARGE}: " if any(words in text for words in _NO_ROOM) else ""
        reason = JobError(f"{way_out}{_ended_worker(text)}Spark failed: {shortened(text, 4000)}")
        if not way_out:
            note(reason, noted_in(text) or failure_of(error))
    return reason


def text_with_traces(error: BaseException) -> str:
    """Its text, and the traces of Java's exceptions behind it, which alone say why a file could not be read."""
    traces = error._stackTrace if isinstance(error, CapturedException) else None
    return f"{error}\n{traces}" if traces else str(error)


def _ended_worker(text: str) -> str:
    """Where a Python worker has ended in each attempt at a task, and what to look at; nothing where none has."""
    found = _WORKER_ENDED.search(text)
    if found is None:
        return ""
    return (
        f"a Python process on {found[1]} ended in the middle of its work, each time that it was tried, as by a "
        f"crash, os._exit or for want of memory; see what it has said in the log of executor {found[2]}. "
    )


def _no_room(text: str) -> StorageFull | None:
    """A disk on which Spark has written: an output's, that of its checkpoint, or of its own files."""
    line = next(
        (line.strip() for line in text.splitlines() if any(words in line for words in _DISK_FULL)), ""
    )
    return StorageFull(f"no room for what Spark writes: {shortened(line, 500)}; free space") if line else None


def job_failed(context: SparkContext, error: Py4JError | PySparkException | OSError) -> GreteError:
    """The error behind a Spark job that did not come to its end."""
    if isinstance(error, (Py4JJavaError, PySparkException)):
        return failed(error)
    return jvm_failed(context, error)


def jvm_failed(context: SparkContext, error: Exception) -> JobError:
    """The error of a Spark that did not answer: mostly its JVM is ending."""
    process = getattr(gateway_of(context), "proc", None)
    if process is not None and not isinstance(error, Py4JJavaError):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return jvm_ended(process.wait(_JVM_END_S))
    return JobError(f"Spark did not do what it was asked to, or its JVM is gone: {error!r}")


def jvm_ended(code: int) -> JobError:
    """The error of a Spark whose JVM has ended."""
    if code == EXIT_OUT_OF_MEMORY:
        return JobError(f"{_TOO_LARGE}: Spark's JVM ended with code {code}")
    return JobError(f"Spark's JVM ended with code {code}")


_MARKER = "grete.errors."
_KINDS: dict[str, type[GreteError]] = {
    kind.__name__: kind
    for kind in (
        ApplicationError,
        CheckpointsMoved,
        ConfigError,
        ContainerGone,
        ProcessingError,
        LoginRefused,
        LogUnreachable,
        StorageFull,
        StreamUnreachable,
        OffsetOutOfRange,
        OffsetsRemoved,
    )
}
"""Errors that make a difference to the container; any other that executors raise ends it."""
_FENCED = re.compile(r"epoch (\d+) of '(.*)' is fenced: epoch (\d+)")


def executor_error(text: str) -> GreteError | None:
    """The grete error inside the text of an exception that came from a Python worker through the JVM."""
    for line in text.splitlines():
        head, marker, rest = line.partition(_MARKER)
        if marker and not head.strip().startswith("File"):
            name, _, message = rest.partition(": ")
            fenced = _FENCED.search(message) if name == "Fenced" else None
            if fenced is not None:
                return Fenced(fenced[2], epoch=int(fenced[1]), seen=int(fenced[3]))
            found = _KINDS.get(name, JobError)(message.strip())
            failure = noted_in(text)
            if failure is not None:
                note(found, failure)
            return found
    return None
