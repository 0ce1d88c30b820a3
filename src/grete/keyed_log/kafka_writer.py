"""One writer of a Kafka topic: a transactional id of its own, its appends, and its scope's epoch.

Brokers do not always end what they say they have ended. A coordinator that has to end a transaction while the
topic's partition has no leader (all of its brokers were killed and come back) takes the topic for deleted and skips
it (4.3.1, `TransactionMarkerChannelManager`): readers wait for ever, and the next commit of the same id would bring
the aborted records back. So an id that was opened ends, in a transaction of its own that it aborts, what may be left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message

from grete.clock import Clock
from grete.kafka.client import KafkaClients, describe, is_final
from grete.kafka.producer import NotWritten as NotWritten
from grete.kafka.producer import OutcomeUnknown as OutcomeUnknown
from grete.kafka.producer import TransactionalProducer, not_written
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Entry
from grete.keyed_log.kafka_epoch import ScopeEpoch

_NOTHING = Entry(b"grete-nothing", b"")


class _Reports:
    """What the broker said of each record before the commit: offsets, or the first error."""

    def __init__(self) -> None:
        self.count, self.first, self.last = 0, -1, -1
        self.error: KafkaError | None = None

    def take(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error
            return
        offset = message.offset() or 0
        self.first = offset if self.count == 0 else min(self.first, offset)
        self.last = max(self.last, offset)
        self.count += 1

    def are_adjacent(self) -> bool:
        """Whether nobody else's record came between."""
        return self.count == 0 or self.last - self.first + 1 == self.count


@dataclass(frozen=True, slots=True)
class Append:
    """What one transaction writes. `epoch` raises the scope to it in the same transaction."""

    entries: Sequence[Entry]
    origin: kafka_header.Origin
    timestamp_ms: int
    epoch: int | None = None


class KafkaWriter(TransactionalProducer):
    """A transactional id and, while it is open, its producer. The caller holds `lock` around every call.

    `known_epoch` is what the broker had for the scope when the id was opened, or what was committed since.
    """

    def __init__(self, clients: KafkaClients, clock: Clock, transactional_id: str) -> None:
        super().__init__(lambda: clients.producer(transactional_id), clock)
        self.lock = threading.Lock()
        self.known_epoch: int | None = None
        self.epoch_written_s = float("-inf")
        self._clients = clients
        self._epoch = ScopeEpoch(clients, transactional_id)

    def open(self, deadline_s: float) -> None:
        """Take the id over. Afterwards nothing of an older producer is open in the topic, whatever brokers forgot.

        Raises:
            NotWritten: the broker did not answer in time.
        """
        super().open(deadline_s)
        try:
            is_anything_open = self._clients.end(is_stable=True) < self._clients.end(is_stable=False)
        except KafkaException as error:
            self.drop()
            raise not_written(error) from error
        if is_anything_open:  # by whomever: it does no harm
            self.append_in_vain(deadline_s)

    def append_in_vain(self, deadline_s: float) -> None:
        """Append a record and abort it, and with it whatever is still open of this id. No reader sees it.

        Raises:
            NotWritten: not even that was possible in time.
        """
        append = Append([_NOTHING], kafka_header.Origin(None, "nothing", ""), self._clock.wall_ms())
        with self._aborted_on_error(deadline_s):
            self._send(append, deadline_s)
        self.abort(deadline_s)
        if not self.is_open:
            raise NotWritten("a transaction could not be aborted")

    def close(self) -> None:
        """Release everything."""
        self.drop()
        self._epoch.close()

    def stored_epoch(self) -> int | None:
        """The scope's epoch as the broker has it.

        Raises:
            NotWritten: no answer.
        """
        return self._epoch.stored()

    def write(self, append: Append, deadline_s: float, check: Callable[[int], None]) -> int:
        """Append in one transaction; returns the last offset, -1 for no entries. `check` sees the first offset.

        Raises:
            NotWritten: nothing became readable.
            OutcomeUnknown: the commit may have happened. The id must be opened again before anything else.
        """
        with self._aborted_on_error(deadline_s):
            reports = self._send(append, deadline_s)
            if append.entries:
                check(reports.first)
            if append.epoch is not None:
                self._epoch.send(self, append.epoch, deadline_s, self._clock)
        self.commit(deadline_s)
        if append.epoch is not None:
            self.known_epoch, self.epoch_written_s = append.epoch, self._clock.monotonic_s()
        return reports.last

    @contextmanager
    def _aborted_on_error(self, deadline_s: float) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            self.abort(deadline_s)
            raise not_written(error) from error
        except BaseException:
            self.abort(deadline_s)
            raise

    def _send(self, append: Append, deadline_s: float) -> _Reports:
        """Begin a transaction and wait until the broker has its records."""
        reports = _Reports()
        self.producer.begin_transaction()
        self._produce(append, reports)
        self._flush(append, reports, deadline_s)
        return reports

    def _produce(self, append: Append, reports: _Reports) -> None:
        encoded, left = kafka_header.encode(append.origin), len(append.entries)
        for entry in append.entries:
            left -= 1
            self.producer.produce(
                self._clients.topic,
                key=entry.key,
                value=entry.value,
                partition=0,
                timestamp=append.timestamp_ms,
                headers=[(kafka_header.NAME, kafka_header.with_remaining(left, encoded))],
                on_delivery=reports.take,
            )

    def _flush(self, append: Append, reports: _Reports, deadline_s: float) -> None:
        self.flush(deadline_s)
        if reports.error is not None:
            raise NotWritten(describe(reports.error), is_final=is_final(reports.error))
        assert reports.count == len(append.entries), "every record has a report"
        if not reports.are_adjacent():
            raise NotWritten("another writer's records came between")
