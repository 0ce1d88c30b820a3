"""One transaction for the rows of a batch, which Spark's connector writes, and for its checkpoints.

The connector keeps the producers of a JVM in a pool, by their settings. A producer with a transactional id is taken
from that of the driver's JVM and opened here, so whatever the connector sends there is part of the transaction that
was begun with it (`kafka_senders`: from tasks, or from the driver). The checkpoints are its last records. So rows and
checkpoints become visible together or never, whatever a batch that is repeated may make of its rows.

The pool, and how producers are found in it, are the connector's own and not its public interface. Where they have
changed, the connector makes a producer that was never opened, and that one refuses to send.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from grete.api import Batch
from grete.clock import Clock, Deadline
from grete.config.choices import PipelineDelivery
from grete.config.settings.systems import SystemSettings
from grete.errors import ConfigError, InDoubt, LogError
from grete.failpoints import failpoint
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.spark.jvm import java_map, jvm_of
from grete.spark.sinks.kafka import plain_records
from grete.spark.sinks.kafka_senders import Sender, scala_object
from grete.systems.base import System
from grete.systems.commit_group import CommitGroup, SegmentWrite, TransactionalStore
from grete.systems.kafka.fence import transactional_id
from grete.systems.transactions import NotWritten

_log = logging.getLogger("grete.container")
_SLOT = 0
"""Raising a container's fence opens the ids of all its slots, and a pipeline has no use for others."""
_PATIENCE_S = 60.0
_PAUSES_S = (0.05, 2.0)
_CLOSE_MS = 5_000
_MARKS_S = 10.0
_BATCHES = {"kafka.linger.ms": "20", "kafka.batch.size": "262144"}
"""Larger ones than the client's own, which take it and the broker a quarter less of their processors."""
_opened = itertools.count(1)


class KafkaTransactions(TransactionalStore):
    """The transactions of a container's pipeline in the system of its checkpoints. Used by one thread at a time.

    `begin_opening` takes the id in a thread of its own: in a JVM that has just started this takes a second, in which
    the query starts and plans its first batch. Nothing is written or committed before it has succeeded.
    """

    def __init__(
        self,
        spark: SparkSession,
        system: System,
        fences: Sequence[Fence],
        streams: Sequence[str],
        settings: Mapping[str, str],
        timeout_s: float,
        clock: Clock,
        sender: Sender,
    ) -> None:
        """`streams` are written; `settings`, the connector's options, hold secrets: not to be shown."""
        self._jvm: Any = jvm_of(spark)
        self._topics: dict[str, Any] = {}
        self._system = system
        self._clock = clock
        self._sender = sender
        self._fence = fences[0]
        self._slot = system.transactions(fences, _SLOT, streams)
        self._is_begun = False
        self._timeout_s = timeout_s
        self._id = transactional_id(self._fence.scope, str(_SLOT))
        self.settings: Mapping[str, str] = {
            **_BATCHES,
            **settings,
            "kafka.transactional.id": self._id,
            "kafka.transaction.timeout.ms": str(round(timeout_s * 1000)),
            "kafka.client.id": f"{self._id}-{next(_opened)}",  # its own place in the pool
        }
        self._opening: Future[None] | None = None
        self._cached: Any = None

    def begin_opening(self) -> None:
        """Take the id, in a thread; `await_open` returns when that is done. Called once."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="grete-outputs")
        self._opening = thread.submit(self._open)
        thread.shutdown(wait=False)

    def await_open(self) -> None:
        """Return when the id is taken; every call raises the same.

        Raises:
            Fenced: another incarnation has taken over.
            ConfigError: the brokers allow no transaction of this timeout.
            LogError: no answer from the brokers.
        """
        assert self._opening is not None, "it is being opened"
        self._opening.result()

    def _open(self) -> None:
        self._answered("opening the outputs", self._end_older)
        self._record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        self._headers = self._own_headers()
        self._client_settings = self._parameters()
        self._cached = self._pool.acquire(self._client_settings)
        self._producer = self._cached.producer()
        self._init()
        self._answered("opening the outputs", self._slot.check_fence)

    def _end_older(self) -> None:
        """End what an older process of the container has left open, where the brokers have not."""
        self._slot.open(self._clock.monotonic_s() + _PATIENCE_S)
        self._slot.drop()

    def _init(self) -> None:
        try:
            self._producer.initTransactions()
        except Py4JJavaError as error:
            if "transaction.max.timeout.ms" in _said(error):
                raise ConfigError(
                    f"the brokers allow no transaction of {self._timeout_s:.0f} s, which a batch may take: set "
                    f"task.commit.transaction.timeout.ms to their transaction.max.timeout.ms or less"
                ) from error
            raise self._failure("the outputs were not opened", _said(error)) from error

    @property
    def _pool(self) -> Any:
        return scala_object(self._jvm.org.apache.spark.sql.kafka010.producer, "InternalKafkaProducerPool")

    def _parameters(self) -> Any:
        """The producer's settings as the connector makes them of its options."""
        options = self._jvm.java.util.HashMap()
        for name, value in self.settings.items():
            options.put(name, value)
        scala_map = java_map(self._jvm, options)
        without_case = scala_object(self._jvm.org.apache.spark.sql.catalyst.util, "CaseInsensitiveMap").apply(
            scala_map
        )
        provider = scala_object(self._jvm.org.apache.spark.sql.kafka010, "KafkaSourceProvider")
        return provider.kafkaParamsForProducer(without_case)

    def write(self, records: DataFrame, topic: str) -> None:
        """Compute records and send them as part of the transaction, which begins with the first that are sent.

        Raises:
            Fenced, ConfigError, LogError: see `await_open`; or the transaction cannot begin.
            PySparkException, Py4JError: Spark failed; the transaction is to be given up by `close`.
        """
        into = self._topics.get(topic)
        if into is None:  # to look the class up takes a millisecond
            into = self._topics[topic] = self._jvm.scala.Some(topic)
        try:
            send = self._sender.prepare(records)
            self._begin()
            send(self._client_settings, into)
        except (PySparkException, Py4JError) as error:
            self._check_fence()
            if _is_refused(str(error)):
                raise self._failure("a batch was not committed", "its transaction has ended") from error
            raise

    def _begin(self) -> None:
        if self._is_begun:
            return
        self.await_open()
        with self._failing("no transaction was begun"):
            self._producer.beginTransaction()
        self._is_begun = True

    def commit(self, group: CommitGroup) -> dict[tuple[str, int], int]:
        """See TransactionalStore: what was written since the last commit, and the checkpoints."""
        assert not list(group.segments), "rows are written by the connector"
        self._begin()
        log = group.checkpoint_log
        with self._failing("nothing of the batch was committed"):
            last = self._sent(log, group.checkpoint_entries)
            self._producer.flush()
            end = 0 if last is None else last.get().offset() + 1
        failpoint("commit.in-transaction")
        try:
            self._producer.commitTransaction()
        except Py4JJavaError as error:
            self._check_fence()
            raise InDoubt(self._id, _said(error)) from error
        self._is_begun = False
        return {(log, 0): end}

    def _sent(self, log: str, entries: Sequence[Entry]) -> Any:
        """Send the entries; returns the future of the last. Where another one fails, the transaction does.

        Two calls of the JVM an entry, with the same headers for all: with everything made for each it was fifteen.
        """
        now_ms = self._clock.wall_ms()
        last = None
        for entry in entries:
            last = self._producer.send(self._record(log, 0, now_ms, entry.key, entry.value, self._headers))
        return last

    def _own_headers(self) -> Any:
        """Of every entry of this incarnation; a record makes a copy."""
        headers = self._jvm.java.util.ArrayList()
        header = self._jvm.org.apache.kafka.common.header.internals.RecordHeader
        headers.add(header(kafka_header.NAME, kafka_header.of_one(self._fence.epoch, self._fence.scope)))
        return headers

    def raise_fence(self, fences: Iterable[Fence]) -> None:
        """See TransactionalStore."""
        self._system.raise_fence(fences)

    def begin_epoch(self, fence: Fence) -> Fence:
        """See TransactionalStore."""
        return self._system.begin_epoch(fence)

    def confirm(self) -> None:
        """Wait a moment until readers see what was committed: the marks in its partitions follow the commit.

        Who reads right after a job that has drained its inputs finds its last batch so.
        """
        reason = self._slot.await_readable(_MARKS_S)
        if reason:
            _log.warning("what was committed cannot be read yet: %s", reason)

    def close(self) -> None:
        """Give up what was not committed, and let the id go. What a task still sends is refused from now on."""
        if self._opening is not None:
            self._opening.exception()  # a producer that is opened later would be nobody's
        if self._cached is None:
            return
        with suppress(Py4JError, OSError):  # the JVM may be gone, and the id another process's
            self._producer.close(self._jvm.java.time.Duration.ofMillis(_CLOSE_MS))
            self._pool.release(self._cached)

    # --- errors ---

    @contextmanager
    def _failing(self, outcome: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            self._check_fence()
            raise self._failure(outcome, _said(error)) from error

    def _failure(self, outcome: str, said: str) -> LogError:
        way_out = (
            f". Brokers end a transaction that takes longer than {self._timeout_s:.0f} s: make batches smaller "
            f"(task.max.records.per.batch), or raise task.commit.transaction.timeout.ms as far as their "
            f"transaction.max.timeout.ms allows"
        )
        return LogError(f"{outcome}: {said}{way_out if self._is_begun else ''}")

    def _check_fence(self) -> None:
        """The brokers refuse who was succeeded by many names; the epoch has one."""
        with suppress(NotWritten):
            self._slot.check_fence()

    def _answered(self, doing: str, ask: Callable[[], object]) -> None:
        deadline = Deadline(self._clock, _PATIENCE_S, pauses_s=_PAUSES_S)
        while True:
            try:
                ask()
            except NotWritten as refusal:
                if refusal.is_final or not deadline.pause():
                    raise refusal.as_log_error(doing) from refusal
                _log.warning("%s: %s, trying again", doing, refusal)
            else:
                return


@dataclass(frozen=True, slots=True)
class TransactionalSink:
    """Writes one topic in the transaction of the checkpoints.

    With `gets_records` the rows of a batch are records already, since the query makes them (`plain_records`).
    """

    topic: str
    transactions: KafkaTransactions
    gets_records: bool = False

    def write(self, rows: DataFrame, batch: Batch) -> Sequence[SegmentWrite]:
        """See Sink and `KafkaTransactions.write`."""
        self.transactions.write(rows if self.gets_records else plain_records(rows), self.topic)
        return ()

    def close(self) -> None:
        """The transactions are closed by the one who opened them."""


def delivery(system: SystemSettings, checkpoints_in: str) -> PipelineDelivery:
    """How rows get into the topics of a system; never `auto`.

    Raises:
        ConfigError: transactions are asked for, and not possible.
    """
    chosen = system.pipeline_delivery
    if chosen not in (PipelineDelivery.AUTO, PipelineDelivery.TRANSACTIONS):
        return chosen
    if system.name == checkpoints_in:
        return PipelineDelivery.TRANSACTIONS
    reason = f"the checkpoints are in {checkpoints_in!r}, and a transaction is of one system"
    if chosen is PipelineDelivery.TRANSACTIONS:
        raise ConfigError(
            f"systems.{system.name}.pipeline.delivery=transactions is not possible: {reason}. With stamps a "
            f"CommittedReader gets each row once"
        )
    _log.warning(
        "outputs in system %r get stamps, at least once but for a CommittedReader: %s", system.name, reason
    )
    return PipelineDelivery.STAMPS


def _is_refused(text: str) -> bool:
    """Whether brokers have ended the transaction; the epoch says whether for another process."""
    return "ProducerFencedException" in text or "InvalidProducerEpochException" in text


def _said(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString())[:2000]
