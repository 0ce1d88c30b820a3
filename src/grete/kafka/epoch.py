"""Where the brokers keep a scope's epoch: beside an offset committed in a group without members (`epoch_topic`).

It takes no room in the log, and the group coordinator answers for it in one request.

An older version of grete reads and writes another place, the log's own topic. Both are read, and the higher epoch
counts. Where such a version has written, each epoch is written to both places in one transaction, until nobody but
this version has written there for as long as brokers keep an epoch; then they forget it. So a process of either
version finds what one of the other has raised.
"""

from __future__ import annotations

import itertools
from contextlib import closing

from grete.clock import Clock
from grete.kafka.epoch_topic import (
    EpochTopic,
    copied_since,
    copy_place,
    epoch_in,
    epoch_place,
    place_of_epochs,
)
from grete.kafka.errors import describe, is_final, reason_of
from grete.kafka.library import Consumer, KafkaError, KafkaException, TopicPartition
from grete.kafka.log_clients import KafkaClients
from grete.kafka.producer import NotWritten, OutcomeUnknown, TransactionalProducer, not_written
from grete.wire.java_hash import string_hash

_REQUEST_S = 5.0
_LOOK_S = 2.0
_OFFSETS = "__consumer_offsets"
_OFFSETS_PARTITIONS = 50
"""Kafka's own default, for who may not look."""
_LEAST = -(2**31)
_COPIED_MS = 7 * 24 * 3_600_000
"""How long an older version that wrote last may come back: a week, as long as brokers keep what it has read."""


class EpochPending(NotWritten):
    """The epoch is part of a transaction that has not ended, and so cannot be read."""


def writer_id(topic: str, scope: str) -> str:
    """The transactional id, and the group, of a scope's writer of a topic."""
    return f"grete-{topic}-scope-{scope}"


class ScopeEpoch:
    """The epoch of one scope in the group `id_`. Who sends one asks for the stored one after opening the id."""

    def __init__(self, clients: KafkaClients, id_: str, clock: Clock) -> None:
        self._clients = clients
        self._id = id_
        self._clock = clock
        self._group: Consumer | None = None
        self._topic = EpochTopic(clients, clock)
        self._copied_since_ms: int | None = None
        self.is_copy_behind = False

    def _consumer(self) -> Consumer:
        if self._group is None:
            self._group = self._clients.group(self._id)
        return self._group

    def stored(self) -> int | None:
        """The epoch as the brokers have it; None when none was written, or it was forgotten.

        Afterwards `is_copy_behind` says whether an older version would find a lower one.

        Raises:
            EpochPending: one is being written, for longer than a request may take.
            NotWritten: no answer.
        """
        try:
            apart, in_log = self._consumer().committed(self._places(), timeout=self._wait_s)
        except KafkaException as error:
            if self._is_pending():
                raise EpochPending(f"the epoch in group {self._id} is part of an open transaction") from error
            raise not_written(error) from error
        for found in (apart, in_log):
            if found.error is not None and not (found is apart and _is_forbidden(found.error)):
                raise NotWritten(describe(found.error), is_final=is_final(found.error))
        return self._higher(epoch_in(apart), in_log)

    def _places(self) -> list[TopicPartition]:
        return [place_of_epochs(), self._clients.partition(0)]

    def _higher(self, apart: int | None, in_log: TopicPartition) -> int | None:
        if in_log.offset < 0:
            self._copied_since_ms, self.is_copy_behind = None, False
            return apart
        now_ms = self._clock.wall_ms()
        since_ms = copied_since(in_log) or now_ms
        self._copied_since_ms = since_ms if now_ms - since_ms < _COPIED_MS else None
        self.is_copy_behind = (
            self._copied_since_ms is not None and apart is not None and in_log.offset < apart
        )
        return in_log.offset if apart is None else max(apart, in_log.offset)

    def prepare(self) -> None:
        """See that there is a place for the epoch, before a transaction is begun to write it.

        Raises:
            NotWritten: no answer.
        """
        self._topic.is_usable()

    def send(self, writer: TransactionalProducer, epoch: int, deadline_s: float) -> None:
        """Write the epoch in the writer's transaction.

        Raises:
            NotWritten: refused, or no answer.
        """
        places = [self._place(epoch)]
        if self._topic.is_usable() and self._copied_since_ms is not None:
            places.append(copy_place(self._clients.topic, epoch, self._copied_since_ms))
        self._send(writer, self._consumer(), places, deadline_s)

    def _place(self, epoch: int) -> TopicPartition:
        return epoch_place(epoch) if self._topic.is_usable() else self._clients.partition(epoch)

    def _send(
        self, writer: TransactionalProducer, group: Consumer, places: list[TopicPartition], deadline_s: float
    ) -> None:
        metadata = group.consumer_group_metadata()
        try:
            writer.request(
                lambda left_s: writer.producer.send_offsets_to_transaction(places, metadata, left_s),
                deadline_s,
            )
        except KafkaException as error:
            raise self._refusal(reason_of(error)) from error

    def _refusal(self, reason: KafkaError) -> NotWritten:
        """One of the topic of epochs is not the last word: the next attempt looks for it, or does without."""
        if _is_forbidden(reason) and self._topic.is_usable():
            self._topic.refused(reason)
            return NotWritten(describe(reason))
        self._topic.forget()
        return NotWritten(describe(reason), is_final=is_final(reason))

    @property
    def _wait_s(self) -> float:
        return min(self._clients.timeout_s, _REQUEST_S)

    def _is_pending(self) -> bool:
        """Whether brokers answer for the group, to who does not wait for transactions."""
        with closing(self._clients.impatient_group(self._id)) as consumer:
            try:
                consumer.committed(self._places(), timeout=_LOOK_S)
            except KafkaException:
                return False
            return True

    def end_pending(self, writer: TransactionalProducer, deadline_s: float) -> None:
        """End the transaction of the writer's id that keeps the epoch pending, though brokers say that it has ended.

        They do so as in `TransactionalProducer.abort_dangling_transactions`: one was killed while it wrote the marker
        (of epoch 2, 4.3.1), and no coordinator could claim an epoch any more. A later transaction of the id in the
        same partition of the offsets ends what is left there. It is of another group and is committed, so that what
        was pending counts, whether it was to be committed or not: an epoch that nobody leads under costs nothing.

        Raises:
            NotWritten: refused, or no answer.
        """
        with closing(self._clients.group(group_beside(self._id, self._offsets_partitions()))) as beside:
            self.prepare()
            writer.begin()
            try:
                self._send(writer, beside, [self._place(0)], deadline_s)
            except NotWritten:
                writer.abort(deadline_s)
                raise
            try:
                writer.commit(deadline_s)
            except OutcomeUnknown as error:
                raise NotWritten(f"the epoch in group {self._id} is pending still: {error}") from error

    def _offsets_partitions(self) -> int:
        try:
            found = self._consumer().list_topics(_OFFSETS, timeout=self._wait_s).topics.get(_OFFSETS)
        except KafkaException:
            found = None
        return len(found.partitions) if found is not None and found.partitions else _OFFSETS_PARTITIONS

    def close(self) -> None:
        """Release the consumer."""
        if self._group is not None:
            self._group.close()
            self._group = None


def _is_forbidden(error: KafkaError) -> bool:
    return error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def group_beside(group: str, partitions: int) -> str:
    """Another group whose offsets are in the same partition of so many."""
    names = (f"{group}-ended-{number}" for number in itertools.count())
    return next(name for name in names if _place(name, partitions) == _place(group, partitions))


def _place(group: str, partitions: int) -> int:
    """As brokers have it: of Java's hash without its sign, of which the least number has none."""
    found = string_hash(group)
    return 0 if found == _LEAST else abs(found) % partitions
