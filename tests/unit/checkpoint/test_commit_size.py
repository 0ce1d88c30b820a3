"""How much goes into one commit, after transactions that took longer than brokers wait for them."""

from __future__ import annotations

import pytest

from grete.clock import SystemClock
from grete.errors import LogError
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.inputs import LookedFor
from grete.systems.local.system import LocalSystem
from grete.tasks.share_input import ShareInput
from grete.tasks.share_limits import CommitSize


def test_a_commit_that_timed_out_is_made_with_half_of_its_records_down_to_one() -> None:
    size = CommitSize(200_000, timeout_s=15.0)
    size.timed_out(1_000, 1 << 20)
    assert size.records == 500
    for _ in range(8):
        size.timed_out(size.records, 1 << 20)
    assert size.records == 1


def test_what_takes_a_small_part_of_the_time_may_be_larger_again_up_to_what_is_configured() -> None:
    size = CommitSize(1_000, timeout_s=15.0)
    size.timed_out(1_000, 1 << 20)
    size.note(7.0)
    assert size.records == 500
    size.note(1.0)
    size.note(1.0)
    assert size.records == 1_000


def test_a_record_that_never_goes_in_time_is_an_error_that_says_what_to_raise() -> None:
    size = CommitSize(1_000, timeout_s=15.0)
    size.timed_out(1, 1 << 20)
    size.timed_out(1, 1 << 20)
    with pytest.raises(LogError, match=r"raise task\.commit\.transaction\.timeout\.ms"):
        size.timed_out(1, 1 << 20)


def test_a_record_that_went_at_last_begins_to_be_counted_again() -> None:
    size = CommitSize(1_000, timeout_s=15.0)
    for _ in range(10):
        size.timed_out(1, 1 << 20)
        size.timed_out(1, 1 << 20)
        size.note(1.0)


def test_an_input_that_goes_back_gives_the_same_again_and_bootstrap_streams_before_others(
    system: LocalSystem,
) -> None:
    for stream in ("rules", "words"):
        system.create_stream(StreamSpec(stream, 1))
        system.append(stream, [Message(None, b"%d" % n, 0) for n in range(4)])
    starting = {"local.rules.0": 2, "local.words.0": 0}
    given = ShareInput(
        LookedFor(system, SystemClock()), lambda name: system, starting, bootstrap=("local.rules",)
    )

    def poll() -> list[tuple[str, int]]:
        return [(str(one.ssp), one.next_offset) for one in given.poll(100, 0)]

    first = [poll(), poll()]
    assert first == [[("local.rules.0", 4)], [("local.words.0", 4)]]
    given.go_back({"local.rules.0": 3, "local.words.0": 1})
    assert given.take_moved() == {}
    assert [poll(), poll()] == first
