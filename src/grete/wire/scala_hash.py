"""The order of Scala 2.12's hash maps, through which Samza's input streams and read checkpoints pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x9E3775CD
_FIRST_BITS = 4


def _improve(hash_code: int, rotation: int) -> int:
    mixed = (hash_code * _MULTIPLIER) & _MASK
    mixed = int.from_bytes(mixed.to_bytes(4, "little"), "big")
    mixed = (mixed * _MULTIPLIER) & _MASK
    return ((mixed >> rotation) | (mixed << (32 - rotation))) & _MASK


def mutable_map_order(items: Sequence[T], hash_of: Callable[[T], int]) -> list[T]:
    """Iteration order after inserting the items in turn: buckets from the last to the first, newest first in each.

    A table that grows takes the entries in that order, so it turns the entries of each bucket round. How hashes are
    mixed is decided by the first table's size.
    """
    table: list[list[T]] = [[] for _ in range(1 << _FIRST_BITS)]
    for count, item in enumerate(items, start=1):
        _insert(table, item, hash_of)
        if count > len(table) * 3 // 4:
            grown: list[list[T]] = [[] for _ in range(2 * len(table))]
            for earlier in _iterated(table):
                _insert(grown, earlier, hash_of)
            table = grown
    return _iterated(table)


def _insert(table: list[list[T]], item: T, hash_of: Callable[[T], int]) -> None:
    bits = len(table).bit_length() - 1
    table[_improve(hash_of(item), _FIRST_BITS) >> (32 - bits)].insert(0, item)


def _iterated(table: Sequence[Sequence[T]]) -> list[T]:
    return [item for bucket in reversed(table) for item in bucket]


def immutable_map_order(items: Sequence[T], hash_of: Callable[[T], int]) -> list[T]:
    """Iteration order of `toMap` and `toSet`: up to four entries as they came, more by a trie over their hashes."""
    return list(items) if len(items) <= 4 else sorted(items, key=lambda item: _trie_path(hash_of(item)))


def _trie_path(hash_code: int) -> tuple[int, ...]:
    mixed = (hash_code + ~(hash_code << 9)) & _MASK
    mixed ^= mixed >> 14
    mixed = (mixed + (mixed << 4)) & _MASK
    mixed ^= mixed >> 10
    return tuple((mixed >> shift) & 31 for shift in range(0, 35, 5))
