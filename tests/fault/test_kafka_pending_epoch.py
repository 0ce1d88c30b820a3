"""An epoch whose transaction brokers have ended without a word to its readers: they did so when one was killed as it
wrote the marker, and no coordinator could be elected any more.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import Fenced
from grete.kafka.epoch import group_beside, writer_id
from grete.kafka.epoch_topic import place_of_epochs
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.systems.factory import open_system
from grete.testing.kafka_broker import KafkaCluster
from grete.wire.java_hash import string_hash

pytestmark = pytest.mark.fault
SCOPE = "job/pending"
_HEAD = struct.Struct(">qi")
_CONTROL = 0x20


def test_an_epoch_that_stays_pending_is_settled_by_who_claims_next_and_counts(cluster: KafkaCluster) -> None:
    name = f"pending-{uuid.uuid4().hex[:8]}"
    with opened(cluster, name) as log:
        log.claim(Fence(SCOPE, 1))
        log.append([Entry(b"a", b"1")], fence=Fence(SCOPE, 1))
    with opened(cluster, name) as log:
        log.claim(Fence(SCOPE, 2))
    lose_last_marker(cluster)
    assert is_pending(cluster, name), "what the broker has lost keeps it so, for ever"
    with opened(cluster, name) as log:
        with pytest.raises(Fenced, match="2"):
            log.claim(Fence(SCOPE, 2))
        log.claim(Fence(SCOPE, 3))
        log.append([Entry(b"b", b"2")], fence=Fence(SCOPE, 3))
        assert [record.key for record in log.read()] == [b"a", b"b"]
    assert not is_pending(cluster, name)


@pytest.mark.nightly  # three brokers; the test above settles one
def test_the_right_of_an_executors_epoch_that_stays_pending_is_settled_as_well(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    scope = f"container/pending-{uuid.uuid4().hex[:8]}/0"
    config = {
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.producer.bootstrap.servers": cluster.bootstrap,
        "systems.kafka.default.stream.replication.factor": "1",
        "task.checkpoint.replication.factor": "1",
    }

    def begin(epoch: int) -> int:
        with closing(open_system(Settings.of(config), "kafka", tmp_path, SystemClock())) as system:
            return system.begin_epoch(Fence(scope, epoch)).epoch

    assert [begin(1), begin(2)] == [1, 2]
    lose_last_marker(cluster)
    assert begin(3) == 3


def opened(cluster: KafkaCluster, name: str) -> closing[KafkaKeyedLog]:
    settings = KafkaLogSettings({"bootstrap.servers": cluster.bootstrap}, replication_factor=1)
    return closing(KafkaKeyedLog(name, settings, SystemClock()))


def is_pending(cluster: KafkaCluster, name: str) -> bool:
    """Whether who waits for transactions gets no answer for the epoch's group."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": writer_id(name, SCOPE),
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.committed([place_of_epochs()], timeout=5)
    except KafkaException:
        return True
    finally:
        consumer.close()
    return False


def lose_last_marker(cluster: KafkaCluster) -> None:
    """Kill the broker, and let it come back as if the last marker among its offsets had never been written."""
    cluster.kill()
    [offsets] = cluster.nodes[0].directory.glob("log/__consumer_offsets-0/*0.log")
    cut_off_last_marker(offsets)
    cluster.restart()


def cut_off_last_marker(segment: Path) -> None:
    """Let the log end before its last batch, which has to be the marker of a transaction."""
    *_, (place, is_marker) = batches(segment.read_bytes())
    assert is_marker
    with segment.open("r+b") as file:
        file.truncate(place)


def batches(data: bytes) -> Iterator[tuple[int, bool]]:
    """Where each batch begins, and whether it is a marker."""
    place = 0
    while place + 61 <= len(data):
        _, length = _HEAD.unpack_from(data, place)
        if length <= 0:
            return
        (attributes,) = struct.unpack_from(">h", data, place + 21)
        yield place, bool(attributes & _CONTROL)
        place += _HEAD.size + length


@pytest.mark.parametrize("partitions", [1, 7, 50])
def test_a_group_beside_another_has_its_offsets_in_the_same_partition(partitions: int) -> None:
    for group in ("grete-log-scope-job/a", "grete-__samza_coordinator_ä_1-scope-job/ä-1"):
        beside = group_beside(group, partitions)
        assert beside != group
        assert beside.startswith(group)
        assert abs(string_hash(beside)) % partitions == abs(string_hash(group)) % partitions
