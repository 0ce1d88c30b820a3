"""Where keys go on Kafka: as the real Samza and as Kafka's own producer put them."""

from __future__ import annotations

import pytest

from grete.application.serdes import BytesSerde, IntegerSerde, JsonSerde, LongSerde, StringSerde
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.systems.partitioner import kafka_partitioner, partition_of, samza_partition_of

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


def test_keys_of_a_serde_in_the_applications_process_go_nowhere_until_it_is_said_where() -> None:
    """Its class may derive from one of ours, by which they went while the application had no process of its own."""
    config = {
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.streams.out.samza.key.serde": "own",
        "serializers.registry.own.class": "mine:Own",
        "job.split.deployment.enabled": "true",
    }
    key = "systems.kafka.streams.out.samza.partitioner"
    with pytest.raises(ConfigError, match=f"'own' of kafka.out.*{key}=kafka"):
        kafka_partitioner(Settings.of(config), OUT)
    said = {**config, key: "kafka"}
    assert kafka_partitioner(Settings.of(said), OUT) is partition_of
