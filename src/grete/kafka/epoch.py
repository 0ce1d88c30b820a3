"""Where the brokers keep a scope's epoch: an offset committed in a group without members.

It takes no room in the log, and the group coordinator answers for it in one request.
"""

from __future__ import annotations

from grete.kafka.errors import describe, is_final
from grete.kafka.library import Consumer, KafkaException
from grete.kafka.log_clients import KafkaClients
from grete.kafka.producer import NotWritten, TransactionalProducer, not_written

_REQUEST_S = 5.0


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
            NotWritten: no answer.
        """
        try:
            where = [self._clients.partition(0)]
            wait_s = min(self._clients.timeout_s, _REQUEST_S)
            found = self._consumer().committed(where, timeout=wait_s)[0]
        except KafkaException as error:
            raise not_written(error) from error
        if found.error is not None:
            raise NotWritten(describe(found.error), is_final=is_final(found.error))
        return found.offset if found.offset >= 0 else None

    def send(self, writer: TransactionalProducer, epoch: int, deadline_s: float) -> None:
        """Write the epoch in the writer's transaction.

        Raises:
            NotWritten: refused, or no answer.
        """
        metadata = self._consumer().consumer_group_metadata()
        offsets = [self._clients.partition(epoch)]
        try:
            writer.request(
                lambda left_s: writer.producer.send_offsets_to_transaction(offsets, metadata, left_s),
                deadline_s,
            )
        except KafkaException as error:
            raise not_written(error) from error

    def close(self) -> None:
        """Release the consumer."""
        if self._group is not None:
            self._group.close()
            self._group = None
