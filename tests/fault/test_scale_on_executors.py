"""Two hundred tasks on two executors: their stores stay there from epoch to epoch, and move when one is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster_job import BROKERS, ClusterJob

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.spark_cluster import SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
TASKS = 200
CHANGES = 3
WHERE = """
import os
import uuid
from pathlib import Path

import grete

def machine(home):
    "What is on the executor's own disk where the driver has its home."
    file = Path(home, "machine")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "x") as made:
            made.write(uuid.uuid4().hex)
    except FileExistsError:
        pass
    return file.read_text()

def executor():
    "The JVM above this worker and the daemon that forked it."
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])

class Where(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
        self.out = context.config["test.out"]
        self.round = int(context.config["task.window.ms"])
        self.machine = machine(context.config["test.home"])

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        said = {"count": count, "executor": executor(), "round": self.round, "machine": self.machine}
        collector.send(self.out, said, key=envelope.key)

    def window(self, collector, coordinator):
        pass
"""


@pytest.fixture
def job(kafka: KafkaCluster, isolated_cluster: SparkCluster, tmp_path: Path) -> Iterator[ClusterJob]:
    made = ClusterJob(kafka.bootstrap, isolated_cluster, tmp_path, partitions=TASKS)
    made.write("where.py", WHERE)
    made.config |= {
        "task.class": "where:Where",
        "task.window.ms": "100000",
        "test.out": f"kafka.{made.output}",
        "test.home": str(made.home),
        "stores.counts.factory": "grete.store.sqlite",
        "stores.counts.key.serde": "string",
        "stores.counts.msg.serde": "json",
        "stores.counts.changelog.replication.factor": "1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "5s",
    }
    made.until_drained = False
    yield made
    isolated_cluster.ensure_running()


def change(job: ClusterJob, assignment: str) -> None:
    """A change of the running job's configuration, as an operator makes it."""
    path = str(job.application / "job.properties")
    done = subprocess.run(
        [sys.executable, "-m", "grete.cli.main", "config", "set", "--config", path, assignment],
        env={**os.environ, "GRETE_HOME": str(job.home), BROKERS: job._bootstrap},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_shares_stay_on_their_executors_from_epoch_to_epoch_and_one_that_is_lost_costs_no_record(
    job: ClusterJob, isolated_cluster: SparkCluster
) -> None:
    """With dynamic allocation asked for, which shares would be starved by."""
    job.fill(TASKS, keys=TASKS)
    process = job.start()

    def await_all(times: int) -> dict[str, list[dict[str, object]]]:
        def are_all_there() -> bool:
            return sum(map(len, job.outputs().values())) == TASKS * times

        eventually(are_all_there, f"outputs of round {times}", within_s=150, context=job.log)
        return job.outputs()

    try:
        homes = {key: found[-1]["executor"] for key, found in await_all(1).items()}
        assert sorted(map(list(homes.values()).count, set(homes.values()))) == [TASKS // 2, TASKS // 2]
        for number in range(1, CHANGES + 1):
            change(job, f"task.window.ms={100_000 + number}")
            eventually(
                lambda number=number: job.log().count("going on from checkpoints") > number,
                "another epoch",
                within_s=90,
                context=job.log,
            )
            job.fill(TASKS, keys=TASKS, first=TASKS * number)
            latest = {key: found[-1] for key, found in await_all(number + 1).items()}
            assert {one["round"] for one in latest.values()} == {100_000 + number}
            assert {key: one["executor"] for key, one in latest.items()} == homes
        lost = isolated_cluster.workers[0]
        began_s = time.monotonic()
        isolated_cluster.kill_machine(lost)
        isolated_cluster.ensure_running()
        job.fill(TASKS, keys=TASKS, first=TASKS * (CHANGES + 1))
        outputs = await_all(CHANGES + 2)
        print("executor_loss_to_all_outputs_s", round(time.monotonic() - began_s, 1))
        assert {key: [one["count"] for one in found] for key, found in outputs.items()} == {
            f"key{number}": list(range(1, CHANGES + 3)) for number in range(TASKS)
        }
        assert "spark.dynamicAllocation.enabled=true is ignored" in job.log()
    finally:
        process.terminate()
        process.communicate(timeout=patient(120))


def test_after_a_restart_shares_begin_on_the_machines_that_have_their_stores(job: ClusterJob) -> None:
    """Of two machines each has half of them; without a look at them every other start would mix them up."""
    job.until_drained = True
    machines = []
    for times in range(5):
        job.fill(TASKS, keys=TASKS, first=TASKS * times)
        code, said = job.run()
        assert code == 0, said
        machines.append({key: found[-1]["machine"] for key, found in job.outputs().items()})
    first = machines[0]
    assert sorted(map(list(first.values()).count, set(first.values()))) == [TASKS // 2, TASKS // 2]
    assert machines == [first] * 5
    assert {len(found) for found in job.outputs().values()} == {5}
