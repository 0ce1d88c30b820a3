"""Where the brokers keep a scope's epoch: an offset committed in a group without members.

It takes no room in the log, and the group coordinator answers for it in one request.
"""

from __future__ import annotations

import itertools
from contextlib import closing

from grete.kafka.errors import describe, is_final
from grete.kafka.library import Consumer, KafkaException
from grete.kafka.log_clients import KafkaClients
from grete.kafka.producer import NotWritten, OutcomeUnknown, TransactionalProducer, not_written
from grete.wire.java_hash import string_hash

_REQUEST_S = 5.0
_LOOK_S = 2.0
_OFFSETS = "__consumer_offsets"
_OFFSETS_PARTITIONS = 50
"""Kafka's own default, for who may not look."""
_LEAST = -(2**31)


class EpochPending(NotWritten):
    """The epoch is part of a transaction that has not ended, and so cannot be read."""


def writer_id(topic: str, scope: str) -> str:
    """The transactional id, and the group, of a scope's writer of a topic."""
    return f"grete-{topic}-scope-{scope}"


class ScopeEpoch:
    """The epoch of one scope, as an offset of the topic's partition in the group `id_`."""

    def __init__(self, clients: KafkaClients, id_: str) -> None:
        self._clients = clients
        self._id = id_
        self._group: Consumer | None = None

    def _consumer(self) -> Consumer:
        if self._group is None:
            self._group = self._clients.group(self._id)
        return self._group

    def stored(self) -> int | None:
        """The epoch as the brokers have it; None when none was written, or it was forgotten.

        Raises:
            EpochPending: one is being written, for longer than a request may take.
            NotWritten: no answer.
        """
        try:
            found = self._consumer().committed([self._clients.partition(0)], timeout=self._wait_s)[0]
        except KafkaException as error:
            if self._is_pending():
                raise EpochPending(f"the epoch in group {self._id} is part of an open transaction") from error
            raise not_written(error) from error
        if found.error is not None:
            raise NotWritten(describe(found.error), is_final=is_final(found.error))
        return found.offset if found.offset >= 0 else None

    def send(self, writer: TransactionalProducer, epoch: int, deadline_s: float) -> None:
        """Write the epoch in the writer's transaction.

        Raises:
            NotWritten: refused, or no answer.
        """
        self._send(writer, self._consumer(), epoch, deadline_s)

    def _send(self, writer: TransactionalProducer, group: Consumer, offset: int, deadline_s: float) -> None:
        metadata, offsets = group.consumer_group_metadata(), [self._clients.partition(offset)]
        try:
            writer.request(
                lambda left_s: writer.producer.send_offsets_to_transaction(offsets, metadata, left_s),
                deadline_s,
            )
        except KafkaException as error:
            raise not_written(error) from error

    @property
    def _wait_s(self) -> float:
        return min(self._clients.timeout_s, _REQUEST_S)

    def _is_pending(self) -> bool:
        """Whether brokers answer for the group, to who does not wait for transactions."""
        with closing(self._clients.impatient_group(self._id)) as consumer:
            try:
                consumer.committed([self._clients.partition(0)], timeout=_LOOK_S)
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
            writer.begin()
            try:
                self._send(writer, beside, 0, deadline_s)
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


def group_beside(group: str, partitions: int) -> str:
    """Another group whose offsets are in the same partition of so many."""
    names = (f"{group}-ended-{number}" for number in itertools.count())
    return next(name for name in names if _place(name, partitions) == _place(group, partitions))


def _place(group: str, partitions: int) -> int:
    """As brokers have it: of Java's hash without its sign, of which the least number has none."""
    found = string_hash(group)
    return 0 if found == _LEAST else abs(found) % partitions
