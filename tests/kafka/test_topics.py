"""Topics as streams: how they are made, and what of Samza's configuration decides."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import StreamError
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.systems.base import SystemContext
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.kafka.system import KafkaSystem, open_kafka_system
from grete.systems.records import pack
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

Open = Callable[..., KafkaSystem]


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def open_one(kafka: KafkaCluster) -> Iterator[Open]:
    with ExitStack() as stack:

        def make(**config: str) -> KafkaSystem:
            base = {"job.name": "j", "systems.kafka.producer.bootstrap.servers": kafka.bootstrap}
            one_copy = dict.fromkeys(
                ("systems.kafka.default.stream.replication.factor", "task.checkpoint.replication.factor"), "1"
            )
            settings = {
                **base,
                **one_copy,
                **{key.replace("__", "."): value for key, value in config.items()},
            }
            system = open_kafka_system(SystemContext(Settings.of(settings), "kafka", Path(), SystemClock()))
            stack.callback(system.close)
            return system

        yield make


def test_a_changelog_gets_what_samzas_keys_say(open_one: Open, name: str) -> None:
    system = open_one(
        stores__s__changelog=f"kafka.{name}",
        stores__s__changelog__kafka__retention__ms="7000",
        stores__s__changelog__max__message__bytes="2000000",
        stores__s__changelog__min__compaction__lag__ms="60000",
    )
    system.ensure_stream(StreamSpec(name, 2, compacted=True))
    made = system._topics.config(name)
    wanted = {
        "cleanup.policy": "compact",
        "retention.ms": "7000",
        "max.message.bytes": "2000000",
        "min.compaction.lag.ms": "60000",
        "segment.bytes": "536870912",
    }
    assert {key: made[key] for key in wanted} == wanted


def test_a_changelog_that_deletes_by_age_is_refused(kafka: KafkaCluster, open_one: Open, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    eventually(lambda: name in admin.list_topics(timeout=patient(10)).topics, "the topic is known")
    with pytest.raises(StreamError, match=r"cleanup\.policy=delete"):
        open_one().ensure_stream(StreamSpec(name, 1, compacted=True))


def test_more_copies_than_brokers_say_which_key_to_set(open_one: Open, name: str) -> None:
    system = open_one(stores__s__changelog=f"kafka.{name}", stores__s__changelog__replication__factor="3")
    with pytest.raises(StreamError, match=r"3 copies.*stores\.s\.changelog\.replication\.factor"):
        system.create_stream(StreamSpec(name, 1, compacted=True))


def test_a_stream_grows_and_never_shrinks(open_one: Open, name: str) -> None:
    system = open_one()
    system.create_stream(StreamSpec(name, 2))
    uid = system.stream_uid(name)
    system.add_partitions(name, 4)
    assert (system.partition_count(name), system.stream_uid(name)) == (4, uid)
    with pytest.raises(StreamError, match="cannot have 3"):
        system.add_partitions(name, 3)


def test_a_time_is_an_offset(kafka: KafkaCluster, open_one: Open, name: str) -> None:
    system = open_one()
    system.create_stream(StreamSpec(name, 1))
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for time_ms in (1_000, 2_000, 3_000):
        producer.produce(name, b"v", timestamp=time_ms)
    assert producer.flush(30) == 0
    ssp = SystemStreamPartition("kafka", name, 0)
    assert [system.offset_at(ssp, time_ms) for time_ms in (0, 1_500, 3_000, 4_000)] == ["0", "1", "2", "3"]


def test_records_keep_the_time_that_they_were_given(open_one: Open, name: str) -> None:
    system = open_one(task__commit__groups="1")
    system.create_stream(StreamSpec(name, 1))
    times_ms = [1_700_000_000_000, 1_600_000_000_000, 1_700_000_000_001]
    sent = SegmentWrite(name, 0, 3, pack([b"k"] * 3, [b"v"] * 3, times_ms))
    system.commit(CommitGroup([Fence(f"container/{name}", 1)], [sent], f"log-{name}", []))
    assert [t for _, batch in system.read(name, 0, 0) for t in batch.column(2).to_pylist()] == times_ms
