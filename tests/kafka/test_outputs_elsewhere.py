"""A job on Kafka that writes to another cluster and to a file: there before its transaction is committed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.kafka.kafka_job import Job

import grete
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.systems.factory import open_system
from grete.systems.records import rows_of
from grete.testing.kafka_broker import KafkaCluster


class Mirror(grete.StreamTask):
    """Sends each message to its own system and to the others."""

    def init(self, context: grete.TaskContext) -> None:
        self.outputs = context.config["task.outputs"].split(",")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        for stream in self.outputs:
            collector.send(stream, {"at": envelope.offset}, key=envelope.key, headers={"to": stream})


def test_every_system_has_what_was_sent_to_it(kafka: KafkaCluster, tmp_path: Path) -> None:
    name = f"mirrored-{tmp_path.name.replace('_', '-')}"
    others = {
        "systems.mirror.samza.factory": "kafka",
        "systems.mirror.producer.bootstrap.servers": kafka.bootstrap,
        "systems.mirror.default.stream.replication.factor": "1",
        "systems.mirror.samza.key.serde": "string",
        "systems.mirror.samza.msg.serde": "json",
        "systems.disk.samza.factory": "local",
        "systems.disk.path": str(tmp_path / "disk"),
        "systems.disk.samza.key.serde": "string",
        "systems.disk.samza.msg.serde": "json",
        "task.class": f"{__name__}:Mirror",
        "task.outputs": f"kafka.{name}-own,mirror.{name},disk.mirrored",
    }
    with closing(Job(kafka.bootstrap, tmp_path, config=others)) as job:
        job.fill(20)
        container = job.container(1)
        assert container.run(container.worker()).records == 20
        settings = Settings.of(job.config)
        for system, stream in (("kafka", f"{name}-own"), ("mirror", name), ("disk", "mirrored")):
            with closing(open_system(settings, system, tmp_path, SystemClock())) as opened:
                rows = [
                    row
                    for partition in range(opened.partition_count(stream))
                    for first, batch in opened.read(stream, partition, 0)
                    for row in rows_of(first, batch)
                ]
            assert len(rows) == 20
            assert {tuple(row[4]) for row in rows} == {(("to", f"{system}.{stream}".encode()),)}
