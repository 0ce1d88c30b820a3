"""The embedded system: partitioned streams in one SQLite file, with transactional commits.

`streams.db` in the system's directory holds the streams' segments, the checkpoint logs and the fences, so that
outputs, changelog records and checkpoints become visible in one transaction. Offsets of a partition are dense from
0. Any program may append; readers see only whole, durable appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from grete.clock import Clock
from grete.errors import Fenced, StreamError
from grete.failpoints import failpoint
from grete.keyed_log import sqlite
from grete.keyed_log.base import Record
from grete.keyed_log.sqlite_rows import LAST_TABLE, SCHEMA
from grete.model.fence import Fence, epoch_scope
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamPolicy, StreamSpec, check_name, check_partitions
from grete.sqlite_file import SqliteFile, check_fences, highest_epoch, open_file, seen_epoch
from grete.systems.admin import PartitionOffsets, Range
from grete.systems.base import Change, System, SystemContext, by_partition
from grete.systems.base import Message as Message
from grete.systems.collected import CollectedTransactions
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.inputs import Inputs, LookedFor
from grete.systems.local import SYSTEM, compaction, segment_rows, sizes, stream_rows
from grete.systems.local.compaction import Compaction, compaction_in
from grete.systems.local.reader import read_range
from grete.systems.local.segment_rows import PartitionKey
from grete.systems.local.stream_rows import StreamInfo
from grete.systems.partitioner import partition_of

if TYPE_CHECKING:
    from grete.arrow import pa

_APPEND_CHUNK = 50_000
_LARGEST = 1 << 29
"""SQLite takes values of up to 1 GB, and a segment holds several records."""
FILE_NAME = "streams.db"


def open_local_system(context: SystemContext) -> LocalSystem:
    """The embedded system in `systems.<name>.path`, by default the folder `local` of the home."""
    return LocalSystem(context.settings.system(context.name).directory(context.home), context.clock)


class LocalSystem(System):
    """The streams in a directory. Thread-safe; any number of processes may have it open."""

    capabilities = SYSTEM.capabilities

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._file: SqliteFile = open_file(directory / FILE_NAME)
        self._file.ensure_schema(LAST_TABLE, SCHEMA)
        schema = stream_rows.SCHEMA + segment_rows.SCHEMA + compaction.SCHEMA
        self._file.ensure_schema(compaction.LAST_TABLE, schema)

    @property
    def file(self) -> SqliteFile:
        """The file below; checkpoint logs live in it too."""
        return self._file

    def checkpoint_log(self, name: str) -> sqlite.SqliteKeyedLog:
        """See System. It is in the same file as the streams."""
        return sqlite.SqliteKeyedLog(self._file, name, self._clock)

    # --- SystemAdmin ---

    def stream(self, name: str) -> StreamInfo:
        """The stream's description.

        Raises:
            StreamNotFound: no such stream.
        """
        with self._file.reading() as connection:
            return stream_rows.stream_in(connection, name)

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
            info = stream_rows.stream_in(connection, stream)
            rows = connection.execute(
                "SELECT partition, oldest, upcoming FROM partitions WHERE stream = ?", (info.id,)
            ).fetchall()
            origins = stream_rows.origins_in(connection, info.id)
        return {p: PartitionOffsets.held(oldest, upcoming, origins.get(p)) for p, oldest, upcoming in rows}

    def offset_at(self, ssp: SystemStreamPartition, timestamp_ms: int) -> str:
        """See SystemAdmin. Reads the partition from its start: stamps come from writers and need not be in order."""
        from grete.systems.columns import numbers  # Arrow, which looking at jobs does not need
        from grete.systems.records import offsets_of

        info = self.stream(ssp.stream)
        with self._file.reading() as connection:
            oldest, upcoming = stream_rows.held_in(connection, info, ssp.partition)
        for first, batch in self.read(ssp.stream, ssp.partition, oldest):
            found = (numbers(batch.column(2)) >= timestamp_ms).nonzero()[0]
            if len(found):
                row = int(found[0])
                offsets = offsets_of(batch)
                return str(first + row if offsets is None else offsets[row].as_py())
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
        return PartitionKey(stream_rows.stream_in(connection, ssp.stream).id, ssp.partition)

    def create_stream(self, spec: StreamSpec) -> None:
        """See SystemAdmin."""
        check_name(spec.stream)
        with self._file.transaction() as connection:
            row = connection.execute(
                "SELECT partitions, compacted FROM streams WHERE name = ?", (spec.stream,)
            ).fetchone()
            if row is None:
                stream_rows.create_in(connection, spec)
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
                stream_rows.create_in(connection, spec)
                return
            if bool(row[2]) != spec.compacted:
                raise StreamError(f"stream {spec.stream!r} exists with compacted={bool(row[2])}")
            stream_rows.grow_in(connection, row[0], row[1], spec.partitions)

    def add_partitions(self, stream: str, partitions: int) -> None:
        """See SystemAdmin."""
        check_partitions(stream, partitions)
        with self._file.transaction() as connection:
            info = stream_rows.stream_in(connection, stream)
            if partitions < info.partitions:
                raise StreamError(
                    f"stream {stream!r} has {info.partitions} partitions and cannot have {partitions}: the records "
                    f"of those that went, and the checkpoints in them, would be lost. Create another stream with "
                    f"{partitions} partitions and copy the records"
                )
            stream_rows.grow_in(connection, info.id, info.partitions, partitions)

    def delete_stream(self, stream: str) -> None:
        """See SystemAdmin."""
        with self._file.transaction() as connection:
            info = stream_rows.stream_in(connection, stream)
            stream_rows.delete_in(connection, info)

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
                sqlite.append_in(
                    connection,
                    group.checkpoint_log,
                    group.checkpoint_entries,
                    now_ms=self._clock.wall_ms(),
                    epoch=group.fences[0].epoch if group.fences else None,
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

    def check_fences(self, fences: Iterable[Fence]) -> None:
        """See SlotStore."""
        with self._file.reading() as connection:
            for fence in fences:
                seen = seen_epoch(connection, fence.scope)
                if seen is not None and seen > fence.epoch:
                    raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)

    def begin_epoch(self, fence: Fence) -> Fence:
        """See TransactionalStore."""
        return self.take_slot([fence], epoch_scope(fence))

    def take_slot(self, fences: Sequence[Fence], scope: str) -> Fence:
        """See SlotStore."""
        with self._file.transaction() as connection:
            right = Fence(scope, 1 + (seen_epoch(connection, scope) or 0))
            check_fences(connection, [*fences, right])
        return right

    def transactions(
        self, fences: Sequence[Fence], slot: int, streams: Sequence[str]
    ) -> CollectedTransactions:
        """See System."""
        return CollectedTransactions(self, fences, slot)

    def settled_records(self, log: str, after: int) -> Iterator[Record]:
        """See System. Who held the write lock when this was called has committed or not by now.

        Raises:
            LogUnreachable: the file stayed locked.
        """
        with self._file.transaction():
            pass
        return self.checkpoint_log(log).read(after)

    def _append_segments_in(
        self, connection: apsw.Connection, segments: Iterable[SegmentWrite]
    ) -> dict[tuple[str, int], int]:
        ends: dict[tuple[str, int], int] = {}
        known: dict[str, StreamInfo] = {}
        for segment in segments:
            info = known.get(segment.stream) or stream_rows.stream_in(connection, segment.stream)
            known[segment.stream] = info
            ends[segment.stream, segment.partition] = segment_rows.append_in(connection, info, segment)
        return ends

    # --- writing by any program ---

    def append(self, stream: str, messages: Iterable[Message]) -> int:
        """See System."""
        messages = list(messages)
        info = self.stream(stream)
        while True:
            segments = _packed(messages, info)
            with self._file.transaction() as connection:
                now = stream_rows.stream_in(connection, stream)
                if now.partitions == info.partitions:
                    self._append_segments_in(connection, segments)
                    return sum(segment.count for segment in segments)
            info = now  # it grew meanwhile, so the keys have other partitions

    # --- reading ---

    def read(
        self, stream: str, partition: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See System. One segment is in memory at a time.

        Raises:
            LogCorrupted: a segment fails its checksum.
        """
        yield from read_range(self._file, self.stream(stream), partition, start, end)

    def inputs(self, clock: Clock) -> Inputs:
        """See System. To look at 100 partitions takes 0.4 ms, whether something was committed 10 µs."""
        return LookedFor(self, clock, changes=self._file.changes())

    def largest_record(self, stream: str) -> int:
        """See System."""
        return _LARGEST

    def housekeeping(self, policies: Sequence[StreamPolicy], fences: Sequence[Fence]) -> Callable[[], object]:
        """See System: merges, trims and compacts."""
        from grete.systems.local.housekeeping import Housekeeper  # Arrow too

        return Housekeeper(self, policies, fences, self._clock).step

    def intact_from(self, stream: str, partition: int) -> int:
        """See System: where compaction has got to."""
        return self.compaction(stream, partition).horizon

    def compaction(self, stream: str, partition: int) -> Compaction:
        """How far a compacted stream's partition is compacted."""
        with self._file.reading() as connection:
            return compaction_in(
                connection, PartitionKey(stream_rows.stream_in(connection, stream).id, partition)
            )

    def changes(
        self,
        stream: str,
        partition: int,
        start: int,
        end: int,
        *,
        copied_ms: int = 0,
        has_times: bool = False,
    ) -> Iterator[Change]:
        """See System. How far compaction has got is in the file, so the copy's age does not matter."""
        from grete.systems.records import changes_of

        before = self.compaction(stream, partition)
        before.check_readable(start, end)
        for _, batch in self.read(stream, partition, start or self._oldest(stream, partition), end):
            yield from changes_of(batch, has_times=has_times)
        self.compaction(stream, partition).check_undisturbed(start, before)

    def _oldest(self, stream: str, partition: int) -> int:
        """Where what retention has left of a partition begins."""
        with self._file.reading() as connection:
            return stream_rows.held_in(connection, stream_rows.stream_in(connection, stream), partition)[0]


def _packed(messages: Iterable[Message], info: StreamInfo) -> list[SegmentWrite]:
    from grete.systems.records import pieces, records, write

    return [
        SegmentWrite(info.name, partition, piece.num_rows, write(piece))
        for partition, sent in by_partition(info.name, messages, info.partitions, partition_of).items()
        for part in _parts(sent)
        for piece in pieces(
            records(
                [m.key for m in part],
                [m.value for m in part],
                [m.timestamp_ms for m in part],
                [m.headers for m in part] if any(m.headers for m in part) else None,
            )
        )
    ]


def _parts(records: list[Message]) -> Iterator[list[Message]]:
    for start in range(0, len(records), _APPEND_CHUNK):
        yield records[start : start + _APPEND_CHUNK]
