"""The epoch of a log's scope as versions of grete before the topic of epochs read and write it."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

from grete.kafka.epoch import writer_id


class OlderEpoch:
    """An offset of the log's own topic, in the scope's group; None when there is none."""

    def __init__(self, bootstrap: str, topic: str, scope: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._id = writer_id(topic, scope)

    def read(self) -> int | None:
        """What a process of such a version would find."""
        consumer = self._consumer()
        [found] = consumer.committed([TopicPartition(self._topic, 0)], timeout=30)
        consumer.close()
        return found.offset if found.offset >= 0 else None

    def write(self, epoch: int) -> None:
        """Open the id and raise the epoch in a transaction, whatever is stored."""
        consumer = self._consumer()
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": self._id})
        producer.init_transactions(30)
        producer.begin_transaction()
        where = [TopicPartition(self._topic, 0, epoch)]
        producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        consumer.close()

    def _consumer(self) -> Consumer:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": self._id, "enable.auto.commit": False}
        return Consumer({**settings, "isolation.level": "read_committed"})
