"""Input of the embedded system: its partitions are looked at when something was written, and only then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.systems.admin import PartitionOffsets
from grete.systems.base import Message
from grete.systems.inputs import Inputs, Span
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import patient

SSPS = [SystemStreamPartition("local", "in", partition) for partition in range(3)]


class Counting(LocalSystem):
    """Counts how often partitions are looked at."""

    looks = 0

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        self.looks += 1
        return super().offsets(stream)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Counting]:
    with closing(Counting(tmp_path, SystemClock())) as made:
        made.create_stream(StreamSpec("in", 3))
        made.create_stream(StreamSpec("other", 1))
        yield made


@pytest.fixture
def inputs(system: Counting) -> Iterator[Inputs]:
    with closing(system.inputs(SystemClock())) as made:
        yield made


def test_while_nothing_is_written_partitions_are_looked_at_once(system: Counting, inputs: Inputs) -> None:
    wanted = {ssp: Span(0) for ssp in SSPS}
    for _ in range(5):
        assert inputs.poll(wanted, 10, 0.06) == []
        assert inputs.poll(wanted, 10, 0.0) == []
    assert system.looks == 1


def test_what_anybody_writes_is_found(system: Counting, inputs: Inputs, tmp_path: Path) -> None:
    """By this object, and by another process as far as the file shows."""
    position = 0
    with closing(LocalSystem(tmp_path, SystemClock())) as other:
        for writer in (system, other, system):
            assert inputs.poll({SSPS[1]: Span(position)}, 10, 0.0) == []
            writer.append("other", [Message(b"k", b"v", 1, 0)])
            assert inputs.poll({SSPS[1]: Span(position)}, 10, 0.0) == []
            writer.append("in", [Message(b"k", b"v", 1, 1)])
            [arrived] = inputs.poll({SSPS[1]: Span(position)}, 10, patient(10))
            position = arrived.next_offset
    assert position == 3


def test_what_is_left_and_what_is_wanted_now_is_found_without_a_change(
    system: Counting, inputs: Inputs
) -> None:
    system.append("in", [Message(b"k", b"%d" % n, 1, n % 2) for n in range(8)])
    first, second = ({ssp: Span(0)} for ssp in SSPS[:2])
    got = inputs.poll(first, 3, 0.0)
    assert [one.next_offset for one in got] == [3]
    assert [one.next_offset for one in inputs.poll({SSPS[0]: Span(3)}, 3, 0.0)] == [4]
    assert inputs.poll({SSPS[0]: Span(4)}, 3, 0.0) == []
    assert [one.next_offset for one in inputs.poll(second, 10, 0.0)] == [4]
