"""Mistakes in the keyed log and in the coordinator stream over it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from grete.errors import Fenced, InDoubt
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.wire import coordinator_message as codec
from grete_workbench.simulator import traffic
from grete_workbench.simulator.plants import Plant, Replaced
from grete_workbench.simulator.stores import ProcessLog
from grete_workbench.simulator.watch import AUDIT


def _skip_fence(replaced: Replaced) -> None:
    replaced(MemoryKeyedLog, "_check", lambda self, fence: None)


def _forget_claim(replaced: Replaced) -> None:
    def claim(self: MemoryKeyedLog, fence: Fence) -> None:
        seen = self._epochs.get(fence.scope, -1)
        if seen >= fence.epoch:
            raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)

    replaced(MemoryKeyedLog, "claim", claim)


def _ack_before_durable(replaced: Replaced) -> None:
    append = ProcessLog.append

    def lazily(
        self: ProcessLog,
        entries: Sequence[Entry],
        *,
        fence: Fence | None = None,
        append_id: str | None = None,
    ) -> int:
        """Keep a tool's rows in the process and write them with its next call."""
        if append_id is None:
            return append(self, entries, fence=fence)
        kept: list[Any] = self.__dict__.setdefault("kept", [])
        for earlier, id_ in kept:
            append(self, earlier, append_id=id_)
        kept[:] = [(entries, append_id)]
        return self.end() + len(entries)

    replaced(ProcessLog, "append", lazily)


def _one_by_one(replaced: Replaced) -> None:
    append = CoordinatorStream.append

    def torn(self: CoordinatorStream, entries: Iterable[Entry]) -> int:
        return max([append(self, [entry]) for entry in entries], default=-1)

    replaced(CoordinatorStream, "append", torn)


def _retry_without_id(replaced: Replaced) -> None:
    def write_row(log: ProcessLog, row: int) -> bool:
        entry = Entry(codec.encode_key(AUDIT, str(row)), b"{}")
        try:
            log.append([entry])
            return True
        except InDoubt:
            return False

    replaced(traffic, "write_row", write_row)


def _dedup_off(replaced: Replaced) -> None:
    append = MemoryKeyedLog.append

    def without_id(
        self: MemoryKeyedLog,
        entries: Sequence[Entry],
        *,
        fence: Fence | None = None,
        append_id: str | None = None,
    ) -> int:
        return append(self, entries, fence=fence)

    replaced(MemoryKeyedLog, "append", without_id)


def _tombstone_ignored(replaced: Replaced) -> None:
    take = CoordinatorStream._take

    def keep(self: CoordinatorStream, offset: int, key: bytes, value: bytes | None) -> None:
        if value is not None:
            take(self, offset, key, value)

    replaced(CoordinatorStream, "_take", keep)


def _keep_first(replaced: Replaced) -> None:
    def compact(self: MemoryKeyedLog) -> int:
        first: dict[bytes, Any] = {}
        for record in self._records:
            first.setdefault(record.key, record)
        dropped = len(self._records) - len(first)
        self._records = list(first.values())
        return dropped

    replaced(MemoryKeyedLog, "compact", compact)


def _renumber(replaced: Replaced) -> None:
    compact = MemoryKeyedLog.compact

    def renumbered(self: MemoryKeyedLog) -> int:
        dropped = compact(self)
        self._records = [record._replace(offset=i) for i, record in enumerate(self._records)]
        self._end = len(self._records) - 1
        return dropped

    replaced(MemoryKeyedLog, "compact", renumbered)


def _stop_at_foreign(replaced: Replaced) -> None:
    replaced(CoordinatorStream, "_key_of", lambda self, offset, key: codec.decode_key(key)[1:])


PLANTS = {
    "fence-not-checked": Plant("the log takes writes of an older epoch", _skip_fence),
    "claim-forgotten": Plant(
        "claiming an epoch fences nobody off until the next write",
        _forget_claim,
        ("take-over", "pause-coordinator", "leader-lost"),
    ),
    "acked-before-durable": Plant("append returns before anything is written", _ack_before_durable),
    "half-a-generation": Plant(
        "a configuration is written key by key",
        _one_by_one,
        ("die-after", "config"),
    ),
    "retried-without-id": Plant(
        "an append in doubt is made again without its id", _retry_without_id, ("in-doubt-written",)
    ),
    "dedup-off": Plant(
        "the log does not remember append ids",
        _dedup_off,
        ("in-doubt-written",),
    ),
    "tombstone-ignored": Plant(
        "a reader keeps deleted keys",
        _tombstone_ignored,
        ("unset",),
    ),
    "compaction-keeps-the-first": Plant(
        "compaction keeps the first entry of a key", _keep_first, ("compact", "config")
    ),
    "compaction-reuses-offsets": Plant(
        "compaction renumbers what it keeps",
        _renumber,
        ("compact",),
    ),
    "foreign-record-stops-reading": Plant(
        "a key that is not understood is an error", _stop_at_foreign, ("foreign-record",)
    ),
}
