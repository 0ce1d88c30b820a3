"""Which Spark partition of a pipeline's batch reads what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grete.tasks.ranges import Range, SourceOffsets, task_groups


def spread(sizes: list[int], slots_at_most: int) -> list[list[Range]]:
    """The ranges of each slot, of SSPs with so many records to be read."""
    ssps = [f"local.in.{partition}" for partition in range(len(sizes))]
    start = SourceOffsets(dict.fromkeys(ssps, 100))
    end = SourceOffsets({ssp: 100 + size for ssp, size in zip(ssps, sizes, strict=True)})
    groups = task_groups(ssps, None, slots_at_most, start, end)
    return [[one for _, ranges in group for one in ranges] for group in groups.values()]


def test_partitions_share_as_many_readers_as_run_at_once_and_each_reads_as_much() -> None:
    assert spread([20, 0, 90, 40, 55], 2) == [
        [Range(0, 100, 120), Range(2, 100, 190)],
        [Range(3, 100, 140), Range(4, 100, 155)],
    ]
    assert spread([0, 0, 7], 2) == [[Range(2, 100, 107)]]
    assert spread([0, 0], 2) == []


@given(st.lists(st.integers(0, 1_000), max_size=40), st.integers(1, 8))
def test_every_record_is_read_once_and_no_reader_has_much_more_than_another(
    sizes: list[int], slots: int
) -> None:
    groups = spread(sizes, slots)
    assert sorted((one.ssp, one.end - one.start) for group in groups for one in group) == [
        (ssp, size) for ssp, size in enumerate(sizes) if size
    ]
    assert all(groups)
    loads = [sum(one.end - one.start for one in group) for group in groups]
    assert len(loads) == min(slots, sum(1 for size in sizes if size))
    if len(loads) > 1:
        assert max(loads) - min(loads) <= max(sizes)
