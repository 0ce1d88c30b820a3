"""One streaming query: started, watched, stopped at a batch boundary."""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from grete.container.control import Ended, Interruption
from grete.errors import (
    ApplicationError,
    ConfigError,
    Fenced,
    GreteError,
    JobError,
    LogUnreachable,
    OffsetOutOfRange,
    OffsetsRemoved,
    ProcessingError,
    StreamUnreachable,
)
from grete.model.ending import failure_of, note, noted_in
from grete.spark.offset_log import read_batch_end
from grete.spark.session import EXIT_OUT_OF_MEMORY
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.ranges import SourceOffsets

_log = logging.getLogger(__name__)
_WATCH_INTERVAL_S = 0.2

RunBatch = Callable[[DataFrame, int, SourceOffsets], BatchOutcome]


class _StopRequested(Exception):
    """Raised into Spark to end the query between two batches."""


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """How the query runs: until what is there is consumed, or for ever with a batch every `interval_ms`.

    `system` is the one that it reads from. `keep_workers_every_s` is well below the minute after which Spark ends
    Python workers that are not used (PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS, which no setting changes).
    """

    checkpoint: Path
    system: str
    until_drained: bool
    interval_ms: int
    output_mode: str = "append"
    keep_workers_every_s: float = 20.0


class Query:
    """Runs batches until drained, stopped or failed."""

    def __init__(self, run_batch: RunBatch, settings: QuerySettings, stop: Interruption) -> None:
        self._run_batch = run_batch
        self._settings = settings
        self._stop = stop
        self._shutdown = False
        self._interrupted = False
        self._ending = False
        self._in_batch = threading.Lock()
        self._failure: BaseException | None = None
        self._kept_s = time.monotonic()
        self.on_at_work: Callable[[], None] = lambda: None
        self.on_outcome: Callable[[int, BatchOutcome], None] = lambda batch_id, outcome: None
        self.keep_workers: Callable[[], object] = lambda: None
        """Called between batches, and never beside one, so that Spark has a use for its Python workers."""

    def _for_each_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._in_batch:
            if self._ending or self._shutdown or self._stop.is_set():
                self._interrupted = not self._shutdown
                self._failure = _StopRequested()
                raise self._failure
            try:
                end = read_batch_end(self._settings.checkpoint, batch_id, self._settings.system)
                outcome = self._run_batch(batch, batch_id, end)
            except BaseException as error:
                # Spark turns it into text; keep the object, so that the container can tell fencing from poison
                self._failure = error
                raise
            self.on_outcome(batch_id, outcome)
            self._shutdown = self._shutdown or outcome.shutdown_all

    def run(self, spark: SparkSession, frame: DataFrame) -> Ended:
        """Start the query and return when it is drained, interrupted, or a task has asked for the end.

        Raises:
            GreteError: what the batch raised (Fenced, ProcessingError, ...).
            JobError: Spark failed, or its JVM died.
        """
        writer = (
            frame.writeStream.foreachBatch(self._for_each_batch)
            .outputMode(self._settings.output_mode)
            .option("checkpointLocation", str(self._settings.checkpoint))
        )
        if self._settings.until_drained:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._settings.interval_ms} milliseconds")
        try:
            query = writer.start()
            self._watch(spark, query)
        except StreamingQueryException as error:
            self._explain(error)
        except AnalysisException as error:
            raise ApplicationError(f"Spark refuses the plan: {error}") from error
        except (Py4JError, OSError) as error:
            raise _jvm_failed(spark, error) from error
        if self._shutdown:
            return Ended.SHUTDOWN
        return Ended.INTERRUPTED if self._interrupted else Ended.DRAINED

    def _watch(self, spark: SparkSession, query: StreamingQuery) -> None:
        """Wait for the end; stop between batches when asked; notice a JVM that died."""
        process = getattr(spark.sparkContext._gateway, "proc", None)
        is_at_work = False
        while not query.awaitTermination(_WATCH_INTERVAL_S):
            if process is not None and process.poll() is not None:
                raise _jvm_ended(process.returncode)
            if self._shutdown or self._stop.is_set():
                self._end(query)
                return
            if not is_at_work and _has_begun(query):
                is_at_work = True
                self.on_at_work()
            self._keep_workers()

    def _keep_workers(self) -> None:
        now_s = time.monotonic()
        if now_s - self._kept_s < self._settings.keep_workers_every_s:
            return
        self._kept_s = now_s
        if self._in_batch.acquire(blocking=False):  # else a batch uses them
            try:
                self.keep_workers()
            finally:
                self._in_batch.release()

    def _end(self, query: StreamingQuery) -> None:
        """Let the batch at work end, and none begin.

        Spark's stop waits for its thread, and that may be about to hand over a batch: it must find the lock free.
        For whatever else may hold that thread, the session limits the wait.
        """
        with self._in_batch:
            self._ending = True
        query.stop()
        self._interrupted = not self._shutdown

    def _explain(self, error: StreamingQueryException) -> None:
        failure = self._failure
        if isinstance(failure, _StopRequested):
            return
        if isinstance(failure, GreteError):
            raise failure
        text = str(error) if failure is None else str(failure)
        reason = executor_error(text)
        if reason is None:
            way_out = f"{_TOO_LARGE}: " if any(words in text for words in _NO_ROOM) else ""
            reason = JobError(f"{way_out}the streaming query failed: {text[:4000]}")
            if not way_out:
                note(reason, noted_in(text) or failure_of(failure or error))
        raise reason from error


_NO_ROOM = ("OutOfMemoryError", "spark.driver.maxResultSize")
_TOO_LARGE = (
    "a batch was too large for Spark's driver (OutOfMemoryError, or spark.driver.maxResultSize). Lower "
    "task.max.records.per.batch or task.max.bytes.per.batch, which a DataFrame pipeline follows from the batch after "
    "the planned one on, or raise spark.driver.memory"
)
_JVM_END_S = 10.0


def _jvm_failed(spark: SparkSession, error: Exception) -> JobError:
    """The error of a Spark that did not answer: mostly its JVM is ending."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is not None and not isinstance(error, Py4JJavaError):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return _jvm_ended(process.wait(_JVM_END_S))
    return JobError(f"Spark did not do what it was asked to, or its JVM is gone: {error!r}")


def _jvm_ended(code: int) -> JobError:
    if code == EXIT_OUT_OF_MEMORY:
        return JobError(f"{_TOO_LARGE}: Spark's JVM ended with code {code}")
    return JobError(f"Spark's JVM ended with code {code}")


def _has_begun(query: StreamingQuery) -> bool:
    """Whether it has looked for input: before that it reads its logs and asks where the input begins."""
    status = query.status
    return bool(status["isTriggerActive"]) or str(status["message"]).startswith("Waiting")


_MARKER = "grete.errors."
_KINDS: dict[str, type[GreteError]] = {
    kind.__name__: kind
    for kind in (
        ApplicationError,
        ConfigError,
        ProcessingError,
        LogUnreachable,
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
