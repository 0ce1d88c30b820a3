"""Keyed logs in a journal."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

from tests.toys.journal import Journal, Line, State, encoded

from grete.clock import Clock, Deadline
from grete.config.settings import Settings
from grete.errors import Fenced, IllegalStateError
from grete.keyed_log.base import TOMBSTONE_RETENTION_MS, Entry, Fence, KeyedLog, Record
from grete.keyed_log.coordinator_log import LogContext

_LOOK_S = 0.02


def journal_of(settings: Settings, system: str, home: Path) -> Journal:
    return Journal(Path(settings.raw.get(f"systems.{system}.path", str(home / "toy"))))


def open_coordinator_log(context: LogContext) -> JournalLog:
    journal = journal_of(context.settings, context.system, context.home)
    return JournalLog(journal, context.name, context.clock, owns_journal=True)


class JournalLog(KeyedLog):
    def __init__(self, journal: Journal, name: str, clock: Clock, *, owns_journal: bool = False) -> None:
        self._journal: Journal | None = journal
        self._name = name
        self._clock = clock
        self._owns_journal = owns_journal

    @property
    def _open(self) -> Journal:
        if self._journal is None:
            raise IllegalStateError("the log is closed")
        return self._journal

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        wanted = append_id or uuid.uuid4().hex

        def transaction(state: State) -> Line:
            epochs = state.fenced([] if fence is None else [fence])
            if (self._name, wanted) in state.appends or not entries:
                return {}
            epoch = None if fence is None else fence.epoch
            return {
                "epochs": epochs,
                "entries": log_entries(self._name, entries, self._clock.wall_ms(), epoch, wanted),
            }

        state = self._open.write(transaction)
        return state.appends.get((self._name, wanted), state.end(self._name))

    def resolve(self, append_id: str) -> int | None:
        return self._open.look().appends.get((self._name, append_id))

    def raise_fence(self, fence: Fence) -> None:
        self._open.write(lambda state: {"epochs": state.fenced([fence])})

    def claim(self, fence: Fence) -> None:
        def claimed(state: State) -> Line:
            seen = state.epochs.get(fence.scope, -1)
            if seen >= fence.epoch:
                raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)
            return {"epochs": state.fenced([fence])}

        self._open.write(claimed)

    def read(self, after: int = -1) -> Iterator[Record]:
        records = list(self._open.look().logs.get(self._name, ()))
        return (record for record in records if record.offset > after)

    def end(self) -> int:
        return self._open.look().end(self._name)

    def wait(self, after: int, timeout_s: float) -> bool:
        deadline, never = Deadline(self._clock, timeout_s), Event()
        while self.end() <= after:
            if deadline.is_over:
                return False
            self._clock.wait(never, min(_LOOK_S, deadline.left_s))
        return True

    def compact(self) -> int:
        horizon_ms = self._clock.wall_ms() - TOMBSTONE_RETENTION_MS
        records = list(self.read())
        last = {record.key: record.offset for record in records}
        gone = [
            record.offset
            for record in records
            if last[record.key] > record.offset
            or (record.value is None and record.timestamp_ms <= horizon_ms)
        ]
        if gone:
            self._open.write(lambda state: {"compacted": {self._name: gone}})
        return len(gone)

    def delete(self) -> None:
        gone = [record.offset for record in self.read()]
        if gone:
            self._open.write(lambda state: {"compacted": {self._name: gone}})

    def close(self) -> None:
        if self._journal is not None and self._owns_journal:
            self._journal.close()
        self._journal = None


def log_entries(
    log: str, entries: Sequence[Entry], now_ms: int, epoch: int | None, append_id: str | None
) -> list[list[object]]:
    """A log's entries as a line holds them."""
    return [[log, encoded(entry.key), encoded(entry.value), now_ms, epoch, append_id] for entry in entries]
