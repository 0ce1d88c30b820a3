"""kill -9 at every named point of the data plane: each record is still counted exactly once.

Many kills share one job's life, since a start of Spark costs more than all the rest. A StreamTask job on Spark meets
the points that lie in the room of the engine and those of an executor, one without Spark all others, since their code
is the same. A DataFrame pipeline meets those of lineages, and others where it goes another way. `make nightly` leaves
nothing out: jobs of both kinds meet every point of the driver, those of a commit at two passes, all on Spark.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import grete.spark
from grete.failpoints import POINTS
from grete.spark.lineage.decision import LineageInfo
from grete.spark.lineage.files import LineageDirectory
from grete.spark.lineage.offset_log import SparkProgress
from grete.testing.waiting import patient

NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(3_600 if NIGHTLY else 600)]

RECORDS = 4_000
ENGINE = Path(grete.spark.__file__).parent
REBUILDING = ["store.rebuilding", "store.refilled"]  # met by test_kill_rebuild.py
STATEFUL = Path(__file__).parents[1] / "unit" / "migration" / "spark_checkpoints" / "spark-4.2.0-stateful"
"""A query that has counted, as Spark left it."""
NEW_LINEAGE = ["lineage.locked", "lineage.described", "lineage.current"]


def points(*families: str) -> list[str]:
    return [name for name in POINTS if name.split(".")[0] in families]


def passes(names: Iterable[str], *nths: int) -> list[tuple[str, int]]:
    return [(name, nth) for nth in nths for name in names]


def is_of_the_engine(name: str) -> bool:
    """Whether only a container on Spark passes the point."""
    return any(f'failpoint("{name}")' in path.read_text() for path in ENGINE.glob("*.py"))


PLANNED = "lineage.planned"
LINEAGE = [*NEW_LINEAGE, "container.lineage-decided"]
DRIVER = [name for name in points("container", "epoch", "log", "file") if name not in LINEAGE]
ON_THE_DRIVER = ["commit.before", "commit.after-transaction", "commit.after"]
"""Around commits that are no share's: of a pipeline, and of rewinds."""
IN_A_COMMIT = [name for name in points("commit") if name not in ON_THE_DRIVER]
OF_PIPELINES = [*(name for name in DRIVER if name not in points("epoch")), *points("batch", "commit")]
"""The epochs of a container's shares are those of StreamTasks: a pipeline has none."""
PIPELINE = ["container.lineage-decided", "commit.in-transaction"]
"""In `make test`; tests/e2e/test_pipeline_kills.py meets every step of a batch in one Spark."""
WITH_SPARK = [name for name in DRIVER if is_of_the_engine(name)]
WITHOUT_SPARK = [name for name in DRIVER if not is_of_the_engine(name)] + IN_A_COMMIT
EXECUTOR = [name for name in points("task", "store", "executor") if name not in REBUILDING] + IN_A_COMMIT
ONCE_A_WORKER = ["task.before-init", "task.after-init", "store.created"]  # a task stays with its worker


AT_A_START = [name for name in points("container", "log", "file") if name not in LINEAGE]


def every_driver_point(names: Iterable[str] = DRIVER) -> list[tuple[str, int]]:
    """Once what happens once a start, twice what happens at every commit."""
    every_batch = [name for name in names if name not in AT_A_START]
    return passes(AT_A_START, 1) + passes(every_batch, 1, 2)


RETRY_FOR_EVER = {"cluster-manager.container.retry.count": "-1"}
SMALL_BATCHES = {"task.max.records.per.batch": "50" if NIGHTLY else "400", **RETRY_FOR_EVER}


def test_every_point_is_met_by_one_campaign_or_another() -> None:
    """Here, in test_submit.py, test_kill_commit.py, test_kill_rewind.py, test_kill_rebuild.py, test_operated*.py or,
    on Kafka, in test_kafka_job.py; those of a pipeline's sinks in test_pipeline_sinks.py, of Azure in
    test_azure_job.py, of snapshots and transfers of stores, of clones and of another factor of elasticity, in their
    tests.
    """
    control = points("submit", "leader", "coordinator", "model", "history", "state", "launch")
    control += points("checkpoint", "startpoint", "change", "log", "file")
    assert set(POINTS) == {
        *DRIVER,
        *LINEAGE,
        PLANNED,
        *WIDENED,
        *OF_PIPELINES,
        *EXECUTOR,
        *REBUILDING,
        *points("sink", "azure", "snapshot", "transfer", "elasticity", "clone"),
        *control,
    }
    assert {*WITH_SPARK, *WITHOUT_SPARK} == {*DRIVER, *IN_A_COMMIT}
    assert set(PIPELINE) - set(OF_PIPELINES) == set(LINEAGE) - set(NEW_LINEAGE)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("spark", [True, False], ids=["on Spark", "without"])
def test_killed_at_every_point_of_the_driver_every_record_is_counted_once(
    counter_job: Any, tmp_path: Path, spark: bool
) -> None:
    in_ci = passes(WITH_SPARK if spark else WITHOUT_SPARK, 1)
    # shares report 20 times a second at most, and the last process has to be met by a second report
    records = 4 * RECORDS if NIGHTLY else RECORDS
    counter_job.fill(records)
    counter_job.configure(SMALL_BATCHES)
    kills = every_driver_point() if NIGHTLY and spark else in_ci
    counter_job.run_through(kills, tmp_path / "died", spark=spark)
    counter_job.assert_exactly_once(records)


def test_killed_at_every_point_of_an_executor_every_record_is_counted_once(
    counter_job: Any, tmp_path: Path
) -> None:
    records = RECORDS if NIGHTLY else RECORDS // 2
    counter_job.fill(records)
    # a lost Python worker is a failed task, tried four times
    checkpoints = {"task.checkpoint.factory": "grete.checkpoint.coordinator-stream"}
    batches = {"task.max.records.per.batch": "50"}  # a second pass needs two commits in one process
    counter_job.configure({**SMALL_BATCHES, **batches, **checkpoints, "spark.master": "local[2,4]"})
    every_batch = [name for name in EXECUTOR if name not in ONCE_A_WORKER]
    kills = passes(every_batch, 2) + passes(ONCE_A_WORKER, 1)
    more = passes(every_batch, 1, 3) + passes(EXECUTOR, 1) + passes(ONCE_A_WORKER, 1)
    counter_job.run_through(kills + (more if NIGHTLY else []), tmp_path / "died")
    counter_job.assert_exactly_once(records)


@pytest.mark.nightly  # the outputs of tests/e2e/test_pipeline_kills.py are killed at these steps
def test_a_pipeline_killed_everywhere_sends_what_it_sends_unharmed(
    counting_pipelines: tuple[Any, Any], tmp_path: Path
) -> None:
    """Counts in Spark's state and the records sent, batch by batch: nothing lost, nothing twice, nothing else."""
    records = RECORDS if NIGHTLY else RECORDS // 2
    killed, unharmed = counting_pipelines
    for job in counting_pipelines:
        job.fill(records)
        job.configure(SMALL_BATCHES)
    assert unharmed.run().returncode == 0
    more = every_driver_point(OF_PIPELINES) + passes(NEW_LINEAGE, 1) + passes(LINEAGE[:2], 1)
    killed.run_through(passes(PIPELINE, 1) + (more if NIGHTLY else []), tmp_path / "died")
    assert killed.counts() == unharmed.counts()
    assert {counts[-1] for counts in killed.counts().values()} == {records // 50}


BEGIN_A_LINEAGE = """
import sys
from pathlib import Path
from grete.spark.lineage.decision import LineageInfo
from grete.spark.lineage.files import LineageDirectory
LineageDirectory(Path(sys.argv[1])).start(LineageInfo("", {"local.in.0": int(sys.argv[2])}, "plan"))
"""


@pytest.mark.parametrize("point", NEW_LINEAGE)
def test_killed_while_a_lineage_begins_it_or_the_one_before_is_current_and_free(
    tmp_path: Path, point: str
) -> None:
    def begin(number: int, **environment: str) -> int:
        command = [sys.executable, "-c", BEGIN_A_LINEAGE, str(tmp_path), str(number)]
        return subprocess.run(command, env={**os.environ, **environment}, timeout=patient(60)).returncode

    def current() -> int:
        with closing(LineageDirectory(tmp_path)) as lineages:
            found = lineages.current()
            assert found is not None
            assert lineages.lock(found), "its process is dead"
            assert lineages.spark_checkpoint(found).is_dir()
            return found.starting_offsets["local.in.0"]

    assert begin(1) == 0
    assert begin(2, GRETE_FAILPOINT=f"{point}:kill") == -signal.SIGKILL
    assert current() == (2 if point == "lineage.current" else 1)
    assert begin(3) == 0
    assert current() == 3


WIDEN_A_LINEAGE = """
import sys
from pathlib import Path
from dataclasses import replace
from grete.spark.lineage.files import LineageDirectory
from grete.spark.lineage.parted_sources import with_more
lineages = LineageDirectory(Path(sys.argv[1]))
found = lineages.current()
assert lineages.lock(found)
sources = ("k.more", "k.views")
lineages.widen(replace(found, sources=sources), with_more(found.sources, sources), now_ms=5)
"""
WIDENED = ["lineage.described", "lineage.changed", "lineage.current"]


@pytest.mark.parametrize("point", WIDENED)
@pytest.mark.parametrize("nth", [1, 2])
def test_killed_while_an_input_comes_to_a_lineage_it_is_as_it_was_or_wide_and_can_be_either_again(
    tmp_path: Path, point: str, nth: int
) -> None:
    """With Spark in tests/e2e/test_pipeline_inputs.py."""
    with closing(LineageDirectory(tmp_path)) as lineages:
        before = lineages.start(
            LineageInfo("", {"k.views.0": 0}, "plan", ("k.views",), "a count"), taken_over=STATEFUL
        )
        there = lineages.progress(before)

    def widen(**environment: str) -> int:
        command = [sys.executable, "-c", WIDEN_A_LINEAGE, str(tmp_path)]
        return subprocess.run(command, env={**os.environ, **environment}, timeout=patient(60)).returncode

    is_passed_twice = (
        point == "lineage.described"
    )  # the batch that reads nothing, and the lineage's description
    expected = -signal.SIGKILL if nth == 1 or is_passed_twice else 0
    assert widen(GRETE_FAILPOINT=f"{point}:kill:{nth}") == expected
    with closing(LineageDirectory(tmp_path)) as lineages:
        found = lineages.current()
        assert found is not None
        assert found.id == before.id
        assert len(found.sources) == (2 if point == "lineage.current" or expected == 0 else 1)
        assert isinstance(there, SparkProgress)
        progress = lineages.progress(found)
        assert isinstance(progress, SparkProgress)
        assert progress.committed_end == there.committed_end
        if len(found.sources) == 1:
            assert widen() == 0
            found = lineages.current()
            assert found is not None
        assert lineages.progress(found) == replace(
            there, planned=there.committed + 1, planned_end=there.committed_end
        )
        assert [path.name for path in (tmp_path / found.id).iterdir() if path.is_dir()].count("spark-2") == 1
        assert (lineages.spark_checkpoint(found) / "state" / "0").is_dir()


PLAN_A_BATCH = """
import sys
from pathlib import Path
from grete.spark.lineage.files import LineageDirectory
lineages = LineageDirectory(Path(sys.argv[1]))
print(lineages.plan_up_to(lineages.current(), {"k.views.0": int(sys.argv[2])}, now_ms=5))
"""


def test_killed_when_a_batch_is_planned_up_to_an_end_it_is_that_batch_that_runs(tmp_path: Path) -> None:
    """With Spark in tests/e2e/test_pipeline_clone.py."""
    with closing(LineageDirectory(tmp_path)) as lineages:
        lineage = lineages.start(
            LineageInfo("", {"k.views.0": 0, "k.views.1": 0}, "plan", ("k.views",)), taken_over=STATEFUL
        )

    def plan(end: int, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PLAN_A_BATCH, str(tmp_path), str(end)]
        return subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=patient(60)
        )

    assert plan(12, GRETE_FAILPOINT=f"{PLANNED}:kill").returncode == -signal.SIGKILL
    assert plan(20).stdout == "True\n"
    with closing(LineageDirectory(tmp_path)) as lineages:
        found = lineages.progress(lineage)
    assert isinstance(found, SparkProgress)
    assert found.planned == found.committed + 1
    assert found.planned_end is not None
    assert found.planned_end.next_offsets == {"k.views.0": 12, "k.views.1": 10}
