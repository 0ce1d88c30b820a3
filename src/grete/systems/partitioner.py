"""Which partition a key belongs to: by Kafka's default, so that streams can move there and back, or by Samza's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grete.api import Serde
from grete.application.serdes import IntegerSerde, LongSerde, StringSerde
from grete.config.choices import PartitionerChoice
from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.serdes import stream_serdes
from grete.systems.key_hashes import integer_hash, long_hash, murmur2, text_hash

if TYPE_CHECKING:  # a coordinator has partitioners, and no columns
    from grete.arrow import np, npt, pa

    Places = npt.NDArray[np.int32]
    """A partition for each row."""

_REMEMBERED = 200_000
_SIGN = 0x80000000
_POSITIVE = 0x7FFFFFFF


class Partitioner(ABC):
    """Chooses the partition of a key: called with it and the number of partitions, or with a column of keys."""

    @abstractmethod
    def __call__(self, key: bytes, partitions: int) -> int:
        """The partition of one key."""

    @abstractmethod
    def of_each(self, keys: pa.Array, partitions: int) -> Places:
        """The partition of each key of a binary column; of a null any."""


class RememberedPartitioner(Partitioner):
    """Chooses by a function of one key, whose answers it remembers, since they cost more than the rest."""

    def __init__(self, choose: Callable[[bytes, int], int]) -> None:
        """`choose` may give another answer for a key that it was asked for before."""
        self._choose = choose
        self._known: dict[tuple[int, bytes], int] = {}

    def __call__(self, key: bytes, partitions: int) -> int:
        """See Partitioner; not remembered."""
        return self._choose(key, partitions)

    def of_each(self, keys: pa.Array, partitions: int) -> Places:
        """See Partitioner."""
        from grete.arrow import np

        if len(self._known) > _REMEMBERED:
            self._known.clear()
        known = keys.dictionary_encode()
        chosen = np.array([self._place(key, partitions) for key in known.dictionary.to_pylist()], np.int32)
        return chosen[known.indices.fill_null(0)] if len(chosen) else np.zeros(len(keys), np.int32)

    def _place(self, key: bytes, partitions: int) -> int:
        found = self._known.get((partitions, key))
        if found is None:
            found = self._known[partitions, key] = self._choose(key, partitions)
        return found


class HashPartitioner(Partitioner):
    """Chooses by a hash of 32 bits."""

    def __init__(self, hash_of: Callable[[bytes], int], without_sign: Callable[[Any], Any]) -> None:
        """`hash_of` is one of `key_hashes`; `without_sign` makes a number of a hash, and of an array of hashes."""
        self._hash_of = hash_of
        self._without_sign = without_sign

    def __call__(self, key: bytes, partitions: int) -> int:
        """See Partitioner."""
        return int(self._without_sign(self._hash_of(key))) % partitions

    def of_each(self, keys: pa.Array, partitions: int) -> Places:
        """See Partitioner."""
        from grete.systems.key_columns import hashes_of

        numbers: npt.NDArray[np.int64] = self._without_sign(hashes_of(keys, self._hash_of).astype("int64"))
        return (numbers % partitions).astype("int32")


def _cleared(hashes: Any) -> Any:
    """As Kafka's client does it."""
    return hashes & _POSITIVE


def _absolute(hashes: Any) -> Any:
    """As Samza's producer does it: the smallest number, which has no absolute value, is 0."""
    return abs((hashes ^ _SIGN) - _SIGN) & _POSITIVE


partition_of = HashPartitioner(murmur2, _cleared)
"""The partition that Kafka's Java client chooses for a record with a key."""


def samza_partition_of(serde: Serde) -> Partitioner:
    """The partitioner of Samza's Kafka producer: the key object's `hashCode`, whose sign is dropped.

    Java's hash of an array is its address and that of a JSON document depends on its classes, so such keys go where
    Kafka's own partitioner puts them. Strings, integers and longs go where the real Samza puts them.
    """
    if isinstance(serde, StringSerde):
        return HashPartitioner(text_hash, _absolute)
    if isinstance(serde, IntegerSerde):
        return HashPartitioner(integer_hash, _absolute)
    if isinstance(serde, LongSerde):
        return HashPartitioner(long_hash, _absolute)
    return partition_of


def kafka_partitioner(
    settings: Settings, stream: SystemStream, key_serde: Serde | None = None
) -> Partitioner:
    """What chooses an output's partitions on Kafka: `samza.partitioner` of the stream or its system.

    Without either it is Samza's, so that a ported job's keys stay where they are. `key_serde` is as in System's; when
    it is not given it is loaded.

    Raises:
        ConfigError: another name; or it is Samza's, and this process cannot load the serde of keys.
    """
    if settings.stream(stream).partitioner is PartitionerChoice.KAFKA:
        return partition_of
    return samza_partition_of(key_serde or stream_serdes(stream, settings).key)
