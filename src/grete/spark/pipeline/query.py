"""One streaming query: started, watched, stopped at a batch boundary."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from grete.container.control import Ended, Interruption
from grete.errors import ApplicationError, GreteError
from grete.spark.failures.translation import failed, jvm_ended, jvm_failed
from grete.spark.jvm import gateway_of
from grete.spark.lineage.location import Location
from grete.spark.lineage.offset_log import read_batch_end
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.ranges import SourceOffsets

_log = logging.getLogger(__name__)
_WATCH_INTERVAL_S = 0.2
_LOOK_EVERY = 5

RunBatch = Callable[[DataFrame, int, SourceOffsets], BatchOutcome]


class _StopRequested(Exception):
    """Raised into Spark to end the query between two batches."""


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """How the query runs: until what is there is consumed, or for ever with a batch every `interval_ms`.

    With `one_batch` it runs the one that is planned already, and no other.
    `sources` are what it reads, `topics` those with another name, see `offset_log.read_batch_end`.
    """

    checkpoint: Location
    sources: tuple[str, ...]
    until_drained: bool
    interval_ms: int
    output_mode: str = "append"
    one_batch: bool = False
    topics: Mapping[str, str] = field(default_factory=dict)


class Query:
    """Runs batches until drained, stopped or failed."""

    def __init__(self, run_batch: RunBatch, settings: QuerySettings, stop: Interruption) -> None:
        self._run_batch = run_batch
        self.settings = settings
        self._stop = stop
        self._shutdown = False
        self._interrupted = False
        self._ending = False
        self._in_batch = threading.Lock()
        self._failure: BaseException | None = None
        self._has_worked = False
        self.on_started: Callable[[], None] = lambda: None
        """Called once, while Spark plans the first batch. A GreteError of it ends the query and is raised."""
        self.on_at_work: Callable[[], None] = lambda: None
        self.on_outcome: Callable[[int, BatchOutcome], None] = lambda batch_id, outcome: None
        self.on_look: Callable[[StreamingQuery], None] = lambda query: None
        """Called about every second while the query runs, and when it has ended, to look at its progress. A
        GreteError of it ends the query and is raised."""

    def _for_each_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._in_batch:
            if self._ending or self._shutdown or self._stop.is_set():
                self._interrupted = not self._shutdown
                self._failure = _StopRequested()
                raise self._failure
            try:
                end = read_batch_end(
                    self.settings.checkpoint, batch_id, self.settings.sources, self.settings.topics
                )
                outcome = self._run_batch(batch, batch_id, end)
            except BaseException as error:
                # Spark turns it into text; keep the object, so that the container can tell fencing from poison
                self._failure = error
                raise
            self._has_worked = True
            self.on_outcome(batch_id, outcome)
            self._shutdown = self._shutdown or outcome.shutdown_all

    def run(self, spark: SparkSession, frame: DataFrame) -> Ended:
        """Start the query and return when it is drained, interrupted, or a task has asked for the end.

        Raises:
            GreteError: what the batch raised (Fenced, ProcessingError, ...), or `on_started`.
            JobError: Spark failed, or its JVM died.
        """
        writer = (
            frame.writeStream.foreachBatch(self._for_each_batch)
            .outputMode(self.settings.output_mode)
            .option("checkpointLocation", str(self.settings.checkpoint))
        )
        if self.settings.one_batch:
            writer = writer.trigger(once=True)
        elif self.settings.until_drained:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.settings.interval_ms} milliseconds")
        try:
            query = writer.start()
            self._finish_starting(query)
            self._watch(spark, query)
        except StreamingQueryException as error:
            self._explain(spark, error)
        except AnalysisException as error:
            raise ApplicationError(f"Spark refuses the plan: {error}") from error
        except (Py4JJavaError, PySparkException) as error:
            raise self._failed(spark, error) from error
        except (Py4JError, OSError) as error:
            raise jvm_failed(spark.sparkContext, error) from error
        if self._shutdown:
            return Ended.SHUTDOWN
        return Ended.INTERRUPTED if self._interrupted else Ended.DRAINED

    def _finish_starting(self, query: StreamingQuery) -> None:
        try:
            self.on_started()
        except GreteError:
            self._end(query)
            raise

    def _watch(self, spark: SparkSession, query: StreamingQuery) -> None:
        """Wait for the end; stop between batches when asked; notice a JVM that died."""
        process = getattr(gateway_of(spark.sparkContext), "proc", None)
        is_at_work, looks = False, 0
        while not query.awaitTermination(_WATCH_INTERVAL_S):
            if process is not None and process.poll() is not None:
                raise jvm_ended(process.returncode)
            if self._shutdown or self._stop.is_set():
                self._end(query)
                break
            if not is_at_work and _has_begun(query):
                is_at_work = True
                self.on_at_work()
            looks += 1
            if looks % _LOOK_EVERY == 0:
                self._look(query)
        self.on_look(query)

    def _look(self, query: StreamingQuery) -> None:
        try:
            self.on_look(query)
        except GreteError:
            self._end(query)
            raise

    def _end(self, query: StreamingQuery) -> None:
        """Let the batch at work end, and none begin.

        Spark's stop waits for its thread, and that may be about to hand over a batch: it must find the lock free.
        For whatever else may hold that thread, the session limits the wait.
        """
        with self._in_batch:
            self._ending = True
        query.stop()
        self._interrupted = not self._shutdown

    def _explain(self, spark: SparkSession, error: StreamingQueryException) -> None:
        failure = self._failure
        if isinstance(failure, _StopRequested):
            return
        if isinstance(failure, GreteError):
            raise failure
        raise self._failed(spark, failure or error) from error

    def _failed(self, spark: SparkSession, error: BaseException) -> GreteError:
        where = str(self.settings.checkpoint)
        return failed(error, spark.sparkContext, has_worked=self._has_worked, checkpoint=where)


def _has_begun(query: StreamingQuery) -> bool:
    """Whether it has looked for input: before that it reads its logs and asks where the input begins."""
    status = query.status
    return bool(status["isTriggerActive"]) or str(status["message"]).startswith("Waiting")
