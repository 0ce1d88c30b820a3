"""Settings of speed in Samza's `producer.*` and `consumer.*` apply; those that weaken a promise do not."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.kafka.kafka_job import Job

from grete.checkpoint.names import checkpoint_log_name
from grete.testing.kafka_broker import KafkaCluster

_BATCH_HEAD = struct.Struct(">qiibIh")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def codecs(cluster: KafkaCluster, topic: str) -> list[str]:
    """How each batch of a topic's data is compressed on the broker's disk; transactions' marks left out."""
    folders = sorted((cluster.nodes[0].directory / "log").glob(f"{topic}-[0-9]*"))
    return [
        codec for folder in folders for file in sorted(folder.glob("*.log")) for codec in _codecs_of(file)
    ]


def _codecs_of(file: Path) -> Iterator[str]:
    data, place = file.read_bytes(), 0
    while place + _BATCH_HEAD.size <= len(data):
        _, length, _, _, _, attributes = _BATCH_HEAD.unpack_from(data, place)
        if length <= 0:  # segments are written into files of their final size
            return
        if not attributes & 0x20:
            yield _CODECS[attributes & 7]
        place += 12 + length


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_outputs_changelogs_and_checkpoints_are_compressed_as_samza_would(
    kafka: KafkaCluster, tmp_path: Path, codec: str
) -> None:
    producer = "systems.kafka.producer."
    config = {
        f"{producer}compression.type": codec,
        f"{producer}linger.ms": "5",
        f"{producer}acks": "0",
        f"{producer}enable.idempotence": "false",
        f"{producer}transactional.id": "mine",
        "systems.kafka.consumer.client.rack": "r1",
        "systems.kafka.consumer.isolation.level": "read_uncommitted",
        "systems.kafka.consumer.fetch.max.wait.ms": "10",
    }
    with closing(Job(kafka.bootstrap, tmp_path, config=config)) as job:
        with closing(job.container(1)) as container:
            worker = container.worker()
            for _ in range(2):
                job.fill(400)
                assert container.run(worker).records == 400
        job.assert_exactly_once()
        for topic in (job.output, job.changelog, checkpoint_log_name(job.job)):
            assert codec in codecs(kafka, topic), topic


def test_without_a_word_nothing_is_compressed(kafka: KafkaCluster, tmp_path: Path) -> None:
    with closing(Job(kafka.bootstrap, tmp_path)) as job, closing(job.container(1)) as container:
        job.fill(100)
        container.run(container.worker())
        assert set(codecs(kafka, job.output)) == {"none"}
