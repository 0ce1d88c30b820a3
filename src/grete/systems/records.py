"""Records packed into segments: how the embedded system keeps them, and how executors hand them over.

A segment is an Arrow IPC stream of `key: binary, value: binary, timestamp_ms: int64` and, when compaction has left
gaps, `offset: int64`. Without that column a record's offset is the segment's first offset plus its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from grete.kafka.library import Message

SEGMENT_BYTES = 32 << 20
"""About so many bytes of records are one segment: a reader holds one at a time, and SQLite takes 1 GB at most."""
_PER_RECORD_BYTES = 24
"""Of offsets, time stamp and bits for nulls."""
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp_ms", pa.int64())])
SPARSE_SCHEMA = SCHEMA.append(pa.field("offset", pa.int64()))


def pack(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    offsets: Sequence[int] | None = None,
) -> bytes:
    """Pack records of one stream partition, in order."""
    batch = records(keys, values, timestamps_ms)
    if offsets is not None:
        batch = with_offsets(batch, pa.array(offsets, type=pa.int64()))
    return write(batch)


def records(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
) -> pa.RecordBatch:
    """Records of one stream partition, in order, as columns."""
    columns = [
        pa.array(keys, type=pa.binary()),
        pa.array(values, type=pa.binary()),
        pa.array(timestamps_ms, type=pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def with_offsets(batch: pa.RecordBatch, offsets: pa.Array) -> pa.RecordBatch:
    """Records that carry their offsets, because these have gaps."""
    columns = [batch.column(i) for i in range(len(SCHEMA))]
    return pa.RecordBatch.from_arrays([*columns, offsets], schema=SPARSE_SCHEMA)


def batches(chunks: Iterable[Sequence[Message]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Records from brokers as System.read gives them: the offset of the first, and columns with all offsets."""
    for chunk in chunks:
        batch = records(
            [m.key() for m in chunk], [m.value() for m in chunk], [m.timestamp()[1] for m in chunk]
        )
        batch = with_offsets(batch, pa.array([m.offset() for m in chunk], type=pa.int64()))
        yield int(batch.column(3)[0].as_py()), batch


def sparse(first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records of a segment, each with its offset."""
    if batch.num_columns > len(SCHEMA):
        return batch
    return with_offsets(batch, pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64)))


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema, at least one, as one."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def pieces(batch: pa.RecordBatch, at_most: int = SEGMENT_BYTES) -> Iterator[pa.RecordBatch]:
    """The records in their order, in batches that segments can hold; a record that is larger is one by itself."""
    if batch.nbytes <= at_most:
        yield batch
        return
    sizes = [
        pc.fill_null(pc.binary_length(batch.column(i)), 0).to_numpy(zero_copy_only=False) for i in (0, 1)
    ]
    ends = np.cumsum(sizes[0].astype(np.int64) + sizes[1] + _PER_RECORD_BYTES)
    start = 0
    while start < batch.num_rows:
        before = 0 if start == 0 else int(ends[start - 1])
        end = max(start + 1, int(np.searchsorted(ends, before + at_most, side="right")))
        yield batch.slice(start, end - start)
        start = end


def write(batch: pa.RecordBatch) -> bytes:
    """One record batch as an Arrow IPC stream."""
    size = pa.MockOutputStream()
    _write_to(size, batch)
    buffer = pa.allocate_buffer(size.size())  # a stream that grows copies what it has, again and again
    _write_to(pa.FixedSizeBufferWriter(buffer), batch)
    return buffer.to_pybytes()  # type: ignore[no-any-return] # pyarrow has no type stubs


def _write_to(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def unpack(data: bytes) -> pa.RecordBatch:
    """The record batch in a segment's bytes."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def unpack_changes(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """(key, value) of each record in packed changelog records."""
    batch = unpack(data)
    return zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
