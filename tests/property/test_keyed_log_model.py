"""Memory and SQLite logs against a model of a few lines, through any sequence of calls, reopenings included."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from grete.errors import Fenced
from grete.keyed_log.base import Entry, Fence, KeyedLog, Record
from grete.keyed_log.memory import MemoryKeyedLog
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.sqlite_file import open_file
from grete.testing.clock import ManualClock

DAY_S = 24 * 60 * 60
KEYS = st.sampled_from([b"", b"a", b"b", b"c"])
ENTRIES = st.lists(st.builds(Entry, KEYS, st.none() | st.binary(max_size=3)), max_size=4)
FENCES = st.none() | st.builds(Fence, st.sampled_from(["one", "two"]), st.integers(0, 3))
IDS = st.none() | st.sampled_from(["x", "y", "z"])


class KeyedLogs(RuleBasedStateMachine):
    """The model: a list, a dict of epochs, a dict of append ids."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.directory = Path(tempfile.mkdtemp())
        self.records: list[Record] = []
        self.end = -1
        self.epochs: dict[str, int] = {}
        self.ids: dict[str, int] = {}
        self.memory = MemoryKeyedLog(self.clock)
        self.open()

    def open(self) -> None:
        self.file = open_file(self.directory / "log.db")
        SqliteKeyedLog(self.file, "other", self.clock).append([Entry(b"a", b"another log")])
        self.sqlite = SqliteKeyedLog(self.file, "log", self.clock)
        self.logs: tuple[KeyedLog, ...] = (self.memory, self.sqlite)

    def teardown(self) -> None:
        self.file.close()
        shutil.rmtree(self.directory)

    def is_fenced(self, fence: Fence | None) -> bool:
        if fence is None:
            return False
        if self.epochs.get(fence.scope, -1) > fence.epoch:
            return True
        self.epochs[fence.scope] = fence.epoch
        return False

    @rule(entries=ENTRIES, fence=FENCES, append_id=IDS)
    def append(self, entries: list[Entry], fence: Fence | None, append_id: str | None) -> None:
        if self.is_fenced(fence):
            for log in self.logs:
                with pytest.raises(Fenced):
                    log.append(entries, fence=fence, append_id=append_id)
            return
        expected = self.ids.get(append_id) if append_id is not None else None
        if expected is None:
            epoch = None if fence is None else fence.epoch
            for entry in entries:
                self.end += 1
                self.records.append(Record(self.end, entry.key, entry.value, self.clock.wall_ms(), epoch))
            expected = self.end
            if append_id is not None and entries:
                self.ids[append_id] = self.end
        for log in self.logs:
            assert log.append(entries, fence=fence, append_id=append_id) == expected

    @rule(fence=FENCES.filter(lambda fence: fence is not None))
    def raise_fence(self, fence: Fence) -> None:
        is_fenced = self.is_fenced(fence)
        for log in self.logs:
            if is_fenced:
                with pytest.raises(Fenced):
                    log.raise_fence(fence)
            else:
                log.raise_fence(fence)

    @rule()
    def compact(self) -> None:
        last = {record.key: record for record in self.records}
        horizon_ms = self.clock.wall_ms() - DAY_S * 1000
        kept = [
            record
            for record in self.records
            if last[record.key] is record and (record.value is not None or record.timestamp_ms > horizon_ms)
        ]
        for log in self.logs:
            assert log.compact() == len(self.records) - len(kept)
        self.records = kept

    @rule()
    def reopen(self) -> None:
        self.file.close()
        self.open()

    @rule()
    def pass_a_day(self) -> None:
        self.clock.advance(DAY_S)

    @rule(after=st.integers(-1, 20))
    def read_from(self, after: int) -> None:
        expected = [record for record in self.records if record.offset > after]
        for log in self.logs:
            assert list(log.read(after)) == expected

    @rule(append_id=st.sampled_from(["x", "y", "z"]))
    def resolve(self, append_id: str) -> None:
        for log in self.logs:
            assert log.resolve(append_id) == self.ids.get(append_id)

    @invariant()
    def all_readers_agree(self) -> None:
        for log in self.logs:
            assert (log.end(), list(log.read())) == (self.end, self.records)


TestKeyedLogs = KeyedLogs.TestCase
TestKeyedLogs.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
