"""One writer of a Kafka topic: a transactional producer whose id the broker lets one process at a time use.

Opening it ends every older producer with the same id: what that one had not committed is aborted and its next request
is refused. So as long as a request of ours is not refused, nobody has opened the id since, and whatever was checked
right after opening (the scope's epoch) still holds. The check and the append are one step in this sense.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from grete.clock import Clock
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Entry
from grete.keyed_log.kafka_client import KafkaClients, describe, is_final, reason_of

_STEP_S = 5.0


class NotWritten(Exception):
    """The append did not happen and never will; trying again may help, unless `is_final`."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class OutcomeUnknown(Exception):
    """The commit was sent and its answer did not come."""


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


class KafkaWriter:
    """A transactional id and, while it is open, its producer. The caller holds `lock` around every call.

    `known_epoch` is what the broker had for the scope when the id was opened, or what was committed since.
    """

    def __init__(self, clients: KafkaClients, clock: Clock, transactional_id: str, scope: str) -> None:
        self.lock = threading.Lock()
        self.known_epoch: int | None = None
        self.epoch_written_s = float("-inf")
        self.is_in_doubt = False
        self._clients = clients
        self._clock = clock
        self._id = transactional_id
        self._scope = scope
        self._producer: Producer | None = None
        self._group: Consumer | None = None

    @property
    def is_open(self) -> bool:
        """Whether we hold the id as far as we know."""
        return self._producer is not None

    def open(self, deadline_s: float) -> None:
        """Take the id over. Afterwards no transaction of an older producer is open, ours included.

        Raises:
            NotWritten: the broker did not answer in time.
        """
        producer = self._clients.producer(self._id)
        while True:
            try:
                producer.init_transactions(self._left_s(deadline_s))
            except KafkaException as error:
                reason = reason_of(error)
                if reason.retriable() and self._clock.monotonic_s() < deadline_s:
                    continue
                raise NotWritten(describe(reason), is_final=is_final(reason)) from error
            break
        self._producer, self.is_in_doubt = producer, False

    def drop(self) -> None:
        """Let the producer go without committing anything. The id stays ours until somebody opens it."""
        self._producer = None

    def close(self) -> None:
        """Release everything."""
        self.drop()
        if self._group is not None:
            self._group.close()
            self._group = None

    def _left_s(self, deadline_s: float) -> float:
        return max(min(deadline_s - self._clock.monotonic_s(), _STEP_S), 0.05)

    def _scope_group(self) -> Consumer:
        if self._group is None:
            self._group = self._clients.group(self._id)
        return self._group

    def stored_epoch(self) -> int | None:
        """The scope's epoch as the broker has it: an offset of a group that nobody joins.

        Raises:
            NotWritten: no answer.
        """
        try:
            where = [self._clients.partition(0)]
            wait_s = min(self._clients.settings.timeout_s, _STEP_S)
            found = self._scope_group().committed(where, timeout=wait_s)[0]
        except KafkaException as error:
            reason = reason_of(error)
            raise NotWritten(describe(reason), is_final=is_final(reason)) from error
        if found.error is not None:
            raise NotWritten(describe(found.error), is_final=is_final(found.error))
        return found.offset if found.offset >= 0 else None

    def write(self, append: Append, deadline_s: float, check: Callable[[int], None]) -> int:
        """Append in one transaction; returns the last offset, -1 for no entries. `check` sees the first offset.

        Raises:
            NotWritten: nothing became readable.
            OutcomeUnknown: the commit may have happened. The id must be opened again before anything else.
        """
        assert self._producer is not None
        reports = _Reports()
        try:
            self._producer.begin_transaction()
            self._produce(self._producer, append, reports)
            self._flush(self._producer, append, reports, deadline_s)
            if append.entries:
                check(reports.first)
            if append.epoch is not None:
                self._send_epoch(self._producer, append.epoch, deadline_s)
        except KafkaException as error:
            self._abort(deadline_s)
            raise NotWritten(describe(reason_of(error)), is_final=is_final(reason_of(error))) from error
        except BaseException:
            self._abort(deadline_s)
            raise
        self._commit(self._producer, deadline_s)
        if append.epoch is not None:
            self.known_epoch, self.epoch_written_s = append.epoch, self._clock.monotonic_s()
        return reports.last

    def _produce(self, producer: Producer, append: Append, reports: _Reports) -> None:
        encoded, left = kafka_header.encode(append.origin), len(append.entries)
        for entry in append.entries:
            left -= 1
            producer.produce(
                self._clients.topic,
                key=entry.key,
                value=entry.value,
                partition=0,
                timestamp=append.timestamp_ms,
                headers=[(kafka_header.NAME, kafka_header.with_remaining(left, encoded))],
                on_delivery=reports.take,
            )

    def _flush(self, producer: Producer, append: Append, reports: _Reports, deadline_s: float) -> None:
        while self._unsent(producer, deadline_s) > 0:
            if self._clock.monotonic_s() >= deadline_s:
                raise NotWritten("the broker did not take the records in time")
        if reports.error is not None:
            raise NotWritten(describe(reports.error), is_final=is_final(reports.error))
        assert reports.count == len(append.entries), "every record has a report"
        if not reports.are_adjacent():
            raise NotWritten("another writer's records came between")

    def _unsent(self, producer: Producer, deadline_s: float) -> int:
        try:
            return producer.flush(self._left_s(deadline_s))
        except SystemError as error:
            # The client raises a fatal error, as that of being fenced, while it still calls back for reports; Python
            # then complains about the mixture. The producer is of no use any more, and nothing was committed.
            raise NotWritten(f"the producer has ended: {error.__cause__ or error}") from error

    def _send_epoch(self, producer: Producer, epoch: int, deadline_s: float) -> None:
        metadata = self._scope_group().consumer_group_metadata()
        while True:
            try:
                producer.send_offsets_to_transaction(
                    [self._clients.partition(epoch)], metadata, self._left_s(deadline_s)
                )
            except KafkaException as error:
                if not reason_of(error).retriable() or self._clock.monotonic_s() >= deadline_s:
                    raise
            else:
                return

    def _abort(self, deadline_s: float) -> None:
        """Nothing was committed, so whatever happens here nothing will be: at worst the broker's timeout aborts."""
        assert self._producer is not None
        try:
            self._producer.abort_transaction(self._left_s(deadline_s))
        except KafkaException:
            self.drop()

    def _commit(self, producer: Producer, deadline_s: float) -> None:
        while True:
            try:
                producer.commit_transaction(self._left_s(deadline_s))
            except KafkaException as error:
                reason = reason_of(error)
                if reason.txn_requires_abort():
                    self._abort(deadline_s)
                    raise NotWritten(describe(reason)) from error
                if reason.retriable() and self._clock.monotonic_s() < deadline_s:
                    continue
                self.is_in_doubt = True
                self.drop()
                raise OutcomeUnknown(describe(reason)) from error
            else:
                return
