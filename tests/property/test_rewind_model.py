"""Any order of batches, deaths and rewinds: the stores are what they were at the batch to which the job went back.

Compared with a model that only remembers the stores after each batch.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import grete
from grete.checkpoint.rewind_target import BatchTarget
from grete.clock import SystemClock
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.keyed_log.sqlite_coordinator_log import FILE_NAME
from grete.metadata.coordinator_stream import stream_name
from grete.model.ids import JobId
from grete.model.startpoint import StateChoice
from grete.operations import open_job
from grete.operations.rewind import RewindRequest, execute_rewind, plan_rewind
from grete.sqlite_file import open_file
from grete.testing.job import JobUnderTest

JOB = JobId("test")
CONFIG = {
    "task.inputs": "local.in",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "stores.counts.factory": "grete.store.sqlite",
    "task.max.records.per.batch": "6",
}
TASKS = ("Partition 0", "Partition 1")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.text("abc", min_size=1, max_size=8)),
        st.tuples(st.sampled_from(["kill", "lose stores"]), st.just("")),
        st.tuples(st.just("rewind"), st.integers(0, 99)),
    ),
    min_size=3,
    max_size=10,
)


class Counter(grete.StreamTask):
    """Counts keys; a key that was counted three times is forgotten, so that there are deletions."""

    def init(self, context: grete.TaskContext) -> None:
        self.counts = context.store("counts")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        count = (self.counts.get(envelope.key) or 0) + 1
        if count == 3:
            self.counts.delete(envelope.key)
        else:
            self.counts.put(envelope.key, count)


Point = tuple[str, int, dict[str, dict[str, int]], dict[str, Any]]
"""Lineage, batch, last offsets and stores."""


def stores(job: JobUnderTest) -> dict[str, Any]:
    return {task: job.store("counts", task) for task in TASKS}


def run(job: JobUnderTest, points: list[Point]) -> None:
    """To the end; remember every batch after which each task has a checkpoint."""
    while job.run_batch() is not None:
        with open_job(JOB) as handle:
            history = handle.checkpoints.history()
        known = [one for commits in history.values() for one in commits]
        newest = max(known, key=lambda one: one.log_offset).commit
        if len(history) == len(TASKS):
            points.append((newest.lineage, newest.batch_id, job.checkpoints(), stores(job)))


def rewind(job: JobUnderTest, point: Point) -> None:
    lineage, batch_id, offsets, then = point
    request = RewindRequest(BatchTarget(batch_id, lineage), state=StateChoice.RESTORE)
    with open_job(JOB) as handle:
        execute_rewind(handle, plan_rewind(handle, request), live=False, to="batch", reason="")
    job.restart()
    assert job.checkpoints() == offsets
    assert stores(job) == then


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_whatever_happened_before_a_restored_job_is_where_it_was_after_that_batch(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        home = Path(name)
        patch.setenv("GRETE_HOME", name)
        file = open_file(home / "local" / FILE_NAME)
        log = SqliteKeyedLog(file, stream_name(JOB), SystemClock())
        with JobUnderTest(
            Counter, CONFIG, partitions={"local.in": 2}, directory=home, coordinator_log=log
        ) as job:
            points: list[Point] = []
            for step, value in steps:
                if step == "send":
                    for key in value:
                        job.send("local.in", 0, key=key, partition=ord(key) % 2)
                    run(job, points)
                elif step == "rewind" and points:
                    rewind(job, points[value % len(points)])
                    run(job, points)
                elif step != "rewind":
                    job.restart(lose_stores=step == "lose stores")
        file.close()
