"""Rows of a batch on their way into streams of the embedded system: packed by Spark's workers.

A worker splits the rows of its Spark partition by stream partition and packs them into segments. What is large goes
into a file, what is small travels with the description of the segments, which is all that the driver gets. The
driver's commit moves the segments' bytes, one at a time, into its transaction. A file is read once, and removed when
it is opened: a transaction that fails ends the batch, which is computed again.

Nothing here is synced, and nothing has to be: no checkpoint names what is staged.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from grete.arrow import pa
from grete.errors import StorageFull, StreamError
from grete.systems.commit_group import SegmentWrite
from grete.systems.partitioner import partition_of
from grete.systems.placement import Placement
from grete.systems.records import SCHEMA, SEGMENT_BYTES, join, pieces, unpack, write

LAYOUT = "partition int, count long, size long, data binary, file string"
"""Of the descriptions: a segment is `data`, or the next `size` bytes of `file`."""
_DESCRIBED = pa.schema(
    [
        ("partition", pa.int32()),
        ("count", pa.int64()),
        ("size", pa.int64()),
        ("data", pa.binary()),
        ("file", pa.string()),
    ]
)
_SMALL = 64 << 10
"""So much of a Spark partition needs no file. The driver has it in memory, once for each Spark partition."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A description, as the driver gets it."""

    partition: int
    count: int
    size: int
    data: bytes | None
    file: str | None


def stage(
    rows: Iterable[pa.RecordBatch], folder: str, partitions: int, now_ms: int, at_most: int = SEGMENT_BYTES
) -> Iterator[pa.RecordBatch]:
    """On a worker: pack the rows of a Spark partition, of columns `key` and `value`; gives their descriptions.

    About `at_most` bytes of them are in memory.

    Raises:
        StorageFull: there is no room for a file.
    """
    kept: list[pa.RecordBatch] = []
    size, is_first = 0, True
    for batch in rows:
        kept.append(batch)
        size += batch.nbytes
        if size >= at_most:
            yield _described(_packed(kept, partitions, now_ms), folder, is_small=False)
            kept, size, is_first = [], 0, False
    if kept:
        yield _described(_packed(kept, partitions, now_ms), folder, is_small=is_first)


def _packed(batches: Sequence[pa.RecordBatch], partitions: int, now_ms: int) -> list[tuple[int, int, bytes]]:
    """Partition, number of records and bytes of each segment."""
    keys, values = (pa.concat_arrays([batch.column(name) for batch in batches]) for name in ("key", "value"))
    times = pa.repeat(pa.scalar(now_ms, pa.int64()), len(keys))
    rows = pa.RecordBatch.from_arrays([keys, values, times], schema=SCHEMA)
    return [
        (partition, piece.num_rows, write(piece))
        for partition, of_it in Placement(partitions, partition_of, without_key=0).split(rows)
        for piece in pieces(of_it)
    ]


def _described(segments: Sequence[tuple[int, int, bytes]], folder: str, *, is_small: bool) -> pa.RecordBatch:
    data: list[bytes | None] = [one for _, _, one in segments]
    file = None
    if segments and (not is_small or sum(len(one) for _, _, one in segments) > _SMALL):
        file = _written(Path(folder), [one for _, _, one in segments])
        data = [None] * len(segments)
    return pa.RecordBatch.from_pydict(
        {
            "partition": [partition for partition, _, _ in segments],
            "count": [count for _, count, _ in segments],
            "size": [len(one) for _, _, one in segments],
            "data": data,
            "file": [file] * len(segments),
        },
        schema=_DESCRIBED,
    )


def _written(folder: Path, data: Iterable[bytes]) -> str:
    """A new file with all of it; the name is no other attempt's."""
    path = folder / uuid.uuid4().hex
    try:
        with path.open("xb") as file:
            file.writelines(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno in _NO_ROOM:
            raise StorageFull(
                f"no room for a batch's rows in {folder}: {error.strerror}; free space"
            ) from error
        raise
    return str(path)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """On the driver: the segments of a batch for a stream, one in memory at a time. To be gone through once.

    Those of small Spark partitions are joined, so that a small batch is one segment in each stream partition.
    """

    stream: str
    described: Sequence[StagedSegment]

    def __iter__(self) -> Iterator[SegmentWrite]:
        """The segments in the order of Spark's partitions.

        Raises:
            StreamError: a file is not there, or not whole.
        """
        small: dict[int, list[pa.RecordBatch]] = {}
        name: str | None = None
        with ExitStack() as held:
            file: BinaryIO | None = None
            for one in self.described:
                if one.data is not None:
                    small.setdefault(one.partition, []).append(unpack(one.data))
                    continue
                if one.file != name or file is None:
                    held.close()
                    name, file = one.file, held.enter_context(_taken(Path(str(one.file))))
                yield from self._joined(one.partition, small.pop(one.partition, []))
                yield SegmentWrite(self.stream, one.partition, one.count, _read(file, one))
        for partition, batches in sorted(small.items()):
            yield from self._joined(partition, batches)

    def _joined(self, partition: int, batches: Sequence[pa.RecordBatch]) -> Iterator[SegmentWrite]:
        if batches:
            joined = join(batches)
            yield SegmentWrite(self.stream, partition, joined.num_rows, write(joined))


def _taken(path: Path) -> BinaryIO:
    """The file, open, its name gone."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise StreamError(f"rows of a batch are gone before their commit: {error}; it is repeated") from error
    path.unlink(missing_ok=True)
    return file


def _read(file: BinaryIO, segment: StagedSegment) -> bytes:
    data = file.read(segment.size)
    if len(data) != segment.size:
        raise StreamError(
            f"{file.name} was cut short: {len(data)} of {segment.size} bytes; the batch is repeated"
        )
    return data


def cleared(folder: Path) -> Path:
    """The folder, there and empty: what failed attempts left is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    with os.scandir(folder) as entries:
        for entry in entries:
            Path(entry.path).unlink(missing_ok=True)
    return folder
