"""When a share commits."""

from __future__ import annotations

import math

import pytest

from grete.tasks.share_limits import ShareLimits


@pytest.mark.parametrize(
    ("commit_s", "took_s", "due_s"),
    [
        (0.010, 0.004, 7.010),
        (0.010, 0.025, 7.026),
        (60.0, 0.025, 67.0),
        (0.0, 0.004, -math.inf),
        (math.inf, 0.004, math.inf),
    ],
)
def test_a_commit_follows_the_begin_of_the_one_before_and_not_at_once_its_end(
    commit_s: float, took_s: float, due_s: float
) -> None:
    limits = ShareLimits(1, 0, commit_s, 0, 1, None)
    assert limits.next_commit_s(7.0, 7.0 + took_s) == pytest.approx(due_s)


def test_the_first_commit_waits_for_nothing_but_a_task_that_asks_where_only_tasks_do() -> None:
    assert ShareLimits(1, 0, 0.010, 0, 1, None).next_commit_s(-math.inf, -math.inf) == -math.inf
    assert ShareLimits(1, 0, math.inf, 0, 1, None).next_commit_s(-math.inf, -math.inf) == math.inf
