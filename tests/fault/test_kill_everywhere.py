"""kill -9 at every named point of the data plane: each record is still counted exactly once.

Many kills share one job's life, since a start of Spark costs more than all the rest. Those of a start and of an
executor are met by a StreamTask job, those around a batch by a StreamTask job, and by a DataFrame pipeline where it
goes another way; those inside the transaction by `test_kill_commit.py`, four times each and without Spark, as Spark
sees no difference between them. `make nightly` leaves nothing out: jobs of both kinds meet every point of the driver
twice, those of a batch at three passes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from grete.failpoints import POINTS

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(600)]

NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
RECORDS = 4_000
REBUILDING = ["store.rebuilding", "store.refilled"]  # met by test_kill_rebuild.py
NEW_LINEAGE = ["lineage.locked", "lineage.described", "lineage.current"]
AROUND_A_BATCH = [
    "batch.before-run",
    "batch.after-run",
    "commit.before",
    "commit.outputs-written",
    "commit.in-transaction",
    "commit.after-transaction",
    "commit.after",
    "batch.after-commit",
]
if not NIGHTLY:  # met four times in test_kill_commit.py
    AROUND_A_BATCH = [
        name
        for name in AROUND_A_BATCH
        if name not in ("commit.before", "commit.outputs-written", "commit.after")
    ]
PIPELINE = [
    "container.lineage-decided",
    "batch.after-run",
    "commit.in-transaction",
    "commit.after-transaction",
]


def points(*families: str) -> list[str]:
    return [name for name in POINTS if name.split(".")[0] in families]


def passes(names: Iterable[str], *nths: int) -> list[tuple[str, int]]:
    return [(name, nth) for nth in nths for name in names]


DRIVER = points("container", "lineage", "batch", "commit", "log", "file")
EXECUTOR = [name for name in points("task", "store") if name not in REBUILDING]
ONCE_A_WORKER = ["task.before-init", "task.after-init", "store.created"]  # a task stays with its worker


BEFORE_THE_QUERY = points("container", "log", "file") + NEW_LINEAGE


def stream_task_points() -> list[tuple[str, int]]:
    """Points once a start, and points around a batch."""
    if NIGHTLY:
        return every_driver_point()
    return passes(BEFORE_THE_QUERY, 1) + passes(AROUND_A_BATCH, 1)


def every_driver_point() -> list[tuple[str, int]]:
    """Twice what happens once a start, three times what happens every batch."""
    again = [name for name in BEFORE_THE_QUERY if name != "lineage.current"]  # once in a lineage's life
    every_batch = [name for name in DRIVER if name not in BEFORE_THE_QUERY]
    return passes(BEFORE_THE_QUERY, 1) + passes(again, 1) + passes(every_batch, 1, 2, 3)


RETRY_FOR_EVER = {"cluster-manager.container.retry.count": "-1"}
SMALL_BATCHES = {"task.max.records.per.batch": "50" if NIGHTLY else "400", **RETRY_FOR_EVER}


def test_every_point_is_met_by_one_campaign_or_another() -> None:
    """Here, in test_submit.py, test_kill_commit.py, test_kill_rewind.py, test_kill_rebuild.py, test_operated.py or,
    where executors commit, in test_kafka_job.py.
    """
    inside_the_transaction = set(points("commit"))
    control = points("submit", "leader", "coordinator", "model", "history", "state", "launch")
    control += points("executor", "checkpoint", "startpoint", "change", "log", "file")
    assert set(POINTS) == {*DRIVER, *EXECUTOR, *REBUILDING, *control}
    assert set(PIPELINE) <= set(DRIVER)
    assert {name for name, _ in stream_task_points()} | inside_the_transaction == set(DRIVER)


def test_killed_at_every_point_of_the_driver_every_record_is_counted_once(
    counter_job: Any, tmp_path: Path
) -> None:
    counter_job.fill(RECORDS)
    counter_job.configure(SMALL_BATCHES)
    counter_job.run_through(stream_task_points(), tmp_path / "died")
    counter_job.assert_exactly_once(RECORDS)


def test_killed_at_every_point_of_an_executor_every_record_is_counted_once(
    counter_job: Any, tmp_path: Path
) -> None:
    counter_job.fill(RECORDS)
    # a lost Python worker is a failed task, tried four times
    checkpoints = {"task.checkpoint.factory": "grete.checkpoint.coordinator-stream"}
    batches = {"task.max.records.per.batch": "200"}  # a third pass needs three batches in one process
    counter_job.configure({**SMALL_BATCHES, **batches, **checkpoints, "spark.master": "local[2,4]"})
    every_batch = [name for name in EXECUTOR if name not in ONCE_A_WORKER]
    kills = passes(every_batch, 1, 3) + passes(ONCE_A_WORKER, 1, 1)
    more = passes(EXECUTOR, 1) + passes(every_batch, 2)
    counter_job.run_through(kills + (more if NIGHTLY else []), tmp_path / "died")
    counter_job.assert_exactly_once(RECORDS)


def test_a_pipeline_killed_everywhere_sends_what_it_sends_unharmed(
    counting_pipelines: tuple[Any, Any], tmp_path: Path
) -> None:
    """Counts in Spark's state and the records sent, batch by batch: nothing lost, nothing twice, nothing else."""
    killed, unharmed = counting_pipelines
    for job in counting_pipelines:
        job.fill(RECORDS)
        job.configure(SMALL_BATCHES)
    assert unharmed.run().returncode == 0
    killed.run_through(every_driver_point() if NIGHTLY else passes(PIPELINE, 1), tmp_path / "died")
    assert killed.counts() == unharmed.counts()
    assert {counts[-1] for counts in killed.counts().values()} == {RECORDS // 50}
