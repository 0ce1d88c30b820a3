"""One Spark job, operated while it runs: what an operator does at 3 a.m. costs no record and no restart too many."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from grete.metadata.launches import read_launches
from grete.model.ids import ContainerId, JobId, TaskName
from grete.operations import open_job
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(300)]


class Operator:
    """Starts and kills coordinators, and uses the command line."""

    def __init__(self, job: Any) -> None:
        self.job = job
        self.filled = 0
        self.coordinators: list[subprocess.Popen[bytes]] = []

    def coordinate(self, *which: str) -> subprocess.Popen[bytes]:
        command = [*self.job.command("run", "--quiet")[:-2], *which]
        process = subprocess.Popen(command, env=self.job.environment())
        self.coordinators.append(process)
        return process

    def grete(self, *words: str) -> Any:
        command = [*self.job.command(*words)[:-2], "--job", "counter", "-o", "json"]
        done = subprocess.run(
            command, env=self.job.environment(), capture_output=True, text=True, timeout=patient(120)
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def fill(self, records: int) -> None:
        """Append records and wait until every one of them is counted."""
        self.job.fill(records)
        self.filled += records
        self.job.wait_until_counted(self.filled)

    def events(self) -> list[str]:
        with open_job(JobId("counter")) as handle:
            return [row.event for row in handle.history()]

    def placed(self) -> dict[TaskName, ContainerId]:
        """Which container has each task."""
        with open_job(JobId("counter")) as handle:
            return handle.assignments()

    def running(self) -> list[str]:
        """The containers that were started and run: one that is only placed may be taken back before it is."""
        return [row["container"] for row in self.grete("container", "list") if row["state"] == "running"]

    def eventually(self, condition: Callable[[], object], what: str) -> None:
        eventually(condition, what, within_s=90, context=self.job.report)

    def end(self) -> None:
        """Kill what a test that failed has left."""
        for coordinator in self.coordinators:
            coordinator.kill()
            coordinator.wait()
        with open_job(JobId("counter")) as handle:
            containers = [record.handle for record in read_launches(handle.stream).values()]
        for container in containers:
            with suppress(ProcessLookupError):
                os.kill(int(container.split("/")[1]), signal.SIGKILL)


@pytest.fixture
def operator(counter_job: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    monkeypatch.setenv("GRETE_HOME", str(counter_job.home))
    made = Operator(counter_job)
    yield made
    made.end()


def test_a_job_is_reconfigured_succeeded_scaled_and_drained_without_a_record_lost(
    counter_job: Any, operator: Operator
) -> None:
    counter_job.fill(0)
    coordinator = operator.coordinate("--config", str(counter_job.config))
    operator.fill(1_000)

    coordinator.kill()
    coordinator.wait()
    operator.fill(1_000)  # no coordinator runs, everything is processed
    coordinator = operator.coordinate("--job", "counter")
    operator.eventually(lambda: "container-adopted" in operator.events(), "the adoption")
    operator.fill(1_000)

    epochs = {row["epoch"] for row in operator.grete("container", "list")}
    operator.grete("config", "set", "task.max.records.per.batch=100")
    operator.eventually(lambda: "reconfigured" in operator.events(), "the change of the batch size")
    operator.fill(1_000)
    assert {row["epoch"] for row in operator.grete("container", "list")} == epochs, "nothing was restarted"

    operator.grete("config", "set", "job.container.count=2")
    operator.eventually(lambda: len(operator.running()) == 2, "the second container")
    operator.fill(1_000)
    operator.grete("config", "rollback")
    operator.eventually(lambda: len(set(operator.placed().values())) == 1, "the roll-back")
    (row,) = operator.grete("container", "list")
    assert row["tasks"] == ["Partition 0", "Partition 1"]
    operator.eventually(lambda: "container-exited" in operator.events(), "the end of the second container")
    operator.fill(1_000)

    counter_job.fill(1_000)
    assert operator.grete("drain")["state"] == "finished"
    assert coordinator.wait(timeout=patient(30)) == 0
    counter_job.assert_exactly_once(7_000)
    events = [row["event"] for row in operator.grete("history")]
    assert events.count("container-exited") == events.count("container-adopted") + 1, events
