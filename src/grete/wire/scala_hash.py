"""The order of Scala 2.12's hash maps, through which Samza's input streams and read checkpoints pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x9E3775CD


def _improve(hash_code: int, rotation: int) -> int:
    mixed = (hash_code * _MULTIPLIER) & _MASK
    mixed = int.from_bytes(mixed.to_bytes(4, "little"), "big")
    mixed = (mixed * _MULTIPLIER) & _MASK
    return ((mixed >> rotation) | (mixed << (32 - rotation))) & _MASK


def mutable_map_order(items: Sequence[T], hash_of: Callable[[T], int]) -> list[T]:
    """Iteration order after inserting the items in turn: buckets from the last to the first, newest first in each."""
    bits = 4
    while len(items) > (1 << bits) * 3 // 4:
        bits += 1
    buckets: list[list[T]] = [[] for _ in range(1 << bits)]
    for item in items:
        buckets[_improve(hash_of(item), bits) >> (32 - bits)].insert(0, item)
    return [item for bucket in reversed(buckets) for item in bucket]


def immutable_map_order(items: Sequence[T], hash_of: Callable[[T], int]) -> list[T]:
    """Iteration order of `toMap`: up to four entries as they came, more of them by a trie over their hashes."""
    return list(items) if len(items) <= 4 else sorted(items, key=lambda item: _trie_path(hash_of(item)))


def _trie_path(hash_code: int) -> tuple[int, ...]:
    mixed = (hash_code + ~(hash_code << 9)) & _MASK
    mixed ^= mixed >> 14
    mixed = (mixed + (mixed << 4)) & _MASK
    mixed ^= mixed >> 10
    return tuple((mixed >> shift) & 31 for shift in range(0, 35, 5))
