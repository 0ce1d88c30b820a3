"""Shortening a stream from its start: whole segments, by age, never what is younger."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.clock import SystemClock
from grete.errors import OffsetOutOfRange
from grete.model.streams import StreamSpec
from grete.systems.local.log_sink import trim
from grete.systems.local.system import LocalSystem, Message


def values(system: LocalSystem, start: int) -> list[bytes]:
    return [value for _, batch in system.read("s", 0, start) for value in batch.column(1).to_pylist()]


def fill(system: LocalSystem, times: list[list[int]]) -> None:
    system.create_stream(StreamSpec("s", 1))
    for append in times:
        system.append("s", [Message(None, b"%d" % time_ms, time_ms) for time_ms in append])


def test_whole_segments_go_and_offsets_stay(system: LocalSystem) -> None:
    fill(system, [[1, 2], [3, 9], [4], [10]])
    assert trim(system, "s", 5) == 2  # the second segment holds a record that is young enough
    assert system.offsets("s")[0].oldest == "2"
    assert values(system, 2) == [b"3", b"9", b"4", b"10"]
    with pytest.raises(OffsetOutOfRange, match="holds 2 to 5"):
        values(system, 0)
    system.append("s", [Message(None, b"11", 11)])
    assert system.offsets("s")[0].newest == "6"


def test_a_stream_that_is_old_as_a_whole_is_empty_and_goes_on_where_it_was(system: LocalSystem) -> None:
    fill(system, [[1], [2]])
    assert (trim(system, "s", 5), trim(system, "s", 5)) == (2, 0)
    assert (system.offsets("s")[0].oldest, system.offsets("s")[0].upcoming) == (None, "2")
    system.append("s", [Message(None, b"7", 7)])
    assert values(system, 2) == [b"7"]


def test_a_compacted_stream_is_refused(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("c", 1, compacted=True))
    with pytest.raises(ValueError, match="compacted"):
        trim(system, "c", 5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), max_size=8), st.integers(0, 21))
def test_what_is_left_is_a_suffix_that_begins_with_a_young_segment(
    times: list[list[int]], before_ms: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        system = LocalSystem(Path(name), SystemClock())
        fill(system, times)
        gone = trim(system, "s", before_ms)
        left = list(times)
        while left and max(left[0]) < before_ms:
            left.pop(0)
        assert gone == sum(map(len, times)) - sum(map(len, left))
        assert values(system, gone) == [b"%d" % time_ms for append in left for time_ms in append]
        system.close()
