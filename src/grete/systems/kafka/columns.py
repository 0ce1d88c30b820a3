"""Records of topics as `System.read` gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from grete.systems.records import SPARSE_SCHEMA


class Fetched(Protocol):
    """A record as the client gives it."""

    def key(self) -> object:
        """Its key, None without one."""

    def value(self) -> object:
        """Its value, None for a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of its time, and the time in ms."""

    def offset(self) -> int | None:
        """Its offset."""


def batches(chunks: Iterable[Sequence[Fetched]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Chunks of records as System.read gives them: the offset of the first, and columns with all offsets."""
    for chunk in chunks:
        batch = _columns(chunk)
        yield int(batch.column(3)[0].as_py()), batch


def _columns(messages: Sequence[Fetched]) -> pa.RecordBatch:
    columns = [
        pa.array([message.key() for message in messages], type=pa.binary()),
        pa.array([message.value() for message in messages], type=pa.binary()),
        pa.array([message.timestamp()[1] for message in messages], type=pa.int64()),
        pa.array([message.offset() for message in messages], type=pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SPARSE_SCHEMA)
