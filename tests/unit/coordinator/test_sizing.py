"""The rule of autosizing over days of made-up loads: the lag is kept, nothing flaps, a fixed size costs more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.coordinator.figure_file import Figures
from grete.coordinator.sizing import Sizer, Sizing, SizingRule
from grete_workbench.sized_job import DAY_S, HOUR_S, OF_ONE, RULE, STEP_S, SizedJob, wave


def test_a_daily_wave_is_followed_within_the_lag_and_costs_less_than_a_fixed_size() -> None:
    job = SizedJob(wave).run(2 * DAY_S)
    assert job.late_s == 0
    assert job.container_s < 0.7 * 2 * DAY_S * math.ceil(8_000 / (RULE.utilization * OF_ONE))
    assert len(job.changes) < 2 * 20
    turns = sum(
        (a.containers > b.containers) != (b.containers > c.containers)
        for (_, a), (_, b), (_, c) in zip(job.changes, job.changes[1:], job.changes[2:], strict=False)
    )
    assert turns <= 4, "up in the morning and down in the evening, and nothing between"


def test_a_spike_is_worked_off_and_given_back() -> None:
    job = SizedJob(lambda at_s: 6_000.0 if HOUR_S <= at_s < HOUR_S + 600 else 600.0).run(6 * HOUR_S)
    assert max(sizing.containers for _, sizing in job.changes) >= 7
    assert job.containers == 1
    assert job.late_s < 300
    assert len(job.changes) < 12


@pytest.mark.parametrize("per_s", [0.0, 300.0, 650.0, 2_000.0, 5_500.0, 11_000.0])
@pytest.mark.parametrize("containers", [1, 4, 16])
def test_a_steady_load_ends_at_one_size_that_keeps_up(per_s: float, containers: int) -> None:
    job = SizedJob(lambda at_s: per_s, containers=containers).run(6 * HOUR_S)
    assert job.containers * OF_ONE >= per_s
    uneven = 3  # 16 partitions are not divided evenly among 7 containers
    assert job.containers <= max(1, math.ceil(per_s / (RULE.utilization * OF_ONE))) + uneven
    assert [at_s for at_s, _ in job.changes if at_s > 4 * HOUR_S] == []


@pytest.mark.parametrize(("per_s", "containers"), [(2_600.0, 4), (3_500.0, 4), (5_500.0, 16), (11_000.0, 16)])
def test_a_job_that_keeps_up_is_never_made_so_small_that_it_falls_behind(
    per_s: float, containers: int
) -> None:
    """Nobody knows yet what a container can do, as after a fail-over; but what it computes is known."""
    job = SizedJob(lambda at_s: per_s, containers=containers).run(6 * HOUR_S)
    sizes = [sizing.containers for _, sizing in job.changes]
    assert sizes == sorted(sizes, reverse=True)
    assert max(behind_s for _, _, behind_s, _ in job.trace) < 30, "which is what a change takes"
    without = SizedJob(lambda at_s: per_s, replace(RULE, cores=None), containers=containers).run(6 * HOUR_S)
    assert [sizing.containers for _, sizing in without.changes] != sizes


def test_how_much_is_computed_is_said_where_it_counts() -> None:
    calm = [Figures(step * STEP_S, 0, 300.0, 0.2, 8, 0, 4.8) for step in range(100)]
    [(_, sizing)] = replayed(RULE, calm)[:1]
    assert (sizing.containers, sizing.why) == (
        7,
        "300 records/s at most for 15 minutes; what one container can do is not known yet; they use 4.8 processors, "
        "and one has 1",
    )


def test_a_hot_partition_gets_no_more_containers() -> None:
    job = SizedJob(lambda at_s: 1_500.0, hot=0.9, containers=2).run(6 * HOUR_S)
    assert job.changes == []


def test_more_that_do_not_help_are_given_back_and_tried_ever_less_often() -> None:
    job = SizedJob(lambda at_s: 1_500.0, sink=900.0, containers=2).run(7 * HOUR_S)
    assert [sizing.containers for _, sizing in job.changes] == [4, 2] * 4
    assert "4 containers process no more than 2 did" in job.changes[1][1].why
    up_s = [at_s for at_s, _ in job.changes[::2]]
    assert [round((later - at_s) / 1800) for at_s, later in itertools.pairwise(up_s)] == [1, 2, 4]


def test_a_dead_output_is_no_reason_for_more() -> None:
    sizer = Sizer(RULE)
    for step in range(200):
        assert sizer.observe(Figures(step * STEP_S, step * 10_000, 0.0, None, 2, step * 700)) is None
    assert "nothing is processed" in sizer.standing


def replayed(rule: SizingRule, figures: Iterable[Figures]) -> list[tuple[Figures, Sizing]]:
    sizer = Sizer(rule)
    return [(one, sizing) for one in figures if (sizing := sizer.observe(one)) is not None]


@pytest.mark.parametrize(
    "unknown", [Figures(0, None, 5.0, None, 2), Figures(0, 5, None, None, 2), Figures(0, 5, 5.0, None)]
)
def test_without_figures_it_does_nothing_and_says_so(unknown: Figures) -> None:
    sizer = Sizer(RULE)
    assert [sizer.observe(unknown._replace(at_s=step * STEP_S)) for step in range(300)] == [None] * 300
    assert "it is not known" in sizer.standing


def test_a_size_out_of_bounds_is_mended_at_once() -> None:
    rule = SizingRule(2, 3, 60, 0.7, 60, 900)
    assert replayed(rule, [Figures(0, 0, 0.0, None, 5)])[0][1] == Sizing(
        3, "the bounds are 2 and 3 containers", 5
    )
    assert replayed(rule, [Figures(0, 0, 0.0, None, 1)])[0][1].containers == 2


def test_a_coordinator_that_was_away_begins_to_look_anew() -> None:
    late = [Figures(step * STEP_S, 600_000, 1_000.0, 0.2, 1, 40_000) for step in range(9)]
    assert replayed(RULE, late) == []
    after = [one._replace(at_s=one.at_s + 300) for one in late]
    assert replayed(RULE, [*late, *after]) == []
    [(figures, sizing)] = replayed(
        RULE, [one._replace(at_s=step * STEP_S) for step, one in enumerate(late * 2)][:10]
    )
    assert (figures.at_s, sizing.containers) == (90.0, 2)
    assert (
        sizing.why == "600000 records behind, 600 s; 1000 records/s arrive; one container does 1000 records/s"
    )


@pytest.mark.parametrize("late_s", [0.0, 0.002, 0.9])
def test_figures_that_come_late_fill_a_window_too(late_s: float) -> None:
    rule = SizingRule(1, 4, 2, 0.7, 20, 20)
    late = [Figures(step * (STEP_S + late_s), 9_000, 50.0, 0.01, 1, 2_000) for step in range(8)]
    assert [sizing.containers for _, sizing in replayed(rule, late)] == [2]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(60, 3_600)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(4, 16),
    st.floats(0.05, 1.0),
)
def test_whatever_arrives_sizes_stay_in_bounds_and_changes_apart(
    loads: list[tuple[int, int]], least: int, most: int, hot: float
) -> None:
    def load(at_s: float) -> float:
        for per_s, lasts_s in loads:
            if at_s < lasts_s:
                return float(per_s)
            at_s -= lasts_s
        return 0.0

    rule = SizingRule(least, most, 60, 0.7, 60, 900)
    job = SizedJob(load, rule, hot, containers=least).run(sum(s for _, s in loads) + 2 * HOUR_S)
    assert all(least <= sizing.containers <= most for _, sizing in job.changes)
    times = [at_s for at_s, _ in job.changes]
    assert all(later - at_s >= 60 for at_s, later in itertools.pairwise(times))
    shrunk = [(at_s, sizing) for at_s, sizing in job.changes if "at most for" in sizing.why]
    for at_s, _ in shrunk:
        assert not any(at_s - 900 / 1.1 < other < at_s for other in times)
