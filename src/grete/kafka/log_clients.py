"""Clients for the topic of one keyed log."""

from __future__ import annotations

from typing import Any

from grete.clock import Clock
from grete.kafka.client import KafkaConnection
from grete.kafka.errors import translated
from grete.kafka.library import Consumer, Producer, TopicPartition
from grete.kafka.settings import KafkaLogSettings

_OVERHEAD_BYTES = 512
"""Bytes that a record batch needs beside keys, values and headers: 61 bytes for the batch, up to 21 a record."""
_FETCH_KB = 32 * 1024


class KafkaClients(KafkaConnection):
    """Makes clients for one log's topic. `partition(offset)` is its only partition."""

    def __init__(self, topic: str, settings: KafkaLogSettings, clock: Clock) -> None:
        super().__init__(settings.client, settings.timeout_s, clock, settings.origin, settings.tuning)
        self.topic = topic
        self.settings = settings

    def log_in(self) -> None:
        """See `await_login`."""
        self.await_login(f"opening topic {self.topic}", self.topic)

    def partition(self, offset: int) -> TopicPartition:
        """The topic's partition at an offset."""
        return TopicPartition(self.topic, 0, offset)

    def reader(self, *, fetch_wait_ms: int) -> Consumer:
        """Committed records only, no group, an event at the end. It waits `fetch_wait_ms` there for more."""
        return self._consumer(
            {
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": fetch_wait_ms,
                "fetch.error.backoff.ms": 100,
                "queued.max.messages.kbytes": _FETCH_KB,
                "fetch.max.bytes": max(_FETCH_KB * 1024, 2 * self.settings.max_message_bytes),
                "max.partition.fetch.bytes": max(8 << 20, self.settings.max_message_bytes),
                "receive.message.max.bytes": 2 * max(_FETCH_KB * 1024, 2 * self.settings.max_message_bytes),
            }
        )

    def group(self, name: str) -> Consumer:
        """For the offsets of a group without members. They wait for open transactions of theirs."""
        return self._consumer({"group.id": name})

    def impatient_group(self, name: str) -> Consumer:
        """The same, as they are without open transactions; nothing is asked for yet."""
        doing = f"making a consumer of {self.topic}"
        return self.new_consumer(doing, {"group.id": name, "isolation.level": "read_uncommitted"})

    def _consumer(self, more: dict[str, Any]) -> Consumer:
        doing = f"making a consumer of {self.topic}"
        consumer = self.new_consumer(doing, more)
        with translated(doing):
            # Asked for at once, metadata is there in milliseconds; else the client looks for it every 500 ms.
            consumer.list_topics(self.topic, timeout=self.settings.timeout_s)
        return consumer

    def producer(self, transactional_id: str) -> Producer:
        """One whose batches grow until they are flushed, so that an append is one batch while it fits."""
        largest = self.settings.max_message_bytes
        doing = f"making a producer of {self.topic}"
        return self.new_producer(
            doing,
            transactional_id,
            {
                "transaction.timeout.ms": round(self.settings.transaction_timeout_s * 1000),
                "linger.ms": round(self.settings.transaction_timeout_s * 500),
                "batch.size": max(largest - _OVERHEAD_BYTES, 1),
                "batch.num.messages": 1_000_000,
                "message.max.bytes": largest + _OVERHEAD_BYTES,
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": 2_147_483_647,
            },
        )

    def end(self, *, is_stable: bool) -> int:
        """The offset after the last one; with `is_stable` only as far as no transaction is open.

        Raises:
            KafkaException: no answer for the whole timeout.
        """
        where = self.partition(0)
        return self.ends([where], is_stable=is_stable)[where]
