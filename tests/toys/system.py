"""A system in a journal: streams and checkpoint logs of one folder, so a commit is a line."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from tests.toys import SYSTEM
from tests.toys.journal import Journal, Line, State, Stream, encoded
from tests.toys.log import JournalLog, journal_of, log_entries

from grete.clock import Clock
from grete.errors import OffsetOutOfRange, StreamError, StreamNotFound
from grete.keyed_log.base import Fence, Record
from grete.model.fence import epoch_scope
from grete.model.streams import StreamSpec
from grete.systems.admin import PartitionOffsets
from grete.systems.base import Change, Message, System, SystemContext
from grete.systems.collected import CollectedTransactions
from grete.systems.commit_group import CommitGroup, check_first
from grete.systems.partitioner import partition_of
from grete.systems.records import records, unpack


def open_system(context: SystemContext) -> JournalSystem:
    return JournalSystem(journal_of(context.settings, context.name, context.home), context.clock)


class JournalSystem(System):
    capabilities = SYSTEM.capabilities

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    def _stream(self, name: str) -> Stream:
        return _stream_in(self._journal.look(), name)

    def partition_count(self, stream: str) -> int:
        return len(self._stream(stream).partitions)

    def stream_uid(self, stream: str) -> str:
        return self._stream(stream).uid

    def is_compacted(self, stream: str) -> bool:
        return self._stream(stream).compacted

    def streams(self) -> Sequence[str]:
        return sorted(self._journal.look().streams)

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        ends = {partition: len(kept) for partition, kept in enumerate(self._stream(stream).partitions)}
        return {
            partition: PartitionOffsets("0" if end else None, str(end - 1) if end else None, str(end))
            for partition, end in ends.items()
        }

    def create_stream(self, spec: StreamSpec) -> None:
        self._create(spec, may_grow=False)

    def ensure_stream(self, spec: StreamSpec) -> None:
        self._create(spec, may_grow=True)

    def _create(self, spec: StreamSpec, *, may_grow: bool) -> None:
        def transaction(state: State) -> Line:
            known = state.streams.get(spec.stream)
            count = 0 if known is None else len(known.partitions)
            if known is not None and known.compacted != spec.compacted:
                raise StreamError(f"stream {spec.stream!r} exists with compacted={known.compacted}")
            if known is not None and not may_grow and count != spec.partitions:
                raise StreamError(f"stream {spec.stream!r} exists with {count} partitions")
            if count >= spec.partitions:
                return {}
            return {"streams": [(spec.stream, uuid.uuid4().hex, spec.partitions, spec.compacted)]}

        self._journal.write(transaction)

    def checkpoint_log(self, name: str) -> JournalLog:
        return JournalLog(self._journal, name, self._clock)

    def append(self, stream: str, messages: Iterable[Message]) -> int:
        kept = list(messages)

        def transaction(state: State) -> Line:
            count = len(_stream_in(state, stream).partitions)
            placed = [(_placed(one, count), one) for one in kept]
            if any(not 0 <= partition < count for partition, _ in placed):
                raise StreamError(f"{stream} has partitions 0 to {count - 1} only")
            return {
                "records": [
                    (stream, partition, encoded(one.key), encoded(one.value), one.timestamp_ms)
                    for partition, one in placed
                ]
            }

        self._journal.write(transaction)
        return len(kept)

    def read(
        self, stream: str, partition: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        kept = self._stream(stream).partitions[partition]
        if not 0 <= start <= len(kept):
            raise OffsetOutOfRange(f"{stream} partition {partition} holds offsets 0 to before {len(kept)}")
        wanted = kept[start:end]
        if wanted:
            yield start, records(*zip(*wanted, strict=True))

    def changes(
        self, stream: str, partition: int, start: int, end: int, *, copied_ms: int = 0
    ) -> Iterator[Change]:
        for _, batch in self.read(stream, partition, start, end):
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

    def intact_from(self, stream: str, partition: int) -> int:
        return 0

    def largest_record(self, stream: str) -> int:
        return 1 << 20

    def raise_fence(self, fences: Iterable[Fence]) -> None:
        wanted = list(fences)
        self._journal.write(lambda state: {"epochs": state.fenced(wanted)})

    def check_fences(self, fences: Iterable[Fence]) -> None:
        self._journal.look().fenced(fences)

    def begin_epoch(self, fence: Fence) -> Fence:
        return self.take_slot([fence], epoch_scope(fence))

    def take_slot(self, fences: Sequence[Fence], scope: str) -> Fence:
        def transaction(state: State) -> Line:
            return {"epochs": state.fenced([*fences, Fence(scope, 1 + state.epochs.get(scope, 0))])}

        return Fence(scope, self._journal.write(transaction).epochs[scope])

    def transactions(
        self, fences: Sequence[Fence], slot: int, streams: Sequence[str]
    ) -> CollectedTransactions:
        return CollectedTransactions(self, fences, slot)

    def settled_records(self, log: str, after: int) -> Iterator[Record]:
        return self.checkpoint_log(log).read(after)

    def commit(self, group: CommitGroup) -> dict[tuple[str, int], int]:
        epoch = group.fences[0].epoch if group.fences else None

        def transaction(state: State) -> Line:
            epochs = state.fenced(group.fences)
            rows: list[tuple[object, ...]] = []
            for segment in group.segments:
                stream = _stream_in(state, segment.stream)
                check_first(segment, len(stream.partitions[segment.partition]))
                columns = (unpack(segment.data).column(i).to_pylist() for i in range(3))
                rows += [
                    (segment.stream, segment.partition, encoded(key), encoded(value), time_ms)
                    for key, value, time_ms in zip(*columns, strict=True)
                ]
            now_ms = self._clock.wall_ms()
            entries = log_entries(group.checkpoint_log, group.checkpoint_entries, now_ms, epoch, None)
            return {"epochs": epochs, "records": rows, "entries": entries}

        state = self._journal.write(transaction)
        written = {(one.stream, one.partition) for one in group.segments}
        return {(name, at): len(state.streams[name].partitions[at]) for name, at in written}

    def close(self) -> None:
        self._journal.close()


def _stream_in(state: State, name: str) -> Stream:
    if name not in state.streams:
        raise StreamNotFound(f"there is no stream {name!r}; create it with: grete stream create")
    return state.streams[name]


def _placed(message: Message, count: int) -> int:
    if message.partition is not None:
        return message.partition
    return 0 if message.key is None else partition_of(message.key, count)
