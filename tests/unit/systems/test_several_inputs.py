"""What a share reads from several systems at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.systems.inputs import Arrived, LookedFor, Span, Wanted
from grete.systems.local.system import LocalSystem, Message
from grete.systems.several import SeveralInputs
from grete.testing.clock import ManualClock

NAMES = ("a", "b")


class Both:
    """Two embedded systems, each with a stream `in` of two partitions, read as one input."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.systems = {name: LocalSystem(folder / name, self.clock) for name in NAMES}
        for system in self.systems.values():
            system.create_stream(StreamSpec("in", 2))
        readers = {name: LookedFor(system, self.clock) for name, system in self.systems.items()}
        self.inputs = SeveralInputs(readers, self.clock)
        self.wanted: Wanted = {
            SystemStreamPartition(name, "in", partition): Span(0) for name in NAMES for partition in (0, 1)
        }

    def send(self, system: str, count: int) -> None:
        self.systems[system].append("in", [Message(None, b"%d" % i, 0, i % 2) for i in range(count)])

    def poll(self, records: int = 100, wait_s: float = 0.0) -> list[Arrived]:
        found = self.inputs.poll(self.wanted, records, wait_s)
        after = {one.ssp: Span(one.next_offset) for one in found}
        self.wanted = {**self.wanted, **after}
        return found

    def close(self) -> None:
        self.inputs.close()
        for system in self.systems.values():
            system.close()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with closing(Both(tmp_path)) as made:
        yield made


def counted(found: list[Arrived]) -> dict[str, int]:
    counts = dict.fromkeys(NAMES, 0)
    for one in found:
        counts[one.ssp.system] += 0 if one.records is None else one.records.num_rows
    return counts


def test_each_gives_its_part_and_none_keeps_another_waiting(both: Both) -> None:
    both.send("a", 1_000)
    both.send("b", 10)
    seen = {"a": 0, "b": 0}
    for turn in range(6):
        for name, count in counted(both.poll(40)).items():
            seen[name] += count
        if turn == 0:
            assert seen["b"] == 10, "few records of one are not behind many of another"
    assert seen["a"] > 100


def test_what_comes_in_any_of_them_ends_the_wait(both: Both) -> None:
    assert both.poll(wait_s=0.5) == []
    waited_s = both.clock.monotonic_s()
    both.send("b", 3)
    assert counted(both.poll(wait_s=5.0)) == {"a": 0, "b": 3}
    assert both.clock.monotonic_s() - waited_s < 0.1


def test_only_what_is_wanted_is_read(both: Both) -> None:
    both.send("a", 4)
    both.send("b", 4)
    both.wanted = {SystemStreamPartition("b", "in", 1): Span(0)}
    assert counted(both.poll()) == {"a": 0, "b": 2}
    both.wanted = {}
    assert both.poll(wait_s=0.0) == []
