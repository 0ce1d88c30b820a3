"""Coordinators that stand by: the leader is killed, paused, asked to step down, or ends with the job."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.fault.copying_job import TTL_S, CopyingJob

from grete.cli.main import main
from grete.config.settings import Settings
from grete.errors import CoordinationUnreachable
from grete.operations import JobHandle, open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.azurite import Azurite
from grete_workbench.failover.services import job_settings
from grete_workbench.kube_apiserver import KubeApiServer
from grete_workbench.zookeeper_server import ZooKeeperCluster

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]
BY_NIGHT = pytest.mark.nightly
EVERY = [
    "zookeeper",
    *(pytest.param(backend, marks=BY_NIGHT) for backend in ("sqlite", "kafka", "azure")),
]


def election(backend: str, request: pytest.FixtureRequest) -> dict[str, str]:
    if backend == "zookeeper":
        zookeeper: ZooKeeperCluster = request.getfixturevalue("zookeeper")
        return job_settings(backend, f"{zookeeper.bootstrap}/{uuid.uuid4().hex[:8]}")
    if backend == "kafka":
        kafka: KafkaCluster = request.getfixturevalue("kafka")
        return job_settings(backend, kafka.bootstrap)
    if backend == "azure":
        azurite: Azurite = request.getfixturevalue("own_azurite")
        return {**job_settings(backend, azurite.bootstrap), "job.coordinator.lease.ttl.ms": "15000"}
    if backend == "kubernetes":
        kubernetes: KubeApiServer = request.getfixturevalue("kubernetes")
        return job_settings(backend, kubernetes.bootstrap)
    return job_settings(backend, "")


@pytest.fixture(scope="module")
def own_azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A server whose clock no other test moves."""
    server = Azurite(tmp_path_factory.mktemp("azurite"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def job(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CopyingJob]:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
    made = CopyingJob(tmp_path, election(request.param, request))
    yield made
    made.end()


def standing_by(job: CopyingJob) -> subprocess.Popen[str]:
    """Another coordinator, once it waits."""
    process = job.stand_by()
    with open_job(job.id, Settings.of(job.settings)) as handle:
        eventually(handle.election.standbys, "it stands by")
    return process


def is_led_after(epoch: int, handle: JobHandle) -> bool:
    """Whether a later epoch leads; a service that is busy with sessions that end is asked again."""
    with suppress(CoordinationUnreachable):
        return (handle.election.leading_epoch() or 0) > epoch
    return False


@pytest.mark.parametrize("job", ["sqlite", "zookeeper", pytest.param("kafka", marks=BY_NIGHT)], indirect=True)
def test_a_leader_that_is_killed_is_succeeded_within_the_lease_by_one_that_stands_by(job: CopyingJob) -> None:
    """Its container goes on and is adopted."""
    first, epoch = job.copying()
    second = standing_by(job)
    first.kill()
    killed_s = time.monotonic()
    job.send(100)
    with open_job(job.id) as handle:
        eventually(lambda: is_led_after(epoch, handle), "another one leads")
    took_s = time.monotonic() - killed_s
    assert took_s < patient(2 * TTL_S)
    eventually(lambda: "container-adopted" in job.events(), "the container is adopted")
    job.send(100)
    eventually(job.copied_once, "the adopted container goes on")
    job.stop()
    assert second.wait(patient(30)) == 0
    assert job.events().count("stopped") == 1


@pytest.mark.parametrize("job", EVERY, indirect=True)
def test_a_leader_steps_down_for_one_that_stands_by_and_stands_by_itself(
    job: CopyingJob, capsys: pytest.CaptureFixture[str]
) -> None:
    one = job.stand_by()
    job.send(100)
    eventually(job.copied_once, "the first to stand by leads at once")
    other = standing_by(job)
    shown = leader(job, capsys)
    assert len(shown["standbys"]) == 1
    began_s = time.monotonic()
    assert main(["leader", "step-down", "--job", job.id.shown, "--reason", "upgrade", "-o", "json"]) == 0
    took_s = time.monotonic() - began_s
    now = json.loads(capsys.readouterr().out)
    assert now["epoch"] > shown["epoch"] == now["asked"]
    assert now["leader"]["pid"] == shown["standbys"][0]["pid"]
    assert took_s < patient(5)
    eventually(lambda: "container-adopted" in job.events(), "the container is adopted")
    assert "stepped-down" in job.events()
    with open_job(job.id) as handle:
        eventually(handle.election.standbys, "the one that stepped down stands by")
    [waiting] = leader(job, capsys)["standbys"]
    assert waiting["pid"] == shown["leader"]["pid"]
    job.send(100)
    eventually(job.copied_once, "the container goes on")
    job.stop()
    assert (one.wait(patient(30)), other.wait(patient(30))) == (0, 0), "all end with the job"
    assert job.events().count("stopped") == 1


def leader(job: CopyingJob, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert main(["leader", "show", "--job", job.id.shown, "-o", "json"]) == 0
    shown: dict[str, object] = json.loads(capsys.readouterr().out)
    return shown


@pytest.mark.parametrize("job", ["zookeeper"], indirect=True)
def test_a_leader_that_stood_still_for_longer_than_its_lease_stands_by_again(job: CopyingJob) -> None:
    first = job.stand_by()
    job.send(100)
    eventually(job.copied_once, "it leads")
    epoch = job.epoch()
    standing_by(job)
    first.send_signal(signal.SIGSTOP)
    eventually(lambda: job.epoch() > epoch, "the other one leads")
    first.send_signal(signal.SIGCONT)
    with open_job(job.id) as handle:
        eventually(
            lambda: [one.pid for one in handle.election.standbys()] == [first.pid], "the first stands by"
        )
    assert "container-adopted" in job.events()
    job.stop()
    assert first.wait(patient(30)) == 0


@pytest.mark.parametrize("job", ["sqlite"], indirect=True)
def test_without_one_that_stands_by_a_leader_is_not_asked_to_step_down(
    job: CopyingJob, capsys: pytest.CaptureFixture[str]
) -> None:
    process, epoch = job.copying()
    assert main(["leader", "step-down", "--job", job.id.shown]) == 1
    assert "grete run --standby --job" in capsys.readouterr().err
    assert main(["leader", "step-down", "--job", job.id.shown, "--force", "--no-wait"]) == 0
    assert process.wait(patient(30)) == 0
    job.send(100)
    eventually(job.copied_once, "the container goes on alone")
    assert main(["leader", "watch", "--job", job.id.shown, "--for", "1"]) == 0
    assert "no coordinator leads" in capsys.readouterr().out
    assert job.epoch() == epoch


@pytest.mark.parametrize("job", ["sqlite"], indirect=True)
def test_one_that_stands_by_ends_when_it_is_asked_to(job: CopyingJob) -> None:
    job.copying()
    waiting = standing_by(job)
    waiting.terminate()
    assert waiting.wait(patient(30)) == 0
    with open_job(job.id) as handle:
        assert handle.election.standbys() == []
    job.stop()


@pytest.mark.nightly
@pytest.mark.parametrize("job", ["kafka"], indirect=True)
def test_one_that_stands_by_elsewhere_starts_anew_what_it_cannot_adopt(
    job: CopyingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a home of its own, as on another machine. The container of the first one lives, and is fenced off."""
    first, epoch = job.copying()
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "another home"))
    second = standing_by(job)
    first.kill()
    first.wait()
    with open_job(job.id) as handle:
        eventually(lambda: is_led_after(epoch, handle), "it leads")
    job.send(100)
    eventually(job.copied_once, "its own container goes on, and nothing is copied twice")
    assert "container-adopted" not in job.events()
    job.stop()
    assert second.wait(patient(30)) == 0


@pytest.mark.parametrize("job", ["sqlite"], indirect=True)
def test_a_job_moves_to_another_version_and_back_while_records_flow(job: CopyingJob) -> None:
    """One of the version that is to be stands by, and the leader steps down for it. It starts the container again,
    at a batch boundary, and no container that its own version has started.
    """
    leading, _ = job.copying()
    for version, starts in (("1.9.0", 1), ("1.9.0", 1), (None, 2)):
        before, epoch = leading, job.epoch()
        leading = job.stand_by(version)
        with open_job(job.id) as handle:
            eventually(handle.election.standbys, "it stands by")
            handle.requests.step_down("another version")
            eventually(partial(is_led_after, epoch, handle), "it leads")
        before.kill()  # it may stand by now
        job.send(100)
        eventually(job.copied_once, "the job goes on")
        eventually(lambda: job.epoch() > epoch, "its start is recorded")  # noqa: B023 - within the turn
        eventually(
            lambda: job.events().count("container-exited") == starts,  # noqa: B023 - within the turn
            "as many starts",
            context=job.told,
        )
        # one that has only just begun knows no coordinator but the one that is killed next, and would be started anew
        job.send(100)
        eventually(job.copied_once, "the container that was started works")
    job.stop()
    assert leading.wait(patient(30)) == 0
    assert job.events().count("container-adopted") == 3
    with open_job(job.id) as handle:
        causes = [row.details["cause"] for row in handle.history() if row.event == "container-exited"]
    assert [cause.endswith("version of grete") for cause in causes] == [True, True, False]
