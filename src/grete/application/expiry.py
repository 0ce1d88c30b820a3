"""Entries of a store that expire (`stores.*.rocksdb.ttl.ms`): a value carries the time at which it was put.

In memory and in the store's file such a value is *stamped*: eight bytes of milliseconds before its own, in the order
of the times. In the changelog the time is the record's own, so age counts from the put, whoever reads the entry back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from grete.application.serdes import StreamSerdes
from grete.application.store import B, TaskStore

STAMP_BYTES = 8
_STAMP = struct.Struct(">Q")


def stamp(time_ms: int) -> bytes:
    """A time as stamps have it. Before 1970 there is none: a record without a time has expired."""
    return _STAMP.pack(max(0, time_ms))


def stamped(values: Iterable[bytes | None], times_ms: Iterable[int]) -> Iterator[bytes | None]:
    """The values with their times; a deletion has none."""
    for value, time_ms in zip(values, times_ms, strict=True):
        yield None if value is None else stamp(time_ms) + value


def unstamped(values: Iterable[bytes | None], now_ms: int) -> tuple[list[bytes | None], list[int]]:
    """Values and times of what is stamped; a deletion happens now."""
    own: list[bytes | None] = []
    times_ms: list[int] = []
    for value in values:
        own.append(None if value is None else value[STAMP_BYTES:])
        times_ms.append(now_ms if value is None else _STAMP.unpack_from(value)[0])
    return own, times_ms


def oldest_living(ttl_ms: int, now_ms: int) -> bytes:
    """The stamp below which entries are older than `ttl_ms`."""
    return stamp(now_ms - ttl_ms)


def without_expired(entries: Mapping[bytes, bytes], ttl_ms: int, now_ms: int) -> dict[bytes, bytes]:
    """The entries that live, without their stamps."""
    bound = oldest_living(ttl_ms, now_ms)
    return {key: value[STAMP_BYTES:] for key, value in entries.items() if value >= bound}


class ExpiringStore(TaskStore[B]):
    """A store whose entries are gone, for its task, as soon as they are older than `ttl_ms`. A put begins anew."""

    def __init__(self, file: B, serdes: StreamSerdes, ttl_ms: int, now_ms: Callable[[], int]) -> None:
        super().__init__(file, serdes)
        self._ttl_ms = ttl_ms
        self._now_ms = now_ms
        self._to_bytes = self._value_to_bytes
        self._from_bytes = self._value_from_bytes
        self._value_to_bytes = self._stamped
        self._value_from_bytes = self._living

    def _stamped(self, value: Any) -> bytes | None:
        data = self._to_bytes(value)
        return None if data is None else stamp(self._now_ms()) + data

    def _living(self, data: bytes | None) -> Any:
        assert data is not None, "of a key that is not there nothing is read"
        is_living = data >= oldest_living(self._ttl_ms, self._now_ms())
        return self._from_bytes(data[STAMP_BYTES:]) if is_living else None

    def _scan(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[Any, Any]]:
        for key, data in self._entries(first, last):
            if data >= oldest_living(self._ttl_ms, self._now_ms()):
                yield self._key_from_bytes(key), self._from_bytes(data[STAMP_BYTES:])


def task_store(file: B, serdes: StreamSerdes, ttl_ms: int | None, now_ms: Callable[[], int]) -> TaskStore[B]:
    """A task's view of a store, with or without expiry."""
    return TaskStore(file, serdes) if ttl_ms is None else ExpiringStore(file, serdes, ttl_ms, now_ms)
