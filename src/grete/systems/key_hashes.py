"""Hashes of one key, each an unsigned number of 32 bits; of columns of keys see `key_columns`."""

from __future__ import annotations

from grete.wire.java_hash import string_hash

SEED = 0x9747B28C
MIX = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 with its seed."""
    length = len(data)
    h = (SEED ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * MIX) & _MASK
        k ^= k >> 24
        k = (k * MIX) & _MASK
        h = ((h * MIX) & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * MIX) & _MASK
    h ^= h >> 13
    h = (h * MIX) & _MASK
    return h ^ (h >> 15)


def text_hash(key: bytes) -> int:
    """The `hashCode` of Java's string of these bytes of UTF-8."""
    return string_hash(key.decode("utf-8", "replace")) & _MASK


def integer_hash(key: bytes) -> int:
    """The `hashCode` of Java's Integer of these bytes."""
    return int.from_bytes(key, "big", signed=True) & _MASK


def long_hash(key: bytes) -> int:
    """The `hashCode` of Java's Long of these bytes."""
    number = int.from_bytes(key, "big")
    return (number ^ number >> 32) & _MASK
