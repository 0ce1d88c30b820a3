"""A job whose leader is elected by leases in Azure Storage, and whose checkpoints are copied there.

The real coordinator and containers, without Spark and without ZooKeeper; streams are in the embedded system. The
server's clock is moved where a lease has to end; that of the processes stays.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from grete.azure.blobs import Blobs
from grete.azure.storage import AzureStorage
from grete.azure.tables import Table
from grete.config.settings.azure import account_of
from grete.coordination.azure import blob_name
from grete.failpoints import POINTS
from grete.metadata.job_state import JobState
from grete.model.fence import job_scope
from grete.model.ids import JobId
from grete.operations import open_job
from grete.testing.waiting import eventually, patient
from grete_workbench.azurite import Azurite

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]
PROPERTIES = """
job.application.path=.
job.coordinator.factory=org.apache.samza.AzureJobCoordinatorFactory
azure.storage.connect=${env:GRETE_AZURE_STORAGE}
task.checkpoint.factory=org.apache.samza.checkpoint.azure.AzureCheckpointManagerFactory
task.class=counter:Counter
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.factory=grete.store.sqlite
"""
TTL_S = 15.0
ENDS = {("Partition 0", "0"): "269", ("Partition 1", "1"): "229"}
"""Of 500 records, which go by their keys."""


class Job:
    """The job, its processes, and an operator's hand on the account."""

    def __init__(self, made: Any, azurite: Azurite) -> None:
        self.made, self.azurite = made, azurite
        self.id = JobId(f"counter-{uuid.uuid4().hex[:8]}")
        made.configure({"job.name": self.id.name})
        self._storage = AzureStorage(account_of(azurite.bootstrap), timeout_s=5)
        self.blobs = Blobs(self._storage, "grete")
        self.blob = blob_name(job_scope(self.id))
        self.table = Table(self._storage, self.id.name.replace("-", ""))

    @contextmanager
    def coordinator(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            self.made.without_spark(*words), env=self.made.environment(), stderr=subprocess.PIPE, text=True
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def state(self) -> JobState:
        with open_job(self.id) as handle:
            found = handle.state()
        assert found is not None
        return found

    def leadership(self) -> dict[str, Any]:
        found = self.blobs.read(self.blob)
        assert found is not None
        document: dict[str, Any] = json.loads(found.data)
        return document

    def grete(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*self.made.command()[:3], *words]
        environment = self.made.environment()
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patient(60))

    def offsets(self) -> dict[tuple[str, int], str]:
        return {
            (partition, json.loads(row["RowKey"])["partition"]): row["Offset"]
            for partition in ("Partition 0", "Partition 1")
            for row, _ in self.table.read_partition(partition)
        }

    def close(self) -> None:
        self._storage.close()


@pytest.fixture
def job(
    azurite: Azurite,
    tmp_path: Path,
    job_maker: Callable[..., Any],
    counter_application: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Job]:
    made = job_maker(tmp_path, counter_application, PROPERTIES)
    monkeypatch.setenv("GRETE_HOME", str(made.home))
    monkeypatch.setenv("GRETE_AZURE_STORAGE", azurite.bootstrap)
    with closing(Job(made, azurite)) as opened:
        yield opened


def test_a_job_leaves_its_checkpoints_in_samzas_table_and_goes_on_from_what_is_set_there(job: Job) -> None:
    """As Samza sets it: the row without what is grete's. A leader that has ended leaves its leadership free."""
    job.made.fill(500)
    done = job.made.run(spark=False)
    assert done.returncode == 0, done.stderr
    job.made.assert_exactly_once(500)
    assert job.leadership() == {"epoch": job.state().epoch, "holder": None}
    assert job.offsets() == ENDS
    [(row, _)] = job.table.read_partition("Partition 0")
    job.table.transact([{name: row[name] for name in ("PartitionKey", "RowKey")} | {"Offset": "219"}])
    assert job.made.run(spark=False).returncode == 0
    assert job.offsets() == ENDS
    assert sum(map(len, job.made.counts().values())) == 550


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGSTOP, id="paused", marks=pytest.mark.nightly),
    ],
)
def test_a_leader_that_is_killed_or_paused_beyond_its_lease_is_succeeded_by_one_that_stands_by(
    job: Job, how: signal.Signals
) -> None:
    """Under a higher epoch, with each record counted once; the other one ends."""
    job.made.fill(300)
    with job.coordinator() as first:
        job.made.wait_until_counted(300)
        before = job.leadership()
        assert before["holder"]["pid"] == first.pid
        with job.coordinator("--standby") as second:
            with open_job(job.id) as handle:
                eventually(handle.election.standbys, "it stands by", context=job.made.report)
            os.kill(first.pid, how)
            job.azurite.move_clock(TTL_S)
            eventually(lambda: job.state().epoch > before["epoch"], "another leads", context=job.made.report)
            if how is signal.SIGSTOP:
                first.send_signal(signal.SIGCONT)
            assert first.wait(patient(60)) != 0
            job.made.fill(300)
            job.made.wait_until_counted(600)
            assert job.leadership()["holder"]["pid"] == second.pid
            assert job.grete("stop", "--job", job.id.name).returncode == 0
            assert second.wait(patient(60)) == 0
    assert sum(map(len, job.made.counts().values())) == 600
    assert all(counts == list(range(1, len(counts) + 1)) for counts in job.made.counts().values())


def test_a_blob_that_is_deleted_by_hand_costs_an_incarnation_and_no_epoch_comes_again(job: Job) -> None:
    job.made.fill(300)
    with job.coordinator() as process:
        job.made.wait_until_counted(300)
        epoch = job.state().epoch
        job.blobs.break_lease(job.blob)
        found = job.blobs.read(job.blob)
        assert found is not None
        job.blobs.delete(job.blob, etag=found.etag)
        eventually(lambda: job.state().epoch > epoch, "another incarnation leads", context=job.made.report)
        assert job.grete("stop", "--job", job.id.name).returncode == 0
        assert process.wait(patient(60)) == 0
    assert job.leadership()["epoch"] == job.state().epoch > epoch


def test_killed_at_every_point_of_its_own_every_record_is_counted_once(job: Job, tmp_path: Path) -> None:
    """The coordinator twice while it is elected, its container between two writes of a checkpoint."""
    job.made.fill(500)
    points = [name for name in POINTS if name.startswith("azure.")]
    settings = {
        "GRETE_FAILPOINT": ",".join(f"{point}:kill" for point in points),
        "GRETE_FAILPOINT_ONCE": str(tmp_path / "died"),
    }
    codes = []
    for _ in range(3):
        codes.append(job.made.run(spark=False, **settings).returncode)
        job.azurite.move_clock(TTL_S)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert {path.name.partition("-")[2] for path in (tmp_path / "died").iterdir()} == set(points)
    job.made.assert_exactly_once(500)
    assert job.offsets() == ENDS


def test_the_doctor_says_whether_the_account_answers_and_lets_us_in(
    job: Job, azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def findings() -> dict[str, dict[str, Any]]:
        done = job.grete("doctor", "--config", str(job.made.config), "-o", "json")
        return {found["check"]: found for found in json.loads(done.stdout)}

    found = findings()
    assert found["azure leadership"]["ok"], found
    assert "nobody leads the job" in found["azure leadership"]["found"]
    assert found["azure checkpoints"]["ok"]
    wrong = azurite.connection(key=False) + ";AccountKey=d3Jvbmc="
    monkeypatch.setenv("GRETE_AZURE_STORAGE", wrong)
    for check in ("azure leadership", "azure checkpoints"):
        refused = findings()[check]
        assert not refused["ok"]
        assert "may read and write" in refused["way_out"]
        assert "d3Jvbmc=" not in json.dumps(refused)
