"""The KeyValueStore a task sees: a batch's changes in memory over the base in the store's file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from grete.application.serdes import StreamSerdes

_MISSING = object()
_CACHE_LIMIT = 500_000
"""Entries kept in memory between batches per store; beyond it the cache starts again from the file."""


class Base(Protocol):
    """The committed entries, from which a batch begins. Errors are those of `grete.errors`."""

    def get(self, key: bytes) -> bytes | None:
        """The value, None when there is none."""

    def scan(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with first <= key < last in key order; None is unbounded."""


B = TypeVar("B", bound=Base)


class TaskStore(Generic[B]):
    """Implements `grete.KeyValueStore` for one task. Used by one thread."""

    def __init__(self, file: B, serdes: StreamSerdes) -> None:
        self._file = file
        self._key_to_bytes = serdes.key.to_bytes
        self._key_from_bytes = serdes.key.from_bytes
        self._value_to_bytes = serdes.message.to_bytes
        self._value_from_bytes = serdes.message.from_bytes
        self._current: dict[bytes, bytes | None] = {}
        self._changes: dict[bytes, bytes | None] = {}
        self._undo: list[tuple[bytes, Any, Any]] | None = None

    @property
    def file(self) -> B:
        """The file below."""
        return self._file

    def _key(self, key: Any) -> bytes:
        data = self._key_to_bytes(key)
        if data is None:
            raise ValueError("a store's key can not be None")
        return data

    def get(self, key: Any) -> Any:
        """See KeyValueStore."""
        data = self._key(key)
        value = self._current.get(data, _MISSING)
        if value is _MISSING:
            value = self._current[data] = self._file.get(data)
        return None if value is None else self._value_from_bytes(value)  # type: ignore[arg-type] # not _MISSING

    def put(self, key: Any, value: Any) -> None:
        """See KeyValueStore."""
        self._set(self._key(key), self._value_to_bytes(value))

    def delete(self, key: Any) -> None:
        """See KeyValueStore."""
        self._set(self._key(key), None)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if self._undo is not None:
            self._undo.append((key, self._current.get(key, _MISSING), self._changes.get(key, _MISSING)))
        self._current[key] = value
        self._changes[key] = value

    def get_all(self, keys: Sequence[Any]) -> dict[Any, Any]:
        """See KeyValueStore."""
        found = ((key, self.get(key)) for key in keys)
        return {key: value for key, value in found if value is not None}

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """See KeyValueStore."""
        return self._scan(self._key(first), self._key(last))

    def all(self) -> Iterator[tuple[Any, Any]]:
        """See KeyValueStore."""
        return self._scan(None, None)

    def _scan(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[Any, Any]]:
        for key, value in self._entries(first, last):
            yield self._key_from_bytes(key), self._value_from_bytes(value)

    def _entries(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        changed = sorted(
            (key, value)
            for key, value in self._changes.items()
            if (first is None or key >= first) and (last is None or key < last)
        )
        return _merge(self._file.scan(first, last), changed)

    # --- used by the task runner, not by tasks ---

    def begin_batch(self, *, continues: bool) -> bool:
        """Start a batch; what is in memory stays valid only if this process did the committed attempt before.

        Returns whether it stays.
        """
        stays = continues and len(self._current) <= _CACHE_LIMIT
        if not stays:
            self._current = {}
        self._changes = {}
        self._undo = None
        return stays

    def begin_message(self) -> None:
        """From here on `undo_message` can take back what is changed."""
        self._undo = []

    def undo_message(self) -> None:
        """Take back every change since `begin_message`."""
        for key, current, change in reversed(self._undo or []):
            _restore(self._current, key, current)
            _restore(self._changes, key, change)
        self._undo = None

    def changes(self) -> dict[bytes, bytes | None]:
        """The batch's changes, the last per key, in the order in which keys were first changed."""
        return self._changes


def _restore(values: dict[bytes, bytes | None], key: bytes, before: Any) -> None:
    if before is _MISSING:
        values.pop(key, None)
    else:
        values[key] = before


def _merge(
    base: Iterator[tuple[bytes, bytes]], changed: list[tuple[bytes, bytes | None]]
) -> Iterator[tuple[bytes, bytes]]:
    """Base and changes in key order; a change hides the base's row of its key."""
    position = 0
    for key, value in base:
        while position < len(changed) and changed[position][0] < key:
            new_key, new_value = changed[position]
            position += 1
            if new_value is not None:
                yield new_key, new_value
        if position < len(changed) and changed[position][0] == key:
            new_key, new_value = changed[position]
            position += 1
            if new_value is not None:
                yield new_key, new_value
        else:
            yield key, value
    for new_key, new_value in changed[position:]:
        if new_value is not None:
            yield new_key, new_value
