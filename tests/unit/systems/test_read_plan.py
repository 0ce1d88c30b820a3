"""Reading on while a partition is unreachable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from grete.errors import StreamUnreachable
from grete.model.ids import SystemStreamPartition
from grete.systems.admin import PartitionOffsets, Range
from grete.tasks.read_plan import ReadPlan, SourceOptions
from grete.testing.clock import ManualClock

OPTIONS = SourceOptions(
    system="s",
    config={},
    home="",
    ssps=("s.in.0", "s.in.1", "s.first.0"),
    starting_offsets={"s.in.0": 0, "s.in.1": 0, "s.first.0": 0},
    tasks=((0, 1, 2),),
    max_records=100,
)


class Ends:
    """Ten records a partition, and some that are away."""

    def __init__(self, *away: tuple[str, int]) -> None:
        self.away = set(away)

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        if any(name == stream for name, _ in self.away):
            raise StreamUnreachable(f"not all of {stream}")
        return dict.fromkeys(range(2), PartitionOffsets("0", "9", "10"))

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        held = PartitionOffsets("0", "9", "10")
        return {number: None if (stream, number) in self.away else held for number in range(2)}

    def sizes(self, ranges: Mapping[SystemStreamPartition, Range]) -> Mapping[SystemStreamPartition, int]:
        return {ssp: 100 * (end - start) for ssp, (start, end) in ranges.items()}

    def end_within(self, ssp: SystemStreamPartition, offsets: Range, size: int) -> int:
        return max(offsets[0] + 1, offsets[0] + size // 100)


def read(plan: ReadPlan) -> dict[str, int]:
    return dict(plan.next(plan.initial(), rows=None).next_offsets)


def test_the_others_are_read_and_it_goes_on_when_it_is_back() -> None:
    ends = Ends(("in", 1))
    plan = ReadPlan(OPTIONS, ends, ManualClock())
    assert read(plan) == {"s.in.0": 10, "s.in.1": 0, "s.first.0": 10}
    ends.away.clear()
    assert read(plan) == {"s.in.0": 10, "s.in.1": 10, "s.first.0": 10}


def test_a_drain_waits_for_it_since_what_is_there_is_unknown() -> None:
    with pytest.raises(StreamUnreachable):
        ReadPlan(OPTIONS, Ends(("in", 1)), ManualClock()).stop_at_the_end()


def test_nothing_goes_before_a_bootstrap_stream_of_which_a_partition_is_away() -> None:
    options = replace(OPTIONS, bootstrap=("s.first",))
    with pytest.raises(StreamUnreachable):
        read(ReadPlan(options, Ends(("first", 0)), ManualClock()))
    assert read(ReadPlan(options, Ends(("in", 1)), ManualClock())) == {
        "s.in.0": 0,
        "s.in.1": 0,
        "s.first.0": 10,
    }


def test_a_partition_that_was_added_waits_for_those_its_keys_were_in() -> None:
    options = replace(OPTIONS, later={"s.in.1": ["s.in.0"]})
    with pytest.raises(StreamUnreachable):
        read(ReadPlan(options, Ends(("in", 0)), ManualClock()))


def test_a_batch_is_bounded_by_bytes_and_every_partition_gets_on() -> None:
    options = replace(OPTIONS, max_bytes=1_500)
    plan = ReadPlan(options, Ends(), ManualClock())
    first = plan.next(plan.initial(), rows=100)
    assert first.next_offsets == {"s.in.0": 5, "s.in.1": 5, "s.first.0": 5}
    tiny = ReadPlan(replace(OPTIONS, max_bytes=1), Ends(), ManualClock())
    assert read(tiny) == {"s.in.0": 1, "s.in.1": 1, "s.first.0": 1}
    assert read(ReadPlan(replace(OPTIONS, max_bytes=10_000), Ends(), ManualClock()))["s.in.0"] == 10
