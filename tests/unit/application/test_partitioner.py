"""Where keys go on Kafka: as the real Samza and as Kafka's own producer put them."""

from __future__ import annotations

from functools import partial

import pytest

from grete.application.collector import CarriedOutput
from grete.application.serdes import BytesSerde, IntegerSerde, JsonSerde, LongSerde, StreamSerdes, StringSerde
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.systems.partitioner import kafka_partitioner, partition_of, samza_partition_of
from grete.systems.placement import Placement
from grete.tasks.isolated.outputs import PlacedOutput

OUT = SystemStream("kafka", "out")


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [("hello", 99162322), ("", 0), ("key1", 3288498), ("polygenelubricants", 0), ("Grüße", 69215351)],
)
def test_strings_go_by_their_java_hash(key: str, hash_code: int) -> None:
    """The fourth is a string whose hash is the smallest integer has no absolute value, so it goes to 0."""
    choose = samza_partition_of(StringSerde())
    assert choose(key.encode(), 1 << 31) == hash_code


def test_integers_and_longs_go_by_theirs() -> None:
    integer, long = samza_partition_of(IntegerSerde()), samza_partition_of(LongSerde())
    assert integer(IntegerSerde().to_bytes(-7) or b"", 5) == 2
    assert long(LongSerde().to_bytes(7) or b"", 5) == 2
    assert long(LongSerde().to_bytes(-1) or b"", 5) == 0
    assert long(LongSerde().to_bytes((3 << 32) + 1) or b"", 5) == 2


@pytest.mark.parametrize("serde", [BytesSerde(), JsonSerde()])
def test_other_keys_go_where_kafka_puts_them(serde: BytesSerde) -> None:
    choose = samza_partition_of(serde)
    assert all(choose(key, 7) == partition_of(key, 7) for key in (b"a", b"bc", b"\x00\xff"))


def test_a_stream_or_its_system_chooses() -> None:
    serde = {"systems.kafka.samza.key.serde": "string"}
    samza = samza_partition_of(StringSerde())
    keys = [b"%d" % number for number in range(50)]
    by_default = kafka_partitioner(Settings.of(serde), OUT)
    assert [by_default(key, 8) for key in keys] == [samza(key, 8) for key in keys]
    for setting in ("streams.out.samza.partitioner", "systems.kafka.default.stream.samza.partitioner"):
        chosen = kafka_partitioner(Settings.of({**serde, setting: "kafka"}), OUT)
        assert [chosen(key, 8) for key in keys] == [partition_of(key, 8) for key in keys]
    with pytest.raises(ConfigError, match="one of samza, kafka"):
        kafka_partitioner(Settings.of({"streams.out.samza.partitioner": "murmur"}), OUT)


def test_keys_whose_serde_is_in_the_applications_process_are_refused_where_it_cannot_be_asked() -> None:
    """A task's process says what its class derives from; a command that writes by itself has no such process."""
    config = {
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.streams.out.samza.key.serde": "own",
        "serializers.registry.own.class": "mine:Own",
        "job.split.deployment.enabled": "true",
    }
    with pytest.raises(
        ConfigError, match=r"'own' is not in the framework's environment.*samza\.partitioner=kafka"
    ):
        kafka_partitioner(Settings.of(config), OUT)
    said = {**config, "systems.kafka.streams.out.samza.partitioner": "kafka"}
    assert kafka_partitioner(Settings.of(said), OUT) is partition_of


def test_keys_of_a_task_go_where_the_serde_that_its_own_derives_from_puts_them_in_both_modes() -> None:
    """The application's process names the serde of ours; the class is loaded there alone."""

    class Own(LongSerde):
        """As an application derives one."""

    keys = [Own().to_bytes(number << 20) or b"" for number in range(50)]
    there = CarriedOutput("kafka.out", StreamSerdes(Own(), JsonSerde()), 8, 1 << 20)
    for key in keys:
        there.keys.append(key)
        there.values.append(b"1")
        there.timestamps_ms.append(0)
    [((_, key_base, _), blobs)] = there.take()
    by_its_serde = partial(kafka_partitioner, Settings.of({}), OUT)
    here = PlacedOutput("out", 8, 1 << 20, lambda serde: Placement(8, by_its_serde(serde), 0))
    here.add([bytes(one) for one in blobs], None, key_base)
    placed = {key: partition for _, partition, batch in here.take() for key in batch.column(0).to_pylist()}
    in_the_worker = kafka_partitioner(Settings.of({}), OUT, Own())
    assert placed == {key: in_the_worker(key, 8) for key in keys}
    assert placed != {key: partition_of(key, 8) for key in keys}
