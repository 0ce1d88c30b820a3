"""Records packed into segments: how the embedded system keeps them, and how executors hand them over.

A segment is an Arrow IPC stream of `key: binary, value: binary, timestamp_ms: int64` and, when compaction has left
gaps, `offset: int64`. Without that column a record's offset is the segment's first offset plus its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp_ms", pa.int64())])
SPARSE_SCHEMA = SCHEMA.append(pa.field("offset", pa.int64()))


def pack(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    offsets: Sequence[int] | None = None,
) -> bytes:
    """Pack records of one stream partition, in order."""
    columns = [
        pa.array(keys, type=pa.binary()),
        pa.array(values, type=pa.binary()),
        pa.array(timestamps_ms, type=pa.int64()),
    ]
    schema = SCHEMA
    if offsets is not None:
        columns.append(pa.array(offsets, type=pa.int64()))
        schema = SPARSE_SCHEMA
    return write(pa.RecordBatch.from_arrays(columns, schema=schema))


def write(batch: pa.RecordBatch) -> bytes:
    """One record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return] # pyarrow has no type stubs


def unpack(data: bytes) -> pa.RecordBatch:
    """The record batch in a segment's bytes."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def unpack_changes(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """(key, value) of each record in packed changelog records."""
    batch = unpack(data)
    return zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
