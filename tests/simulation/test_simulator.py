"""Whole jobs in a seeded world full of faults: every promise is kept, and a mutation that breaks one is found."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete_workbench.simulator.__main__ import main
from grete_workbench.simulator.plants import NoPlants, load_plants
from grete_workbench.simulator.run import simulate, simulate_many

SEEDS = 3_000 if os.environ.get("GRETE_NIGHTLY") == "1" else 240
BLOCKS = 20
ROOT = Path(__file__).parents[2]
PLANTS = load_plants(ROOT)
LATE = {
    "claim-forgotten": 75,
    "lost-container-not-fenced": 257,
    "broke-off-and-not-fenced": 186,
    "lost-share-not-refused": 524,
    "pause-is-believed": 72,
    "stopped-counts-as-drained": 168,
    "late-report-taken": 25,
    "epoch-not-checked": 511,
    "order-of-a-later-leader-overwritten": 1873,
    "tombstone-ignored": 60,
    "new-partitions-first": 57,
    "pending-applied-unproven": 62,
    "granted-before-let-go": 35,
    "lost-slot-not-noticed": 50,
    "cut-off-and-well": 83,
    "slot-shared": 50,
    "adopted-without-comparing": 33,
    "lost-leadership-ignored": 32,
    "processor-forgets-its-container": 77,
    "startpoint-before-adoption-forgotten": 60,
    "killed-thread-is-not-fenced": 42,
    "commit-retried-in-doubt": 31,
}
"""Plants that no early seed has found, and one that has: the search begins there, and goes on with all others."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Logs of injected faults are not worth reading: a violation is replayed with its trace."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_promise_is_kept_in_every_seed(block: int) -> None:
    report = simulate_many(range(block, SEEDS, BLOCKS))
    found = [f"seed {outcome.seed}: {outcome.violation}" for outcome in report.violations]
    assert not found, "\n".join(found)
    assert report.outputs > report.seeds * 10, "jobs in which nothing happens keep every promise"


@pytest.mark.parametrize("among", [(), ("container-count", "kill-container")])
def test_a_configuration_that_does_not_fit_is_taken_back_and_nothing_is_lost(among: tuple[str, ...]) -> None:
    outcomes = [simulate(seed, ("unfit-config", *among)) for seed in range(SEEDS // 10)]
    found = [f"seed {outcome.seed}: {outcome.violation}" for outcome in outcomes if outcome.violation]
    assert not found, "\n".join(found)
    said = [line for outcome in outcomes for line in outcome.trace]
    assert sum("goes back to the configuration before" in line for line in said) > len(outcomes) / 10


def test_no_task_has_two_writers_when_others_say_that_its_container_has_paused() -> None:
    report = simulate_many(range(SEEDS // 10), emphasis=("forged-pause", "container-count"))
    found = [f"seed {outcome.seed}: {outcome.violation}" for outcome in report.violations]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("block", range(2))
def test_every_promise_is_kept_where_a_few_faults_are_frequent(embedded: bool, block: int) -> None:
    report = simulate_many(range(block, SEEDS // 6, 2), emphasis=None, embedded=embedded)
    found = [f"seed {outcome.seed}: {outcome.violation}" for outcome in report.violations]
    assert not found, "\n".join(found)


def test_every_promise_is_kept_by_jobs_of_stream_processors() -> None:
    report = simulate_many(range(SEEDS // 10), embedded=True)
    found = [f"seed {outcome.seed}: {outcome.violation}" for outcome in report.violations]
    assert not found, "\n".join(found)
    assert report.outputs > report.seeds * 10, "jobs in which nothing happens keep every promise"


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_found(name: str) -> None:
    plant, first = PLANTS[name], LATE.get(name, 0)
    seeds = [*range(first, plant.seeds), *range(first)]
    with plant.planted():
        report = simulate_many(
            seeds, emphasis=plant.emphasis, embedded=plant.embedded, stop_at_violation=True
        )
    assert report.violations, f"{plant.what}: not found in {report.seeds} seeds"


def test_a_plant_leaves_the_product_as_it_was() -> None:
    before = simulate(3).digest
    for plant in PLANTS.values():
        with plant.planted():
            pass
    assert simulate(3).digest == before


def test_a_seed_does_the_same_in_every_process() -> None:
    program = (
        "from grete_workbench.simulator.run import simulate;"
        "print([simulate(s, embedded=e).digest for s in range(6) for e in (False, True)])"
    )
    outcomes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outcomes) == 1


def test_the_command_says_what_it_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2"]) == 0
    assert "seeds 2, steps " in capsys.readouterr().out


def test_the_command_fails_at_a_violation_and_says_how_to_replay_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "20", "--plant", "checkpoint-before-outputs"]) == 1
    assert "replay: python -m grete_workbench.simulator --seed " in capsys.readouterr().out


def test_the_command_lists_plants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-plants"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PLANTS)


def test_an_unknown_plant_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plant", "nothing"]) == 2
    assert "there is no plant 'nothing'; there are acked-before-durable" in capsys.readouterr().err


def test_plants_need_the_test_tree(tmp_path: Path) -> None:
    with pytest.raises(NoPlants, match="test tree"):
        load_plants(tmp_path)
