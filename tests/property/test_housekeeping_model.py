"""Changelogs under housekeeping that dies at any point: every reader comes to the state that was written.

Each seed is a history of a few hundred events. Segments, limits and keys are few and small, so that compactions
overlap, die half-way and follow each other closely; a history that finds something is repeated by its seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from grete.errors import OffsetOutOfRange
from grete.model.streams import StreamPolicy, StreamSpec
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.local.compactor import CompactionLimits
from grete.systems.local.housekeeping import Housekeeper
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack, unpack_changes
from grete.tasks.stores.file import StoreFile
from grete.testing.clock import ManualClock

State = dict[bytes, bytes]
Change = tuple[bytes, bytes | None]
EVENTS = (*["write"] * 4, *["tidy"] * 6, "die", "die", "time", "time", "time", "follow", "follow under way")


def applied(state: State, changes: Any) -> State:
    after = dict(state)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


class History:
    """Writers, two housekeepers that are given up half-way, and copies of the store that follow now and then."""

    def __init__(self, home: Path, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.system = LocalSystem(home / "local", self.clock)
        self.system.create_stream(StreamSpec("c", 1, compacted=True))
        self.states: list[State] = [{}]
        self.copies = [StoreFile(home / f"{name}.db", "c") for name in ("one", "two")]
        self.limits = CompactionLimits(
            min_dirty_bytes=1,
            segment_bytes=self.random.choice([1_000, 2_000, 4_000]),
            max_keys=self.random.choice([1, 3, 100]),
        )
        self.lag_ms = self.random.choice([0, 0, 40_000])
        self.keepers = [self.keeper(), self.keeper()]

    def keeper(self) -> Housekeeper:
        policy = StreamPolicy("c", min_compaction_lag_ms=self.lag_ms)
        return Housekeeper(self.system, [policy], [], self.clock, self.limits)

    @property
    def end(self) -> int:
        return len(self.states) - 1

    def write(self) -> None:
        changes: list[Change] = [
            (b"%d" % self.random.randrange(6), self.random.choice([None, b"%d" % self.end]))
            for _ in range(self.random.randint(1, 3))
        ]
        data = pack([k for k, _ in changes], [v for _, v in changes], [self.clock.wall_ms()] * len(changes))
        self.system.commit(CommitGroup([], [SegmentWrite("c", 0, len(changes), data)], "", []))
        for change in changes:
            self.states.append(applied(self.states[-1], [change]))

    def tidy(self) -> None:
        keeper = self.random.choice(self.keepers)
        for _ in range(self.random.randint(1, 3)):
            keeper.step()

    def follow(self, *, under_way: bool) -> None:
        copy = self.random.choice(self.copies)

        def changes(low: int, high: int) -> Iterator[Change]:
            for change in self.system.changes("c", 0, low, high):
                yield change
                if under_way and self.random.random() < 0.3:
                    self.tidy()

        try:
            copy.settle(self.end, "", changes, unpack_changes)
        except OffsetOutOfRange:
            assert under_way  # compacted five times in a row: no state rather than a wrong one
            return
        assert dict(copy.scan(None, None)) == self.states[-1]

    def check(self) -> None:
        horizon = self.system.compaction("c", 0).horizon
        assert self.system.offsets("c")[0].upcoming == str(self.end)
        for end in (self.end, horizon, self.random.randint(0, self.end)):
            try:
                state = applied({}, self.system.changes("c", 0, 0, end))
            except OffsetOutOfRange:
                assert 0 < end < horizon
            else:
                assert state == self.states[end]

    def happen(self, event: str) -> None:
        if event == "write":
            self.write()
        elif event == "tidy":
            self.tidy()
        elif event == "die":
            self.keepers[self.random.randrange(2)] = self.keeper()
        elif event == "time":
            self.clock.advance(31)
        else:
            self.follow(under_way=event == "follow under way")

    def close(self) -> None:
        for copy in self.copies:
            copy.close()
        self.system.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_compacted_changelog_is_the_changelog(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for number in range(250):
        history.happen(history.random.choice(EVENTS))
        if number % 10 == 0:
            history.check()
    for _ in range(100):
        history.clock.advance(31)
        history.tidy()
    history.check()
    assert history.system.compaction("c", 0).drops > 5
    history.close()
