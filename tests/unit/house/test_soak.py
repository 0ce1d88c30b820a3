"""What a soak calls a problem."""

from __future__ import annotations

import pytest

from grete_workbench.soak.arithmetic import CountsInOrder, EachOnce
from grete_workbench.soak.samples import Sample, growth


def test_counts_in_order_are_no_problem_and_the_last_is_what_was_sent() -> None:
    counts = CountsInOrder()
    for count in (1, 2, 3):
        counts.take("a", count)
    assert counts.problems == []
    assert list(counts.missing({"a": 3})) == []
    assert list(counts.missing({"a": 4, "b": 1})) == [
        "a: the last count is 3 of 4",
        "b: the last count is 0 of 1",
    ]


@pytest.mark.parametrize(
    ("taken", "said"), [((1, 1), "1 follows 1"), ((1, 3), "3 follows 1"), ((2,), "2 follows 0")]
)
def test_a_count_that_is_doubled_or_left_out_is_a_problem(taken: tuple[int, ...], said: str) -> None:
    counts = CountsInOrder()
    for count in taken:
        counts.take("a", count)
    assert counts.problems == [f"a: {said}"]


def test_each_key_may_go_back_once_for_a_rewind_and_never_ahead() -> None:
    counts = CountsInOrder()
    for count in (1, 2, 3):
        counts.take("a", count)
        counts.take("b", count)
    counts.rewound()
    for count in (2, 3, 4):
        counts.take("a", count)
    counts.take("b", 4)
    assert counts.problems == []
    counts.take("a", 4)
    assert counts.problems == ["a: 4 follows 4"]
    counts.rewound()
    counts.take("b", 7)
    assert counts.problems[1:] == ["b: 7 follows 4"]


def test_numbers_may_come_in_any_order_and_each_once() -> None:
    numbers = EachOnce()
    for number in (1, 0, 3):
        numbers.take("a", number)
    assert list(numbers.missing({"a": 4})) == ["a: 2 is missing of 4"]
    numbers.take("a", 2)
    assert list(numbers.missing({"a": 4})) == []
    numbers.take("a", 3)
    numbers.take("b", 0)
    numbers.take("b", 0)
    assert numbers.problems == ["a: 3 is there twice", "b: 0 is there twice"]


def test_what_grows_over_the_last_half_shows_and_what_only_varies_does_not() -> None:
    found = growth([Sample(float(at), 100.0, 50 + at % 3, 7, max(0, at - 50)) for at in range(101)])
    assert found["memory_mb"] == 0
    assert abs(found["descriptors"]) < 0.02
    assert found["files"] > 1
