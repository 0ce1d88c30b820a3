"""Records packed into segments: how the embedded system keeps them, and how executors hand them over.

A segment is an Arrow IPC stream of `key: binary, value: binary, timestamp_ms: int64` and, when compaction has left
gaps, `offset: int64`. Without that column a record's offset is the segment's first offset plus its row. Where some
record has headers there is a last column `headers: map<string, binary>`, null for records without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from grete.application.expiry import stamped
from grete.arrow import np, pa, pc
from grete.model.streams import Headers
from grete.systems.columns import binary, integers

if TYPE_CHECKING:
    from grete.kafka.library import Message

SEGMENT_BYTES = 32 << 20
"""About so many bytes of records are one segment: a reader holds one at a time, and SQLite takes 1 GB at most."""
_PER_RECORD_BYTES = 24
"""Of offsets, time stamp and bits for nulls."""
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp_ms", pa.int64())])
SPARSE_SCHEMA = SCHEMA.append(pa.field("offset", pa.int64()))
_HEADERS = pa.field("headers", pa.map_(pa.string(), pa.binary()))
_HEADER_BYTES = 10
"""Of lengths beside a header's name and value, at most, in Kafka's records."""


def pack(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    offsets: Sequence[int] | None = None,
) -> bytes:
    """Pack records of one stream partition, in order."""
    batch = records(keys, values, timestamps_ms)
    if offsets is not None:
        batch = with_offsets(batch, integers(offsets))
    return write(batch)


def records(
    keys: Sequence[bytes | None] | pa.Array,
    values: Sequence[bytes | None] | pa.Array,
    timestamps_ms: Sequence[int] | pa.Array,
    headers: Sequence[Headers | None] | None = None,
) -> pa.RecordBatch:
    """Records of one stream partition, in order, as columns. `headers` only where some record has some."""
    columns = [binary(keys), binary(values), integers(timestamps_ms)]
    if headers is None:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    of_records = pa.array([one or None for one in headers], type=_HEADERS.type)
    return pa.RecordBatch.from_arrays([*columns, of_records], schema=SCHEMA.append(_HEADERS))


def with_offsets(batch: pa.RecordBatch, offsets: pa.Array) -> pa.RecordBatch:
    """Records that carry their offsets, because these have gaps."""
    columns = [*(batch.column(i) for i in range(len(SCHEMA))), offsets]
    if _HEADERS.name not in batch.schema.names:
        return pa.RecordBatch.from_arrays(columns, schema=SPARSE_SCHEMA)
    columns.append(batch.column(_HEADERS.name))
    return pa.RecordBatch.from_arrays(columns, schema=SPARSE_SCHEMA.append(_HEADERS))


def without_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records whose offsets follow from the first one's."""
    return batch.select([name for name in batch.schema.names if name != "offset"])


def offsets_of(batch: pa.RecordBatch) -> pa.Array | None:
    """The offsets that records carry; None when they follow from the first one's."""
    return batch.column("offset") if "offset" in batch.schema.names else None


def headers_of(batch: pa.RecordBatch) -> list[list[tuple[str, bytes | None]] | None] | None:
    """The headers of each record, None for one without; None when no record has some."""
    if _HEADERS.name not in batch.schema.names:
        return None
    return batch.column(_HEADERS.name).to_pylist()  # type: ignore[no-any-return] # pyarrow has no type stubs


def header_bytes(headers: Headers | None) -> int:
    """How much of a record its headers are."""
    return sum(len(name.encode()) + len(value or b"") + _HEADER_BYTES for name, value in headers or ())


def batches(chunks: Iterable[Sequence[Message]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Records from brokers as System.read gives them: the offset of the first, and columns with all offsets."""
    for chunk in chunks:
        headers: list[Any] = list(map(type(chunk[0]).headers, chunk))  # 15 ns each, where there are none
        batch = records(
            [m.key() for m in chunk],
            [m.value() for m in chunk],
            [m.timestamp()[1] for m in chunk],
            headers if any(headers) else None,
        )
        offsets: list[Any] = [m.offset() for m in chunk]
        batch = with_offsets(batch, integers(offsets))
        yield int(batch.column(3)[0].as_py()), batch


def sparse(first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records of a segment, each with its offset."""
    if offsets_of(batch) is not None:
        return batch
    return with_offsets(batch, integers(np.arange(first, first + batch.num_rows, dtype=np.int64)))


def rows_of(
    first: int, batch: pa.RecordBatch
) -> Iterator[tuple[int, bytes | None, bytes | None, int, Headers]]:
    """Offset, key, value, time and headers of each record."""
    offsets = offsets_of(batch)
    numbers = range(first, first + batch.num_rows) if offsets is None else offsets.to_pylist()
    columns = (batch.column(i).to_pylist() for i in range(len(SCHEMA)))
    headers = headers_of(batch) or [None] * batch.num_rows
    for offset, key, value, time_ms, of_record in zip(numbers, *columns, headers, strict=True):
        yield offset, key, value, time_ms, of_record or ()


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches that all carry offsets or none, at least one, as one."""
    if len(batches) == 1:
        return batches[0]
    if any(_HEADERS.name in batch.schema.names for batch in batches):
        batches = [_with_headers(batch) for batch in batches]
    columns = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _with_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    if _HEADERS.name in batch.schema.names:
        return batch
    return batch.append_column(_HEADERS, pa.nulls(batch.num_rows, _HEADERS.type))


def pieces(batch: pa.RecordBatch, at_most: int = SEGMENT_BYTES) -> Iterator[pa.RecordBatch]:
    """The records in their order, in batches that segments can hold; a record that is larger is one by itself."""
    if batch.nbytes <= at_most:
        yield batch
        return
    sizes = [
        pc.fill_null(pc.binary_length(batch.column(i)), 0).to_numpy(zero_copy_only=False) for i in (0, 1)
    ]
    others = sum(batch.column(i).nbytes for i in range(2, batch.num_columns)) // batch.num_rows
    ends = np.cumsum(sizes[0].astype(np.int64) + sizes[1] + max(_PER_RECORD_BYTES, others + 16))
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


def changes_of(batch: pa.RecordBatch, *, has_times: bool = False) -> Iterator[tuple[bytes, bytes | None]]:
    """(key, value) of each changelog record; with `has_times` values are stamped with their record's time."""
    values = batch.column(1).to_pylist()
    if has_times:
        values = stamped(values, batch.column(2).to_pylist())
    return zip(batch.column(0).to_pylist(), values, strict=True)


def unpack_changes(data: bytes, *, has_times: bool = False) -> Iterator[tuple[bytes, bytes | None]]:
    """`changes_of` packed changelog records."""
    return changes_of(unpack(data), has_times=has_times)
