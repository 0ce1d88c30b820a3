"""A job that reads hubs: outputs on hubs and beside them, its state and checkpoints in the system beside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.consumer_group import group_lag
from tests.support.secure_kafka import SecureCluster

from grete.azure.blobs import Blobs
from grete.azure.storage import AzureStorage
from grete.azure.tables import Table
from grete.clock import SystemClock
from grete.config.load import load
from grete.config.settings import Settings
from grete.config.settings.azure import account_of
from grete.coordination.azure import blob_name
from grete.model.fence import job_scope
from grete.model.ids import JobId
from grete.operations import open_job
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.testing.waiting import patient
from grete_workbench.azurite import Azurite

pytestmark = pytest.mark.fault
COUNTER = """
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("hubs.counted", {"count": count}, key=envelope.key)
        collector.send("BESIDE.counted", {"count": count}, key=envelope.key)
"""

IN_AZURE = """
azure.storage.connect=${env:GRETE_AZURE}
job.coordinator.factory=org.apache.samza.coordinator.AzureJobCoordinatorFactory
task.checkpoint.factory=org.apache.samza.checkpoint.azure.AzureCheckpointManagerFactory
"""


class HubJob:
    """The counter on hubs of its own, and the system beside them."""

    def __init__(self, secure: SecureCluster, home: Path, beside: str) -> None:
        self._secure, self.home, self.beside = secure, home, beside
        self.job = JobId(f"hubs-{uuid.uuid4().hex[:8]}")
        self.hubs = {name: f"{self.job.name}-{name}" for name in ("flights", "counted")}
        admin = AdminClient({"bootstrap.servers": secure.bootstrap})
        for made in admin.create_topics([NewTopic(hub, 2, 1) for hub in self.hubs.values()]).values():
            made.result(30)
        (home / "counter.py").write_text(COUNTER.replace("BESIDE", beside))
        (home / "key").write_text("aGlkZGVuIGluIHNpZ2h0")
        self.config = home / "job.properties"
        self.config.write_text(self._properties(str(secure.login.authority.ca_pem)))

    def _properties(self, ca_pem: str) -> str:
        of_streams = "".join(
            f"streams.{name}.samza.system=hubs\n"
            f"streams.{name}.eventhubs.namespace=flights\n"
            f"streams.{name}.eventhubs.entitypath={hub}\n"
            f"sensitive.streams.{name}.eventhubs.sas.keyname=all\n"
            f"sensitive.streams.{name}.eventhubs.sas.token=${{file:{self.home}/key}}\n"
            for name, hub in self.hubs.items()
        )
        return f"""
job.name={self.job.name}
job.coordinator.system=local
job.application.path={self.home}
task.class=counter:Counter
task.inputs=hubs.flights
task.outputs=hubs.counted,{self.beside}.counted
task.checkpoint.system={self.beside}
task.checkpoint.replication.factor=1
task.checkpoint.consumer.group={self.job.name}
task.commit.groups=1
systems.hubs.samza.factory=org.apache.samza.system.eventhub.EventHubSystemFactory
systems.hubs.samza.offset.default=oldest
systems.hubs.samza.key.serde=string
systems.hubs.samza.msg.serde=json
systems.hubs.consumer.bootstrap.servers={self._secure.secure_bootstrap}
systems.hubs.consumer.ssl.truststore.type=PEM
systems.hubs.consumer.ssl.truststore.location={ca_pem}
systems.{self.beside}.samza.factory={self.beside}
systems.{self.beside}.samza.key.serde=string
systems.{self.beside}.samza.msg.serde=json
systems.kafka.producer.bootstrap.servers={self._secure.bootstrap}
systems.kafka.default.stream.replication.factor=1
stores.counts.factory=grete.store.sqlite
stores.counts.changelog.replication.factor=1
{of_streams}"""

    def fill(self, *keys: str) -> None:
        producer = Producer({"bootstrap.servers": self._secure.bootstrap})
        for key in keys:
            producer.produce(self.hubs["flights"], b"{}", key.encode(), len(key) % 2)
        assert producer.flush(30) == 0

    def run(self, *, spark: bool = False) -> None:
        command = ["grete.cli.main", "run"] if spark else ["grete.testing.sparkless"]
        done = subprocess.run(
            [sys.executable, "-m", *command, "--config", str(self.config), "--until-drained"],
            env={**os.environ, "GRETE_HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=patient(120),
        )
        assert done.returncode == 0, done.stderr[-5000:]

    def counts(self, system: str, stream: str) -> dict[str, list[int]]:
        """The records that were sent, by key."""
        config = load([str(self.config)], {})
        with closing(open_system(Settings.of(config), system, self.home, SystemClock())) as opened:
            found: dict[str, list[int]] = {}
            for key, value in _records(opened, stream):
                found.setdefault(key.decode(), []).append(json.loads(value)["count"])
            return found


def _records(system: System, stream: str) -> Iterator[tuple[bytes, bytes]]:
    for partition, held in system.offsets(stream).items():
        if held.oldest is not None:
            for _, batch in system.read(stream, partition, int(held.oldest)):
                yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


@pytest.mark.parametrize("beside", [pytest.param("local", marks=pytest.mark.nightly), "kafka"])
def test_a_job_on_hubs_keeps_state_and_checkpoints_beside_them(
    secure_kafka: SecureCluster, home: Path, beside: str
) -> None:
    job = HubJob(secure_kafka, home, beside)
    job.fill("a", "bb", "a")
    job.run()
    job.fill("bb", "ccc")
    job.run()
    expected = {"a": [1, 2], "bb": [1, 2], "ccc": [1]}
    assert job.counts("hubs", "counted") == expected
    assert job.counts(beside, "counted") == expected
    with open_job(job.job) as handle:
        assert handle.lag().total == 0
        assert sorted(handle.checkpoints.read()) == ["Partition 0", "Partition 1"]
    hub = job.hubs["flights"]
    assert group_lag(secure_kafka.bootstrap, job.job.name) == {(hub, 0): 0, (hub, 1): 0}


@pytest.fixture
def own_azurite(tmp_path: Path) -> Iterator[Azurite]:
    """Not the run's: the tests of another worker move its clock."""
    server = Azurite(tmp_path / "azurite")
    server.start()
    yield server
    server.kill()


@pytest.mark.timeout(180)
def test_a_job_on_hubs_is_led_and_keeps_its_checkpoints_in_azure_storage(
    secure_kafka: SecureCluster, own_azurite: Azurite, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it from Azure but the state, and nothing from ZooKeeper (S3-2, S3-10); on Spark in the long form."""
    monkeypatch.setenv("GRETE_AZURE", own_azurite.bootstrap)
    job = HubJob(secure_kafka, home, "local")
    with job.config.open("a") as config:
        config.write(IN_AZURE)
    job.fill("a", "bb", "a")
    job.run(spark=os.environ.get("GRETE_NIGHTLY") == "1")
    job.fill("bb", "ccc")
    job.run()
    assert job.counts("hubs", "counted") == {"a": [1, 2], "bb": [1, 2], "ccc": [1]}
    with closing(AzureStorage(account_of(own_azurite.bootstrap), timeout_s=5)) as storage:
        table = Table(storage, job.job.name.replace("-", ""))
        found = {
            partition: row["Offset"]
            for partition in ("Partition 0", "Partition 1")
            for row, _ in table.read_partition(partition)
        }
        leadership = Blobs(storage, "grete").read(blob_name(job_scope(job.job)))
    assert found == {"Partition 0": "1", "Partition 1": "2"}
    assert leadership is not None
    assert json.loads(leadership.data) == {"epoch": 2, "holder": None}
