"""The embedded system: partitioned streams in one SQLite file, with transactional commits.

`streams.db` in the system's directory holds the streams' segments, the checkpoint logs and the fences, so that
outputs, changelog records and checkpoints become visible in one transaction. Offsets of a partition are dense from
0. Any program may append; readers see only whole, durable appends.
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from grete.clock import Clock
from grete.config.settings import Settings
from grete.errors import (
    GreteError,
    LogCorrupted,
    OffsetOutOfRange,
    OffsetsRemoved,
    StreamError,
    StreamNotFound,
)
from grete.failpoints import failpoint
from grete.keyed_log.sqlite import SqliteKeyedLog, append_in
from grete.keyed_log.sqlite_rows import LAST_TABLE, SCHEMA
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamPolicy, StreamSpec, check_partitions
from grete.sqlite_file import SqliteFile, check_fences, highest_epoch, open_file
from grete.systems.base import (
    Change,
    CommitGroup,
    Origin,
    PartitionOffsets,
    Range,
    Segment,
    SegmentWrite,
    System,
    SystemContext,
)
from grete.systems.base import Message as Message
from grete.systems.local import SYSTEM, compaction, growth, sizes
from grete.systems.local.compaction import Compaction, compaction_in
from grete.systems.local.segment_rows import PartitionKey
from grete.systems.partitioner import partition_of

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMA = """
CREATE TABLE IF NOT EXISTS streams (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL, partitions INTEGER NOT NULL,
  compacted INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS partitions (
  stream INTEGER NOT NULL, partition INTEGER NOT NULL, oldest INTEGER NOT NULL DEFAULT 0,
  upcoming INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (stream, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS segments (
  stream INTEGER NOT NULL, partition INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
  count INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (stream, partition, first));
"""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_APPEND_CHUNK = 50_000
_LARGEST = 1 << 29
"""SQLite takes values of up to 1 GB, and a segment holds several records."""
FILE_NAME = "streams.db"


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as stored. `uid` differs between a stream and one of the same name created after its deletion."""

    id: int
    name: str
    uid: str
    partitions: int
    compacted: bool


def open_local_system(context: SystemContext) -> LocalSystem:
    """The embedded system in `systems.<name>.path`, by default the folder `local` of the home."""
    return LocalSystem(
        Settings.of(context.config).system(context.name).directory(context.home), context.clock
    )


class LocalSystem(System):
    """The streams in a directory. Thread-safe; any number of processes may have it open."""

    capabilities = SYSTEM.capabilities

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._file: SqliteFile = open_file(directory / FILE_NAME)
        self._file.ensure_schema(LAST_TABLE, SCHEMA)
        schema = _SCHEMA + growth.SCHEMA + compaction.SCHEMA
        self._file.ensure_schema(compaction.LAST_TABLE, schema)

    @property
    def file(self) -> SqliteFile:
        """The file below; checkpoint logs live in it too."""
        return self._file

    def checkpoint_log(self, name: str) -> SqliteKeyedLog:
        """See System. It is in the same file as the streams."""
        return SqliteKeyedLog(self._file, name, self._clock)

    # --- SystemAdmin ---

    def stream(self, name: str) -> StreamInfo:
        """The stream's description.

        Raises:
            StreamNotFound: no such stream.
        """
        with self._file.reading() as connection:
            return self._stream_in(connection, name)

    def _stream_in(self, connection: apsw.Connection, name: str) -> StreamInfo:
        row = connection.execute(
            "SELECT id, name, uid, partitions, compacted FROM streams WHERE name = ?", (name,)
        ).fetchone()
        if row is None:
            raise StreamNotFound(
                f"there is no stream {name!r} in {self.directory}; create it with: grete stream create"
            )
        return StreamInfo(row[0], row[1], row[2], row[3], bool(row[4]))

    def partition_count(self, stream: str) -> int:
        """See SystemAdmin."""
        return self.stream(stream).partitions

    def is_compacted(self, stream: str) -> bool:
        """See System."""
        return self.stream(stream).compacted

    def stream_uid(self, stream: str) -> str:
        """See System."""
        return self.stream(stream).uid

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        """See SystemAdmin."""
        with self._file.reading() as connection:
            info = self._stream_in(connection, stream)
            rows = connection.execute(
                "SELECT partition, oldest, upcoming FROM partitions WHERE stream = ?", (info.id,)
            ).fetchall()
            origins = growth.origins_in(connection, info.id)
        return {p: _partition_offsets(oldest, upcoming, origins.get(p)) for p, oldest, upcoming in rows}

    def offsets_after(self, offsets: Mapping[SystemStreamPartition, str]) -> dict[SystemStreamPartition, str]:
        """See SystemAdmin."""
        return {ssp: str(int(offset) + 1) for ssp, offset in offsets.items()}

    def compare(self, left: str, right: str) -> int:
        """See SystemAdmin."""
        return int(left) - int(right)

    def offset_at(self, ssp: SystemStreamPartition, timestamp_ms: int) -> str:
        """See SystemAdmin. Reads the partition from its start: stamps come from writers and need not be in order."""
        oldest, upcoming = self._range(self.stream(ssp.stream), ssp.partition)
        for first, batch in self.read(ssp.stream, ssp.partition, oldest):
            found = (batch.column(2).to_numpy() >= timestamp_ms).nonzero()[0]
            if len(found):
                row = int(found[0])
                return str(batch.column(3)[row].as_py() if batch.num_columns > 3 else first + row)
        return str(upcoming)

    def sizes(self, ranges: Mapping[SystemStreamPartition, Range]) -> Mapping[SystemStreamPartition, int]:
        """See SystemAdmin."""
        with self._file.reading() as connection:
            return {
                ssp: sizes.size_in(connection, self._key_in(connection, ssp), offsets)
                for ssp, offsets in ranges.items()
            }

    def end_within(self, ssp: SystemStreamPartition, offsets: Range, size: int) -> int:
        """See SystemAdmin."""
        with self._file.reading() as connection:
            return sizes.end_in(connection, self._key_in(connection, ssp), offsets, size)

    def _key_in(self, connection: apsw.Connection, ssp: SystemStreamPartition) -> PartitionKey:
        return PartitionKey(self._stream_in(connection, ssp.stream).id, ssp.partition)

    def create_stream(self, spec: StreamSpec) -> None:
        """See SystemAdmin."""
        if not _NAME.fullmatch(spec.stream):
            raise StreamError(f"a stream's name is 1 to 249 of A-Z a-z 0-9 . _ -, got {spec.stream!r}")
        with self._file.transaction() as connection:
            row = connection.execute(
                "SELECT partitions, compacted FROM streams WHERE name = ?", (spec.stream,)
            ).fetchone()
            if row is None:
                self._create_in(connection, spec)
            elif tuple(row) != (spec.partitions, int(spec.compacted)):
                raise StreamError(
                    f"stream {spec.stream!r} exists with {row[0]} partitions, compacted={bool(row[1])}; "
                    f"asked for {spec.partitions}, compacted={spec.compacted}"
                )

    def ensure_stream(self, spec: StreamSpec) -> None:
        """See System."""
        with self._file.transaction() as connection:
            row = connection.execute(
                "SELECT id, partitions, compacted FROM streams WHERE name = ?", (spec.stream,)
            ).fetchone()
            if row is None:
                self._create_in(connection, spec)
                return
            if bool(row[2]) != spec.compacted:
                raise StreamError(f"stream {spec.stream!r} exists with compacted={bool(row[2])}")
            growth.grow_in(connection, row[0], row[1], spec.partitions)

    def add_partitions(self, stream: str, partitions: int) -> None:
        """See SystemAdmin."""
        check_partitions(stream, partitions)
        with self._file.transaction() as connection:
            info = self._stream_in(connection, stream)
            if partitions < info.partitions:
                raise StreamError(
                    f"stream {stream!r} has {info.partitions} partitions and cannot have {partitions}: the records "
                    f"of those that went, and the checkpoints in them, would be lost. Create another stream with "
                    f"{partitions} partitions and copy the records"
                )
            growth.grow_in(connection, info.id, info.partitions, partitions)

    def _create_in(self, connection: apsw.Connection, spec: StreamSpec) -> None:
        connection.execute(
            "INSERT INTO streams (name, uid, partitions, compacted) VALUES (?, ?, ?, ?)",
            (spec.stream, uuid.uuid4().hex, spec.partitions, int(spec.compacted)),
        )
        stream = connection.last_insert_rowid()
        connection.executemany(
            "INSERT INTO partitions (stream, partition) VALUES (?, ?)",
            ((stream, partition) for partition in range(spec.partitions)),
        )

    def delete_stream(self, stream: str) -> None:
        """See SystemAdmin."""
        with self._file.transaction() as connection:
            info = self._stream_in(connection, stream)
            for table in ("segments", "partitions", "origins", "compactions"):
                connection.execute(f"DELETE FROM {table} WHERE stream = ?", (info.id,))  # noqa: S608 - constants
            connection.execute("DELETE FROM streams WHERE id = ?", (info.id,))

    def streams(self) -> Sequence[str]:
        """See SystemAdmin."""
        with self._file.reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM streams ORDER BY name")]

    def close(self) -> None:
        """See SystemAdmin."""
        self._file.close()

    # --- TransactionalStore ---

    def commit(self, group: CommitGroup) -> dict[tuple[str, int], int]:
        """See TransactionalStore."""
        with self._file.transaction() as connection:
            failpoint("commit.begun")
            check_fences(connection, group.fences)
            failpoint("commit.fences-checked")
            ends = self._append_segments_in(connection, group.segments)
            failpoint("commit.outputs-written")
            if group.checkpoint_entries:
                append_in(
                    connection,
                    group.checkpoint_log,
                    group.checkpoint_entries,
                    now_ms=self._clock.wall_ms(),
                    epoch=max((fence.epoch for fence in group.fences), default=None),
                )
            failpoint("commit.in-transaction")
        return ends

    def highest_epoch(self, scopes: str) -> int:
        """See TransactionalStore."""
        with self._file.reading() as connection:
            return highest_epoch(connection, scopes)

    def raise_fence(self, fences: Iterable[Fence]) -> None:
        """See TransactionalStore."""
        with self._file.transaction() as connection:
            check_fences(connection, fences)

    def _append_segments_in(
        self, connection: apsw.Connection, segments: Iterable[Segment]
    ) -> dict[tuple[str, int], int]:
        ends: dict[tuple[str, int], int] = {}
        known: dict[str, StreamInfo] = {}
        for segment in segments:
            info = known.get(segment.stream) or self._stream_in(connection, segment.stream)
            known[segment.stream] = info
            ends[segment.stream, segment.partition] = _append_segment(connection, info, segment)
        return ends

    # --- writing by any program ---

    def append(self, stream: str, messages: Iterable[Message]) -> int:
        """See System."""
        messages = list(messages)
        info = self.stream(stream)
        while True:
            segments = _packed(messages, info)
            with self._file.transaction() as connection:
                now = self._stream_in(connection, stream)
                if now.partitions == info.partitions:
                    self._append_segments_in(connection, segments)
                    return sum(segment.count for segment in segments)
            info = now  # it grew meanwhile, so the keys have other partitions

    # --- reading ---

    def read(
        self, stream: str, partition: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(offset of the first row, record batch) for start <= offset < end; batches without an `offset` column
        have consecutive offsets, others carry them. One segment is in memory at a time.

        Raises:
            OffsetOutOfRange: `start` is below the oldest offset or above the upcoming one.
            LogCorrupted: a segment fails its checksum.
        """
        info = self.stream(stream)
        oldest, upcoming = self._range(info, partition)
        if not oldest <= start <= upcoming:
            raise _not_there(stream, partition, start, oldest, upcoming)
        yield from self._read_segments(
            info, partition, start, upcoming if end is None else min(end, upcoming)
        )

    def _range(self, info: StreamInfo, partition: int) -> tuple[int, int]:
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT oldest, upcoming FROM partitions WHERE stream = ? AND partition = ?",
                (info.id, partition),
            ).fetchone()
        if row is None:
            raise StreamNotFound(f"{info.name} has partitions 0 to {info.partitions - 1}, not {partition}")
        return int(row[0]), int(row[1])

    def _read_segments(
        self, info: StreamInfo, partition: int, start: int, end: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        from grete.systems.records import unpack

        position = start
        while position < end:
            with self._file.reading() as connection:
                row = connection.execute(
                    "SELECT first, last, crc, data FROM segments WHERE stream = ? AND partition = ? AND last >= ? "
                    "ORDER BY first LIMIT 1",
                    (info.id, partition, position),
                ).fetchone()
            if row is None or row[0] > position:
                raise self._gone(info, partition, position)
            first, last, crc, data = row
            if zlib.crc32(data) != crc:
                raise LogCorrupted(
                    f"{self._file.path}: {info.name} partition {partition}, offsets {first} to {last} fail "
                    f"their checksum"
                )
            yield _cut(unpack(data), first, position, end)
            position = last + 1

    def _gone(self, info: StreamInfo, partition: int, position: int) -> GreteError:
        oldest, upcoming = self._range(info, partition)
        if position < oldest:
            return _not_there(info.name, partition, position, oldest, upcoming)
        return LogCorrupted(
            f"{self._file.path}: {info.name} partition {partition}, offset {position} is missing; restore the file "
            f"from a copy"
        )

    def largest_record(self, stream: str) -> int:
        """See System."""
        return _LARGEST

    def housekeeping(self, policies: Sequence[StreamPolicy], fence: Fence) -> Callable[[], object]:
        """See System: merges, trims and compacts."""
        from grete.systems.local.housekeeping import Housekeeper  # Arrow, which looking at jobs does not need

        return Housekeeper(self, policies, [fence], self._clock).step

    def intact_from(self, stream: str, partition: int) -> int:
        """See System: where compaction has got to."""
        return self.compaction(stream, partition).horizon

    def compaction(self, stream: str, partition: int) -> Compaction:
        """How far a compacted stream's partition is compacted."""
        with self._file.reading() as connection:
            return compaction_in(connection, PartitionKey(self._stream_in(connection, stream).id, partition))

    def changes(
        self, stream: str, partition: int, start: int, end: int, *, copied_ms: int = 0
    ) -> Iterator[Change]:
        """See System. The file says how far compaction has got, so the copy's age does not matter."""
        before = self.compaction(stream, partition)
        before.check_readable(start, end)
        for _, batch in self.read(stream, partition, start, end):
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        self.compaction(stream, partition).check_undisturbed(start, before)


def _not_there(stream: str, partition: int, offset: int, oldest: int, upcoming: int) -> OffsetOutOfRange:
    kind = OffsetsRemoved if offset < oldest else OffsetOutOfRange
    return kind(
        f"{stream} partition {partition}: offset {offset} is not there, the stream holds {oldest} to {upcoming - 1}"
    )


def _cut(batch: pa.RecordBatch, first: int, start: int, end: int) -> tuple[int, pa.RecordBatch]:
    """The rows of a segment with start <= offset < end, and the first one's offset."""
    if batch.num_columns > 3:
        offsets = batch.column(3).to_numpy()
        low, high = offsets.searchsorted([start, end])
        return start, batch.slice(int(low), int(high - low))
    low = max(0, start - first)
    return first + low, batch.slice(low, max(0, min(batch.num_rows, end - first) - low))


def _partition_for(message: Message, info: StreamInfo) -> int:
    if message.partition is None:
        return 0 if message.key is None else partition_of(message.key, info.partitions)
    if not 0 <= message.partition < info.partitions:
        raise StreamError(f"{info.name} has partitions 0 to {info.partitions - 1}, not {message.partition}")
    return message.partition


def _packed(messages: Iterable[Message], info: StreamInfo) -> list[SegmentWrite]:
    from grete.systems.records import pieces, records, write

    by_partition: dict[int, list[Message]] = {}
    for message in messages:
        by_partition.setdefault(_partition_for(message, info), []).append(message)
    return [
        SegmentWrite(info.name, partition, piece.num_rows, write(piece))
        for partition, sent in sorted(by_partition.items())
        for part in _parts(sent)
        for piece in pieces(
            records([m.key for m in part], [m.value for m in part], [m.timestamp_ms for m in part])
        )
    ]


def _parts(records: list[Message]) -> Iterator[list[Message]]:
    for start in range(0, len(records), _APPEND_CHUNK):
        yield records[start : start + _APPEND_CHUNK]


def _partition_offsets(oldest: int, upcoming: int, origin: Origin | None) -> PartitionOffsets:
    if oldest >= upcoming:
        return PartitionOffsets(None, None, str(upcoming), origin)
    return PartitionOffsets(str(oldest), str(upcoming - 1), str(upcoming), origin)


def _append_segment(connection: apsw.Connection, info: StreamInfo, segment: Segment) -> int:
    row = connection.execute(
        "SELECT upcoming FROM partitions WHERE stream = ? AND partition = ?", (info.id, segment.partition)
    ).fetchone()
    if row is None:
        raise StreamError(f"{info.name} has partitions 0 to {info.partitions - 1}, not {segment.partition}")
    first, data = int(row[0]), segment.data
    upcoming = first + segment.count
    connection.execute(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            info.id,
            segment.partition,
            first,
            upcoming - 1,
            segment.count,
            zlib.crc32(data),
            data,
        ),
    )
    failpoint("commit.segment-written")
    connection.execute(
        "UPDATE partitions SET upcoming = ? WHERE stream = ? AND partition = ?",
        (upcoming, info.id, segment.partition),
    )
    return upcoming
