"""Headers of Kafka's records: read with them, and written in the transaction of their outputs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Producer
from tests.kafka.kafka_job import Job

import grete
from grete.testing.kafka_broker import KafkaCluster


class PassOn(grete.StreamTask):
    """Sends each message with its headers, and says how many they were."""

    def init(self, context: grete.TaskContext) -> None:
        self.out = context.config["test.out"]

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        counted = {"headers": len(envelope.headers)}
        collector.send(self.out, counted, key=envelope.key, headers=[*envelope.headers, ("by", "grete")])
        collector.send(self.out, {"headers": 0}, key=envelope.key)


def test_a_task_gets_the_headers_of_other_programs_and_these_get_its_own(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    with closing(
        Job(kafka.bootstrap, tmp_path, partitions=1, config={"task.class": f"{__name__}:PassOn"})
    ) as job:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(job.input, b"{}", b"k", 0, headers=[("trace", b"\x00\xff"), ("trace", None)])
        producer.produce(job.input, b"{}", b"k", 0)
        assert producer.flush(30) == 0
        container = job.container(1)
        assert container.run(container.worker()).records == 2
        trace = [("trace", b"\x00\xff"), ("trace", None)]
        assert written(kafka, job.output, 4) == [
            (b'{"headers":2}', [*trace, ("by", b"grete")]),
            (b'{"headers":0}', None),
            (b'{"headers":0}', [("by", b"grete")]),
            (b'{"headers":0}', None),
        ]


def written(
    kafka: KafkaCluster, topic: str, count: int
) -> list[tuple[bytes | None, list[tuple[str, bytes | None]] | None]]:
    """Value and headers of the first records, as any consumer gets them."""
    settings = {"group.id": "reader", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings})
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(count, 60)
        return [(message.value(), message.headers()) for message in messages]  # type: ignore[misc]
    finally:
        consumer.close()
