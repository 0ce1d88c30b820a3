"""The rule for a pipeline's batches over hours of made-up loads: short enough for the lag target, and no flapping."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.coordinator.batch_sizing import BatchRule, BatchSize, BatchSizer
from grete.coordinator.figure_file import Figures

RULE = BatchRule(most=200_000, lag_s=60, after_s=60)
STEP_S, HOUR_S = 10, 3_600


@dataclass
class Pipeline:
    """Runs batch after batch, each for `fixed_s` and as long as its records take; figures come every ten seconds."""

    arrives: Callable[[float], float]
    pace: Callable[[float], float]
    behind: float = 0.0
    fixed_s: float = 1.0
    limit: int = RULE.most
    at_s: float = 0.0
    changes: list[tuple[float, BatchSize]] = field(default_factory=list)
    batches: list[tuple[float, float, int]] = field(default_factory=list)
    """When each ended, how long it took, and its records."""

    def run(self, seconds: float, rule: BatchRule = RULE) -> Pipeline:
        sizer, ends_s, in_batch = BatchSizer(rule), 0.0, 0
        records = commits = took_s = 0.0
        began_s = 0.0
        while self.at_s < seconds:
            self.at_s += 1
            self.behind += self.arrives(self.at_s)
            if self.at_s >= ends_s and in_batch:
                self.batches.append((self.at_s, self.at_s - began_s, in_batch))
                records, commits, took_s = records + in_batch, commits + 1, took_s + self.at_s - began_s
                self.behind -= in_batch
                in_batch = 0
            if not in_batch and self.behind >= 1:
                in_batch, began_s = min(self.limit, int(self.behind)), self.at_s
                ends_s = self.at_s + self.fixed_s + in_batch / self.pace(self.at_s)
            if self.at_s % STEP_S == 0:
                figures = Figures(
                    self.at_s,
                    int(self.behind),
                    records / STEP_S,
                    took_s / commits if commits else None,
                    2,
                    0,
                    0.0,
                    records / commits if commits else None,
                )
                records = commits = took_s = 0.0
                if (found := sizer.observe(figures, self.limit)) is not None:
                    self.changes.append((self.at_s, found))
                    self.limit = found.records
        return self

    def longest_s(self, after_s: float) -> float:
        return max(took for at_s, took, _ in self.batches if at_s > after_s)


@pytest.mark.parametrize("pace", [300.0, 1_000.0, 3_000.0])
def test_batches_that_take_longer_than_the_lag_target_are_made_short_at_the_first_one(pace: float) -> None:
    job = Pipeline(lambda at_s: 0.8 * pace, lambda at_s: pace, behind=2_000_000).run(6 * HOUR_S)
    [(at_s, first)] = job.changes
    assert at_s < 200_000 / pace + 2 * STEP_S
    assert str(first).startswith(f"200000 to {first.records} records a batch: a full batch took ")
    assert job.longest_s(at_s + 200_000 / pace + 2 * STEP_S) < RULE.lag_s / 2
    assert first.records == pytest.approx(pace * RULE.lag_s / 4, rel=0.1)


def test_batches_grow_again_when_the_output_is_fast_again_and_never_beyond_what_is_configured() -> None:
    job = Pipeline(
        lambda at_s: 450.0, lambda at_s: 500.0 if at_s < HOUR_S else 40_000.0, behind=3_000_000
    ).run(4 * HOUR_S)
    sizes = [found.records for _, found in job.changes]
    assert sizes[0] < 10_000
    assert sizes[1:] == sorted(sizes[1:])
    assert max(sizes) <= 200_000
    assert max(later / before for before, later in itertools.pairwise(sizes)) <= 4
    assert job.behind < 10_000, "what was left is worked off"


def test_a_job_that_keeps_up_or_whose_output_is_dead_keeps_its_batches() -> None:
    calm = Pipeline(lambda at_s: 500.0, lambda at_s: 2_000.0).run(6 * HOUR_S)
    assert calm.changes == []
    sizer = BatchSizer(RULE)
    for step in range(500):
        assert sizer.observe(Figures(step * STEP_S, step * 10_000, 0.0, None, 2), 200_000) is None
        assert sizer.observe(Figures(step * STEP_S, None, None, None, None), 200_000) is None


@settings(max_examples=60, deadline=None)
@given(
    paces=st.lists(st.floats(50, 50_000), min_size=1, max_size=4),
    arrives=st.floats(0, 60_000),
    fixed_s=st.floats(0.1, 20),
    most=st.sampled_from([1, 50, 1_000, 200_000]),
)
def test_whatever_arrives_sizes_stay_in_bounds_and_changes_are_few(
    paces: list[float], arrives: float, fixed_s: float, most: int
) -> None:
    rule = BatchRule(most, RULE.lag_s, RULE.after_s)
    job = Pipeline(
        lambda at_s: arrives,
        lambda at_s: paces[min(int(at_s // HOUR_S), len(paces) - 1)],
        behind=1_000_000,
        fixed_s=fixed_s,
        limit=most,
    ).run(len(paces) * HOUR_S, rule)
    assert all(min(100, most) <= found.records <= most for _, found in job.changes)
    assert len(job.changes) <= 8 * len(paces)
    for (earlier_s, _), (later_s, found) in itertools.pairwise(job.changes):
        assert later_s > earlier_s
        assert found.records != found.before
