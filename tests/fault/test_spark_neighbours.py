"""One share of a Spark application is killed, blocks, or loses its driver: the others go on, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually, patient, reaches

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]
BLOCKS_S = 60 if os.environ.get("GRETE_NIGHTLY") == "1" else 3
COUNTER = """
import os, time
from pathlib import Path

import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.gates = Path(context.config["test.gates"])
        self.task = context.task_name.rsplit(" ")[-1]
        (self.gates / f"pid-{self.task}").write_text(str(os.getpid()))
        self.counts = context.store("counts")
        self.wait_at("init")

    def wait_at(self, point):
        gate = self.gates / f"{point}-{self.task}"
        while gate.exists():
            gate.with_suffix(".reached").touch()
            time.sleep(0.02)

    def process(self, envelope, collector, coordinator):
        self.wait_at("process")
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", {"count": count}, key=envelope.key)
"""
PROPERTIES = """
job.name=counter
job.application.path=.
task.class=counter:Counter
task.inputs=local.in
task.outputs=local.out
task.shutdown.ms=4000
cluster-manager.container.retry.longest-pause.ms=100
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.factory=grete.store.sqlite
spark.master=local[2,4]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


class Running:
    """The job with two partitions, each of which has a task and a share, and keys of its own."""

    def __init__(self, job: Any, directory: Path) -> None:
        self.job = job
        self.gates = directory / "gates"
        self.gates.mkdir()
        job.configure({"test.gates": str(self.gates)})
        self.sent = [0, 0]
        self._system = LocalSystem(job.home / "local", SystemClock())
        self._system.ensure_stream(StreamSpec("in", 2))
        self.coordinator = subprocess.Popen(job.command("run", "--quiet"), env=job.environment())

    def send(self, *partitions: int, count: int = 20) -> None:
        for partition in partitions:
            self._system.append("in", [Message(b"key%d" % partition, b"{}", 1, partition)] * count)
            self.sent[partition] += count

    def counted(self, partition: int) -> int:
        return len(self.job.counts().get(f"key{partition}", [])) if self.job.counted() else 0

    def await_counted(self, *partitions: int) -> None:
        for partition in partitions:
            reaches(lambda of=partition: self.counted(of), self.sent[partition], context=self.job.report)

    def pid(self, partition: int) -> int:
        """The process that the partition's task was started in last."""
        return int((self.gates / f"pid-{partition}").read_text())

    def container(self) -> int:
        with open_job(JobId("counter")) as handle:
            return int(handle.launches()["0"].handle.split("/")[1])

    def close_gate(self, point: str, partition: int) -> None:
        (self.gates / f"{point}-{partition}").touch()

    def await_at_gate(self, point: str, partition: int) -> None:
        reached = self.gates / f"{point}-{partition}.reached"
        eventually(reached.exists, f"partition {partition} is at {point}", context=self.job.report)
        reached.unlink()

    def open_gate(self, point: str, partition: int) -> None:
        (self.gates / f"{point}-{partition}").unlink()

    def assert_exactly_once(self) -> None:
        expected = {f"key{partition}": list(range(1, sent + 1)) for partition, sent in enumerate(self.sent)}
        assert self.job.counts() == expected

    def close(self) -> None:
        for gate in self.gates.glob("*-?"):
            if not gate.name.startswith("pid"):
                gate.unlink()
        if self.coordinator.poll() is None:
            self.coordinator.terminate()
        self.coordinator.wait(patient(60))
        self._system.close()


@pytest.fixture
def running(
    job_maker: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    job = job_maker(tmp_path, COUNTER, PROPERTIES)
    monkeypatch.setenv("GRETE_HOME", str(job.home))
    with closing(Running(job, tmp_path)) as made:
        yield made


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):  # it may end between the two
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    return False


def test_what_happens_to_one_share_holds_up_no_other_and_costs_no_record(running: Running) -> None:
    """A worker killed, a task that blocks, the driver killed, a stop while a task blocks: in the life of one job."""
    running.send(0, 1)
    running.await_counted(0, 1)
    container, killed, neighbour = running.container(), running.pid(0), running.pid(1)
    assert killed != neighbour

    running.close_gate("init", 0)
    os.kill(killed, signal.SIGKILL)
    running.send(0, 1)
    running.await_at_gate("init", 0)
    running.await_counted(1)
    assert running.counted(0) < running.sent[0], "nobody works for it, and its neighbour goes on"
    running.open_gate("init", 0)
    running.await_counted(0)
    assert running.pid(0) != killed

    running.close_gate("process", 0)
    running.send(0, 1)
    running.await_at_gate("process", 0)
    until_s = time.monotonic() + BLOCKS_S
    while time.monotonic() < until_s:
        running.send(1)
        running.await_counted(1)
    running.open_gate("process", 0)
    running.await_counted(0)
    assert running.pid(1) == neighbour, "it was never begun again"
    assert running.container() == container, "nor was the container taken for dead"

    workers = [running.pid(0), running.pid(1)]
    os.kill(container, signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, workers)), "workers end with their driver")
    running.send(0, 1)
    running.await_counted(0, 1)

    running.close_gate("process", 0)
    running.send(0, 1)
    running.await_at_gate("process", 0)
    blocked = running.pid(0)
    running.await_counted(1)
    with open_job(JobId("counter")) as handle:
        handle.requests.stop(10, "the test is over")
    running.coordinator.wait(patient(30))
    eventually(lambda: not is_alive(blocked), "the task that blocks is ended after task.shutdown.ms")
    running.open_gate("process", 0)
    assert running.job.run(spark=False).returncode == 0
    running.assert_exactly_once()
