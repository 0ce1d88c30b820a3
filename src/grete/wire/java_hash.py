"""java.util.HashMap's iteration order (OpenJDK 17), because Samza's bytes depend on it.

A job model's configuration, tasks and SSP sets go to JSON in HashMap order, and the job model id is a checksum of
that JSON. So the table is built as Java builds it: its size and growth, the order inside a bin, and the bins that
become red-black trees, where an insertion moves the root to the front.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from operator import mul
from typing import Any, Generic, TypeVar

from grete.model.ids import SystemStream, SystemStreamPartition
from grete.wire.java_tree import TreeBin

K = TypeVar("K", bound=Hashable)

_MASK = 0xFFFFFFFF
_TREEIFY = 8
_UNTREEIFY = 6
_MIN_TREE_CAPACITY = 64
_INITIAL_CAPACITY = 16
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(64)][::-1]


def _signed(number: int) -> int:
    number &= _MASK
    return number - (1 << 32) if number >= 1 << 31 else number


def string_hash(text: str) -> int:
    """java.lang.String.hashCode: over UTF-16 code units."""
    result = 0
    if text.isascii() and len(text) <= len(_POWERS):
        return _signed(sum(map(mul, text.encode("ascii"), _POWERS[-len(text) :])))
    if text.isascii():
        for byte in text.encode("ascii"):
            result = (result * 31 + byte) & _MASK
    else:
        data = text.encode("utf-16-le", "surrogatepass")
        for i in range(0, len(data), 2):
            result = (result * 31 + (data[i] | data[i + 1] << 8)) & _MASK
    return _signed(result)


@lru_cache(maxsize=4096)
def system_stream_hash(system: str, stream: str) -> int:
    """org.apache.samza.system.SystemStream.hashCode."""
    return _signed(31 * (31 + string_hash(stream)) + string_hash(system))


def ssp_hash(ssp: SystemStreamPartition) -> int:
    """SystemStreamPartition.hashCode. The key bucket never counts: the hash is computed before the field is set."""
    return _signed(31 * (31 * system_stream_hash(ssp.system, ssp.stream) + ssp.partition))


def java_hash(key: Any) -> int:
    """hashCode of the kinds of keys that Samza puts into hash maps."""
    if isinstance(key, str):
        return string_hash(key)
    if isinstance(key, SystemStreamPartition):
        return ssp_hash(key)
    if isinstance(key, SystemStream):
        return system_stream_hash(key.system, key.stream)
    if isinstance(key, int):
        return key
    raise TypeError(f"no Java hash is known for {type(key).__name__}")


def _spread(hash_code: int) -> int:
    unsigned = hash_code & _MASK
    return unsigned ^ (unsigned >> 16)


def _table_size_for(capacity: int) -> int:
    return 1 if capacity <= 1 else 1 << (capacity - 1).bit_length()


def hash_set_order(items: Iterable[K]) -> tuple[K, ...]:
    """The items in the order of a HashSet to which they were added in turn; one item needs no table."""
    listed = tuple(items)
    return listed if len(listed) < 2 else tuple(JavaHashMap.of(listed))


class JavaHashMap(Generic[K]):
    """The keys of a java.util.HashMap, iterated as Java does. Also a HashSet, which is a HashMap inside."""

    def __init__(
        self, initial_capacity: int | None = None, *, hash_of: Callable[[Any], int] = java_hash
    ) -> None:
        self._hash_of = hash_of
        self._threshold = 0 if initial_capacity is None else _table_size_for(initial_capacity)
        self._table: list[list[tuple[int, K]] | TreeBin[K] | None] | None = None
        self._present: set[K] = set()

    def __len__(self) -> int:
        return len(self._present)

    def __contains__(self, key: K) -> bool:
        return key in self._present

    def __iter__(self) -> Iterator[K]:
        for entries in self._table or []:
            if entries:
                for _, key in entries:
                    yield key

    @property
    def has_shared_bins(self) -> bool:
        """Whether the order depends on the order in which keys came: some bin has two."""
        return any(entries is not None and len(list(entries)) > 1 for entries in self._table or [])

    @classmethod
    def hash_set_of(cls, items: Iterable[K]) -> JavaHashMap[K]:
        """new HashSet(collection): sized for it beforehand."""
        listed = list(items)
        made: JavaHashMap[K] = cls(max(int(len(listed) / 0.75) + 1, 16))
        for item in listed:
            made.put(item)
        return made

    @classmethod
    def of(cls, keys: Iterable[K]) -> JavaHashMap[K]:
        """new HashMap(), each key put in turn."""
        made: JavaHashMap[K] = cls()
        made.put_first(keys)
        return made

    def put_first(self, keys: Iterable[K]) -> None:
        """put, key by key, into a map that is empty and was given no capacity."""
        assert self._table is None
        assert self._threshold == 0
        listed = list(dict.fromkeys(keys))
        if not self._fill(listed):
            self.put_each(listed)

    def _fill(self, keys: list[K]) -> bool:
        """Put all of these keys into an empty map at once; false when it is not that simple.

        A bin keeps the order in which its keys came, through every resize, unless it has grown too long on the
        way: then it becomes a tree, or the table doubles early. So the bins of each size on the way are counted.
        """
        hash_of = self._hash_of
        spreads = [_spread(hash_of(key)) for key in keys]
        capacity = _INITIAL_CAPACITY
        while True:
            threshold = int(capacity * 0.75)
            there = spreads if len(keys) <= threshold else spreads[: threshold + 1]
            mask = capacity - 1
            if there and max(Counter([spread & mask for spread in there]).values()) > _TREEIFY:
                return False
            if len(keys) <= threshold:
                break
            capacity *= 2
        table: list[list[tuple[int, K]] | TreeBin[K] | None] = [None] * capacity
        for spread, key in zip(spreads, keys, strict=True):
            entries = table[spread & mask]
            if entries is None:
                table[spread & mask] = [(spread, key)]
            else:
                assert isinstance(entries, list)
                entries.append((spread, key))
        self._table, self._threshold, self._present = table, threshold, set(keys)
        return True

    @classmethod
    def copy_of(cls, keys: Iterable[K]) -> JavaHashMap[K]:
        """new HashMap(map): the keys in the other map's iteration order, the table sized for them."""
        made: JavaHashMap[K] = cls()
        made.put_all(keys)
        return made

    def put_all(self, keys: Iterable[K]) -> None:
        """putAll: an empty map is sized for the keys first."""
        listed = list(keys)
        if not listed:
            return
        if self._table is None:
            wanted = int(len(listed) / 0.75 + 1.0)
            if wanted > self._threshold:
                self._threshold = _table_size_for(wanted)
        else:
            while len(listed) > self._threshold:
                self._resize()
        for key in listed:
            self.put(key)

    def put_each(self, keys: Iterable[K]) -> None:
        """put, key by key."""
        for key in keys:
            self.put(key)

    def put(self, key: K) -> None:
        """put: a key that is there keeps its place."""
        if self._table is None:
            self._resize()
        if key in self._present:
            return
        assert self._table is not None
        self._present.add(key)
        spread = _spread(self._hash_of(key))
        index = spread & (len(self._table) - 1)
        entries = self._table[index]
        if entries is None:
            self._table[index] = [(spread, key)]
        elif isinstance(entries, TreeBin):
            entries.insert(spread, key)
        else:
            entries.append((spread, key))
            if len(entries) > _TREEIFY:
                self._treeify(index)
        if len(self._present) > self._threshold:
            self._resize()

    def _treeify(self, index: int) -> None:
        assert self._table is not None
        if len(self._table) < _MIN_TREE_CAPACITY:
            self._resize()
        else:
            entries = self._table[index]
            assert isinstance(entries, list)
            self._table[index] = TreeBin(entries)

    def _resize(self) -> None:
        """Double the table; every bin splits into two that keep its order."""
        old = self._table
        if old is None:
            capacity = self._threshold or _INITIAL_CAPACITY
            self._table = [None] * capacity
            self._threshold = int(capacity * 0.75)
            return
        capacity = len(old)
        self._table = [None] * (capacity * 2)
        self._threshold = int(capacity * 2 * 0.75)
        for index, entries in enumerate(old):
            if entries:
                self._split(index, capacity, entries)

    def _split(self, index: int, capacity: int, entries: list[tuple[int, K]] | TreeBin[K]) -> None:
        assert self._table is not None
        low = [entry for entry in entries if not entry[0] & capacity]
        high = [entry for entry in entries if entry[0] & capacity]
        for target, part, other in ((index, low, high), (index + capacity, high, low)):
            if not part:
                continue
            if not isinstance(entries, TreeBin) or len(part) <= _UNTREEIFY:
                self._table[target] = part
            elif other:
                self._table[target] = TreeBin(part)
            else:
                self._table[target] = entries

    def remove(self, key: K) -> None:
        """remove: the others keep their order."""
        if key not in self._present:
            return
        assert self._table is not None
        self._present.discard(key)
        index = _spread(self._hash_of(key)) & (len(self._table) - 1)
        entries = self._table[index]
        assert entries is not None
        if isinstance(entries, TreeBin):
            self._table[index] = entries.remove(key)
        else:
            self._table[index] = [entry for entry in entries if entry[1] != key] or None
