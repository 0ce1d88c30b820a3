"""Which partition a key belongs to: by Kafka's default, so that streams can move there and back, or by Samza's."""

from __future__ import annotations

from collections.abc import Callable

from grete.api import Serde
from grete.application.serdes import IntegerSerde, LongSerde, StringSerde
from grete.config.choices import PartitionerChoice
from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.serdes import stream_serdes
from grete.wire.java_hash import string_hash

Partitioner = Callable[[bytes, int], int]
"""(key, number of partitions) -> partition."""

_INT_MIN = -(1 << 31)
_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 with its seed, as an unsigned 32-bit number."""
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's Java client chooses for a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def samza_partition_of(serde: Serde) -> Partitioner:
    """The partitioner of Samza's Kafka producer: the key object's `hashCode`, whose sign is dropped.

    Java's hash of an array is its address and that of a JSON document depends on its classes, so such keys go where
    Kafka's own partitioner puts them. Strings, integers and longs go where the real Samza puts them.
    """
    hash_of = _hash_of(serde)

    def choose(key: bytes, partitions: int) -> int:
        hash_code = hash_of(key)
        if hash_code is None:
            return partition_of(key, partitions)
        return 0 if hash_code == _INT_MIN else abs(hash_code) % partitions

    return choose


def _hash_of(serde: Serde) -> Callable[[bytes], int | None]:
    if isinstance(serde, StringSerde):
        return lambda key: string_hash(key.decode("utf-8", "replace"))
    if isinstance(serde, IntegerSerde):
        return lambda key: int.from_bytes(key, "big", signed=True)
    if isinstance(serde, LongSerde):
        return _long_hash
    return lambda key: None


def _long_hash(key: bytes) -> int:
    number = int.from_bytes(key, "big")
    return int.from_bytes(((number ^ number >> 32) & _MASK).to_bytes(4, "big"), "big", signed=True)


def kafka_partitioner(
    settings: Settings, stream: SystemStream, key_serde: Serde | None = None
) -> Partitioner:
    """The function that chooses an output's partitions on Kafka: `samza.partitioner` of the stream or its system.

    Without either it is Samza's, so that a ported job's keys stay where they are. `key_serde` is as in System's; when
    it is not given it is loaded.

    Raises:
        ConfigError: another name; or it is Samza's, and this process cannot load the serde of keys.
    """
    if settings.stream(stream).partitioner is PartitionerChoice.KAFKA:
        return partition_of
    return samza_partition_of(key_serde or stream_serdes(stream, settings).key)
