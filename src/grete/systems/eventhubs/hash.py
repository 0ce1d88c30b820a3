"""To which partition Event Hubs itself sends a key: Bob Jenkins' lookup3 (public domain), folded to 16 bits.

Producers that speak AMQP leave the choice to the service, those that speak Kafka choose themselves. With the
service's own hash a key goes to the same partition from every sender.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from grete.api import Serde
from grete.application.serdes import IntegerSerde
from grete.config.choices import HubPartitioning
from grete.config.key_tables import eventhubs as keys
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.serdes import stream_serdes
from grete.systems.partitioner import Partitioner, RememberedPartitioner

if TYPE_CHECKING:
    from grete.arrow import pa
    from grete.systems.partitioner import Places

_MASK = 0xFFFFFFFF
_START = 0xDEADBEEF
_BLOCK = struct.Struct("<III")
_MIX = (4, 6, 8, 16, 19, 4)
_FINAL = (14, 11, 25, 16, 4, 14, 24)
_LONGEST = 128
"""Samza gives the service no more of a key than so many characters."""


def hub_partitioner(settings: Settings, stream: SystemStream, key_serde: Serde | None = None) -> Partitioner:
    """The partitioner of an output: `systems.<system>.eventhubs.partition.method`. `key_serde` is as in System's.

    Raises:
        ConfigError: the method is none, or keys that number a partition are no integers.
    """
    method = settings.hubs(stream.system).partitioning
    serde = key_serde or stream_serdes(stream, settings).key
    if method is HubPartitioning.ROUND_ROBIN:
        return _InTurn()
    if method is HubPartitioning.HASHING:
        text = _key_text(serde)
        return RememberedPartitioner(lambda key, partitions: partition_of_key(text(key), partitions))
    if not isinstance(serde, IntegerSerde):
        raise ConfigError(
            f"{keys.PARTITION_METHOD.named(stream.system)}={method}: keys of {stream} number partitions, so their "
            f"serde is integer; set samza.key.serde of the stream"
        )
    return RememberedPartitioner(lambda key, partitions: int.from_bytes(key, "big", signed=True) % partitions)


class _InTurn(Partitioner):
    """One after the other, whatever the keys are."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, key: bytes, partitions: int) -> int:
        """See Partitioner."""
        self._next += 1
        return (self._next - 1) % partitions

    def of_each(self, keys: pa.Array, partitions: int) -> Places:
        """See Partitioner."""
        from grete.arrow import np

        first, self._next = self._next, self._next + len(keys)
        return (np.arange(first, self._next) % partitions).astype(np.int32)


def _key_text(serde: Serde) -> Callable[[bytes], bytes]:
    """The text that Samza gives the service as a partition key."""
    if isinstance(serde, IntegerSerde):
        return lambda key: str(int.from_bytes(key, "big", signed=True)).encode()
    return lambda key: key.decode("utf-8", "replace")[:_LONGEST].encode()


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key."""
    if not key:
        return 0
    one, other = lookup3(key)
    folded = (one ^ other) & 0xFFFF
    signed = folded - 0x10000 if folded & 0x8000 else folded
    return abs(signed) % partitions


def lookup3(data: bytes) -> tuple[int, int]:
    """The two 32 bit hashes of `hashlittle2` with both seeds 0."""
    a = b = c = (_START + len(data)) & _MASK
    if not data:
        return c, b
    whole = (len(data) - 1) // 12 * 12  # the last block, even a full one, is left for the end
    for x, y, z in _BLOCK.iter_unpack(data[:whole]):
        a, b, c = _mixed((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)
    x, y, z = _BLOCK.unpack(data[whole:].ljust(12, b"\0"))
    return _finished((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)


def _turned(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for by in _MIX:
        a = ((a - c) & _MASK) ^ _turned(c, by)
        c = (c + b) & _MASK
        a, b, c = b, c, a
    return a, b, c


def _finished(a: int, b: int, c: int) -> tuple[int, int]:
    for by in _FINAL:
        c = ((c ^ b) - _turned(b, by)) & _MASK
        a, b, c = b, c, a
    return b, a
