"""Stream processors on several machines: each has a network, a loopback and a GRETE_HOME of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import Job, job_on
from tests.support.machines import Machine, two_machines

from grete.config.settings import Settings
from grete.errors import JobNotFound
from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.failover.services import job_settings
from grete_workbench.zookeeper_server import ZooKeeperCluster

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]
PARTITIONS = 4


class Spread:
    """A job of processors on machines, in the order in which they are started."""

    def __init__(self, job: Job, settings: Mapping[str, str], folder: Path, home: Path) -> None:
        self._job = job
        self._settings = dict(settings)
        self._folder, self._home = folder, home
        self._processors: dict[str, subprocess.Popen[bytes]] = {}

    def join(self, id: str, machine: Machine) -> subprocess.Popen[bytes]:
        config = self._folder / f"{id}.json"
        config.write_text(json.dumps({**self._settings, "processor.address": machine.address}))
        command = [sys.executable, "-m", "grete_workbench.processor_process", str(config), id]
        with (self._folder / f"{id}.log").open("wb") as log:
            process = machine.start(command, {"GRETE_HOME": str(self._home)}, log)
        self._processors[id] = process
        return process

    @property
    def living(self) -> set[str]:
        return set(self._processors)

    def shares(self, among: int) -> None:
        """Wait until so many have equal shares of the tasks, and process."""

        def are_equal() -> bool:
            owners: list[str] = []
            with suppress(JobNotFound), open_job(self._job.id, Settings.of(self._settings)) as handle:
                owners = list(handle.assignments().values())
            return sorted(map(owners.count, set(owners))) == [PARTITIONS // among] * among

        eventually(are_equal, f"{among} processors share the tasks", context=self.logs)
        self.counts()

    def counts(self) -> None:
        """A record of each task is processed from now on."""
        self._job.send(2 * PARTITIONS)
        self._job.await_counted(self.logs)

    def leader(self) -> str:
        with open_job(self._job.id, Settings.of(self._settings)) as handle:
            eventually(handle.election.holder, "one leads", context=self.logs)
            holder = handle.election.holder()
        return next(id for id, one in self._processors.items() if holder and one.pid == holder.pid)

    def kill(self, id: str) -> None:
        process = self._processors.pop(id)
        process.kill()
        process.wait()

    def ends(self, id: str) -> int:
        """Stop it in order; its exit code."""
        process = self._processors.pop(id)
        process.terminate()
        return process.wait(patient(60))

    def state(self) -> str:
        with open_job(self._job.id, Settings.of(self._settings)) as handle:
            found = handle.state()
        return "" if found is None else found.state

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-6000:]}" for log in self._folder.glob("*.log"))

    def close(self) -> None:
        for id in tuple(self._processors):
            self.kill(id)


@pytest.fixture
def spread(
    request: pytest.FixtureRequest, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Spread, Job, Machine, Machine]]:
    """Streams and stores are on Kafka; the parameter says where leaders are elected."""
    servers = [kafka.bootstrap]
    election = {}
    if request.param == "zookeeper":
        zookeeper: ZooKeeperCluster = request.getfixturevalue("zookeeper")
        servers.append(zookeeper.bootstrap)
        election = job_settings("zookeeper", f"{zookeeper.bootstrap}/{uuid.uuid4().hex[:8]}")
    ports = [int(one.rpartition(":")[2]) for server in servers for one in server.split(",")]
    home = tmp_path / "job" / "home"
    with job_on(
        kafka, tmp_path / "job", monkeypatch, partitions=PARTITIONS, settings={"job.debounce.time.ms": "500"}
    ) as job:
        made = Spread(job, {**job.settings, **election}, tmp_path / "job", home)
        with two_machines(tmp_path / "ways", home, ports) as (one, other):
            yield made, job, one, other
            made.close()


@pytest.mark.parametrize(
    "spread", ["kafka", pytest.param("zookeeper", marks=pytest.mark.nightly)], indirect=True
)
def test_processors_of_two_machines_share_a_job_and_succeed_one_another(
    spread: tuple[Spread, Job, Machine, Machine],
) -> None:
    """The leader's machine is lost, then a processor that does not lead; the last one ends the job."""
    processors, job, one, other = spread
    processors.join("a", one)
    processors.join("b", other)
    processors.shares(2)
    job.send(400)
    leader = processors.leader()
    processors.kill(leader)
    job.send(400)
    processors.shares(1)
    processors.join("c", one if leader == "a" else other)
    processors.shares(2)
    job.send(400)
    leader = processors.leader()
    [follower] = processors.living - {leader}
    processors.kill(follower)
    job.send(400)
    processors.shares(1)
    assert processors.ends(leader) == 0
    assert processors.state() == "stopped"
    job.assert_each_counted_once()
