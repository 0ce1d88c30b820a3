"""One Spark job, operated while it runs: what an operator does at 3 a.m. costs no record and no restart too many."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.fault]


class Operator:
    """Starts and kills coordinators, and uses the command line."""

    def __init__(self, job: Any) -> None:
        self.job = job
        self.filled = 0

    def coordinate(self, *which: str) -> subprocess.Popen[bytes]:
        command = [*self.job.command("run", "--quiet")[:-2], *which]
        return subprocess.Popen(command, env=self.job.environment())

    def grete(self, *words: str) -> Any:
        command = [*self.job.command(*words)[:-2], "--job", "counter", "-o", "json"]
        done = subprocess.run(
            command, env=self.job.environment(), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def fill(self, records: int) -> None:
        """Append records and wait until every one of them is counted."""
        self.job.fill(records)
        self.filled += records
        eventually(lambda: sum(map(len, self.job.counts().values())) >= self.filled)

    def events(self) -> list[str]:
        return [row["event"] for row in self.grete("history")]


def eventually(condition: Callable[[], bool], *, within_s: float = 90) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


def test_a_job_is_reconfigured_succeeded_scaled_and_drained_without_a_record_lost(counter_job: Any) -> None:
    operator = Operator(counter_job)
    counter_job.fill(0)
    coordinator = operator.coordinate("--config", str(counter_job.config))
    eventually(lambda: (counter_job.home / "local" / "streams.db").exists() and _has_output(counter_job))
    operator.fill(1_000)

    coordinator.kill()
    coordinator.wait()
    operator.fill(1_000)  # nobody coordinates, everything is processed
    coordinator = operator.coordinate("--job", "counter")
    eventually(lambda: "container-adopted" in operator.events())
    operator.fill(1_000)

    epochs = {row["epoch"] for row in operator.grete("container", "list")}
    operator.grete("config", "set", "task.max.records.per.batch=100")
    eventually(lambda: "reconfigured" in operator.events())
    operator.fill(1_000)
    assert {row["epoch"] for row in operator.grete("container", "list")} == epochs, "nothing was restarted"

    operator.grete("config", "set", "job.container.count=2")
    eventually(lambda: len(operator.grete("container", "list")) == 2)
    operator.fill(1_000)
    operator.grete("config", "rollback")
    eventually(
        lambda: (
            [row["tasks"] for row in operator.grete("container", "list")] == [["Partition 0", "Partition 1"]]
        )
    )
    operator.fill(1_000)

    counter_job.fill(1_000)
    assert operator.grete("drain")["state"] == "finished"
    assert coordinator.wait(timeout=30) == 0
    counter_job.assert_exactly_once(7_000)
    events = operator.events()
    assert events.count("container-exited") == events.count("container-adopted") + 1, events


def _has_output(job: Any) -> bool:
    try:
        job.counts()
    except Exception as error:  # noqa: BLE001 - the stream is not there yet, for whichever reason
        return "out" not in str(error)
    return True
