"""From the death of a job's driver to its outputs going on, on Spark standalone, YARN and Kubernetes.

    python -m benchmarks.attempts [--only standalone | yarn | kubernetes ...] [--times 3] [--discard]

An isolated StreamTask with a store, on one broker, with a lease of 10 s; the servers are those of the tests. When all
records are counted, coordinator and container are killed, 200 more are sent, and the seconds are taken until a reader
of what is committed has them all. On standalone, where nobody starts a coordinator again, we do so at once;
`adoption_s` is there from the kill of a coordinator alone, followed at once, to the container's adoption. On YARN the
JVM of the ApplicationMaster is killed, on Kubernetes the pod's process: both have coordinator and container, and
nothing is adopted. `start_s` begins when the job has been handed over. Each record is counted once, or there is no
result.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import PATIENT
from tests.support.deployed_job import (
    DeployedJob,
    job_on_kubernetes,
    job_on_yarn,
    kill_application_master,
)

from benchmarks.contestants import keep, surroundings
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually
from grete_workbench.kube_apiserver import KubeApiServer
from grete_workbench.spark_cluster import SparkCluster
from grete_workbench.yarn import YarnCluster

RECORDS = 200


class Standalone:
    """A job whose coordinator is our child, in client mode."""

    def __init__(self, job: DeployedJob, folder: Path) -> None:
        self.job = job
        self._log = folder / "coordinator.log"
        self.coordinate()

    def coordinate(self) -> None:
        """Start a coordinator; its container is in another group of processes."""
        command = [sys.executable, "-m", "grete.cli.main", "run", "--quiet", "--config", str(self.job.config)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, *, is_alone: bool = False) -> None:
        """SIGKILL to the coordinator, and to its container unless it is to be adopted."""
        for pid in () if is_alone else self.job.container_pids():
            os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def succeed(self) -> None:
        """Kill both and begin again."""
        self.kill()
        self.coordinate()

    def adoption_s(self) -> float:
        """Kill the coordinator alone and begin again; seconds until the container is adopted."""

        def adoptions() -> int:
            return [row.event for row in self.job.history()].count("container-adopted")

        before, began_s = adoptions(), time.monotonic()
        self.kill(is_alone=True)
        self.coordinate()
        eventually(lambda: adoptions() > before, "an adoption", within_s=120, context=self.job.log_ends)
        return round(time.monotonic() - began_s, 1)


@contextmanager
def on_standalone(kafka: KafkaCluster, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Standalone]:
    """With a worker of two cores."""
    patch.setenv("GRETE_HOME", str(folder / "home"))
    cluster = SparkCluster(folder / "cluster", nodes=2, cores=2)
    cluster.start()
    settings = {"spark.master": cluster.bootstrap, "spark.cores.max": "2", "spark.executor.memory": "512m"}
    brokers = {f"systems.kafka.{one}.bootstrap.servers": kafka.bootstrap for one in ("consumer", "producer")}
    job = DeployedJob(folder, kafka, {**settings, **brokers, "spark.driver.memory": "512m", **PATIENT})
    job.isolate()
    running = Standalone(job, folder)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            running.kill()
        job.seen.close()
        cluster.stop()


def standalone(kafka: KafkaCluster, folder: Path, times: int) -> dict[str, object]:
    """Spark's own cluster."""
    with pytest.MonkeyPatch.context() as patch, on_standalone(kafka, folder, patch) as running:
        found = attempts(running.job, running.succeed, times)
        return {**found, "adoption_s": [running.adoption_s() for _ in range(times)]}


def yarn(kafka: KafkaCluster, folder: Path, times: int) -> dict[str, object]:
    """A ResourceManager and a NodeManager."""
    allowed = str(1 + times)
    cluster = YarnCluster(folder / "yarn", settings={"yarn.resourcemanager.am.max-attempts": allowed})
    cluster.start()
    try:
        settings = {**PATIENT, "spark.yarn.maxAppAttempts": allowed}
        with (
            pytest.MonkeyPatch.context() as patch,
            job_on_yarn(cluster, kafka, folder, patch, settings) as job,
        ):

            def kill() -> None:
                last = job.answer("deploy", "status")[0]["attempts"][-1]
                kill_application_master(last["where"].split()[0])

            job.isolate()
            job.answer("deploy", "apply")
            return attempts(job, kill, times)
    finally:
        cluster.stop()


def kubernetes(kafka: KafkaCluster, folder: Path, times: int) -> dict[str, object]:
    """An API server, and the tests' node, which starts a process that has ended without a pause."""
    server = KubeApiServer(folder / "server")
    server.start()
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            job_on_kubernetes(server, kafka, folder, patch, PATIENT) as job,
        ):
            job.isolate()
            pod = job.pods / f"{job.answer('deploy', 'apply')['id']}-0" / "pid"
            return attempts(job, lambda: os.kill(int(pod.read_text()), signal.SIGKILL), times)
    finally:
        server.stop()


def attempts(job: DeployedJob, kill: Callable[[], None], times: int) -> dict[str, object]:
    """Seconds to the outputs of the first records, and from each kill to those of the records sent after it."""
    began_s, taken = time.monotonic(), list[float]()
    job.send(RECORDS)
    job.await_counted()
    first_s = time.monotonic() - began_s
    for _ in range(times):
        began_s = time.monotonic()
        kill()
        job.send(RECORDS)
        job.await_counted()
        taken.append(round(time.monotonic() - began_s, 1))
        print(job.id.name, taken[-1], file=sys.stderr, flush=True)
    job.assert_each_counted_once()
    return {
        "start_s": round(first_s, 1),
        "attempt_s": taken,
        "median_attempt_s": statistics.median(taken),
        "load": os.getloadavg()[0],
    }


MANAGERS = {each.__name__: each for each in (standalone, yarn, kubernetes)}


def run(managers: Sequence[str], times: int) -> dict[str, object]:
    """One manager after the other."""
    found = {}
    for name in managers:
        with tempfile.TemporaryDirectory() as folder:
            broker = KafkaCluster(Path(folder, "broker"))
            broker.start()
            try:
                found[name] = MANAGERS[name](broker, Path(folder), times)
            finally:
                broker.stop()
    return found


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attempts")
    parser.add_argument("--only", nargs="+", choices=MANAGERS, default=list(MANAGERS))
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    given = parser.parse_args()
    figures = {
        **surroundings(),
        "lease_ms": PATIENT["job.coordinator.lease.ttl.ms"],
        **run(given.only, given.times),
    }
    keep(figures, kind="attempts", is_discarded=given.discard)


if __name__ == "__main__":
    main()
