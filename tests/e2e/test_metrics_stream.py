"""What Spark's workers measure arrives in the stream of a metrics reporter."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

from grete.clock import SystemClock
from grete.systems.local.system import LocalSystem
from grete.wire.metric_values import CONTAINER_GROUP, TASK_GROUP

REPORTER = {
    "metrics.reporters": "s",
    "metrics.reporter.s.class": "snapshot",
    "metrics.reporter.s.stream": "local.metrics",
}


def test_the_last_snapshots_of_a_job_count_every_message(counter_job: Any) -> None:
    counter_job.fill(1_000)
    counter_job.configure(REPORTER)
    done = counter_job.run()
    assert done.returncode == 0, done.stderr + counter_job.log()
    with closing(LocalSystem(counter_job.home / "local", SystemClock())) as local:
        rows = [row for _, batch in local.read("metrics", 0, 0) for row in batch.to_pylist()]
    last = {}
    for row in rows:
        document = json.loads(row["value"])
        last[document["header"]["source"]] = document["metrics"]
    tasks = [last[f"TaskName-Partition {partition}"][TASK_GROUP] for partition in range(2)]
    assert sum(task["process-calls"] for task in tasks) == 1_000
    assert all(task["process-ns"] > 0 and task["commit-ns"] > 0 for task in tasks)
    assert last["samza-container-0"][CONTAINER_GROUP]["process-envelopes"] == 1_000
