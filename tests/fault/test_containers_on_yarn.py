"""A job on YARN whose containers are applications of their own, on three nodes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import PATIENT
from tests.support.deployed_job import DeployedJob, job_on_yarn, processes_of

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually
from grete_workbench.hdfs import HdfsCluster
from grete_workbench.yarn import YarnCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
SEVERAL = {"spark.executor.cores": "1", "job.container.count": "2"}
_CAPACITY = "yarn.scheduler.capacity"
OURS = {
    "yarn.resourcemanager.scheduler.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler"
    ),
    f"{_CAPACITY}.root.queues": "default",
    f"{_CAPACITY}.root.default.capacity": "100",
    f"{_CAPACITY}.maximum-am-resource-percent": "1.0",
    "yarn.resourcemanager.am.max-attempts": "8",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "15000",
}
KILLED_AT = (
    "launch.started",
    "coordinator.launched",
    "change.adopted",
    "change.granted",
    "container.locality-written",
    "container.fence-raised",
)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """Three, of which none has room for all."""
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"), nodes=3, settings=OURS)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def job(
    nodes: YarnCluster, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeployedJob]:
    with job_on_yarn(nodes, kafka, tmp_path, monkeypatch, {**PATIENT, **SEVERAL}) as made:
        yield made


def containers(job: DeployedJob) -> dict[str, str]:
    """The applications of the containers that run, by the containers' numbers."""
    found = job.answer("deploy", "status")[0]
    running = [one for one in found["containers"] if one["state"] == "running"]
    return {one["container"]: one["where"].partition(" ")[0] for one in running}


def said(yarn: YarnCluster) -> str:
    apps = (yarn.ask("apps")["apps"] or {"app": []})["app"]
    return "\n".join(f"=== {one['name']} {one['state']}\n{yarn.logs_of(one['id'])}" for one in apps)


def last_attempt(yarn: YarnCluster, application: str) -> dict[str, str]:
    """Of an application: its last ApplicationMaster."""
    found = yarn.ask(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"]
    last: dict[str, str] = max(found, key=lambda one: one["id"])
    return last


def node_of(yarn: YarnCluster, application: str) -> int:
    """The number of the node that its ApplicationMaster is on."""
    address = last_attempt(yarn, application)["nodeId"]
    return next(one.number for one in yarn.nodes if address.endswith(f":{one.port}"))


def kill_driver(yarn: YarnCluster, application: str) -> None:
    """SIGKILL to the JVM and the Python of an application's ApplicationMaster, at once."""
    attempt = last_attempt(yarn, application)
    for name in ("java", "python", "python3"):
        for pid in processes_of(attempt["containerId"], name):
            os.kill(pid, signal.SIGKILL)


def test_containers_outlive_their_coordinator_and_are_submitted_again_when_they_are_killed(
    job: DeployedJob, nodes: YarnCluster
) -> None:
    def all_said() -> str:
        return said(nodes)

    job.isolate()
    job.send(200)
    applied = job.answer("deploy", "apply")
    shutil.rmtree(job.packages)
    job.await_counted(all_said)
    first = containers(job)
    assert set(first) == {"0", "1"}, all_said()
    moved = job.run("container", "move", "0", "--to", "elsewhere")
    assert (moved.returncode, "YARN chooses the hosts" in moved.stderr) == (1, True)

    kill_driver(nodes, applied["id"])
    job.send(200)
    job.await_counted(all_said)
    eventually(lambda: len(job.starts()) == 2, "another attempt", within_s=90, context=all_said)
    eventually(
        lambda: sum(row.event == "container-adopted" for row in job.history()) == 2,
        "both adopted",
        within_s=60,
        context=all_said,
    )
    assert containers(job) == first
    job.send(200)
    job.await_counted(all_said)
    assert containers(job) == first, all_said()

    began_s = time.monotonic()
    kill_driver(nodes, first["0"])
    job.send(200)
    job.await_counted(all_said)
    print("killed_to_all_outputs_s", round(time.monotonic() - began_s, 1))
    second = containers(job)
    assert second["0"] != first["0"]
    assert second["1"] == first["1"]

    assert job.run("config", "set", "job.container.count=1").returncode == 0
    eventually(lambda: set(containers(job)) == {"0"}, "one container", within_s=60, context=all_said)
    job.send(200)
    job.await_counted(all_said)

    assert job.run("stop").returncode == 0
    eventually(lambda: not containers(job), "no container", within_s=60, context=all_said)
    eventually(
        lambda: not job.answer("deploy", "status")[0]["live"], "the end of the coordinator", context=all_said
    )
    assert job.answer("deploy", "status")[0]["state"] == "FINISHED SUCCEEDED"
    job.assert_each_counted_once()
    job.assert_ran_in_its_package(nodes.nodes[0].directory.parent)


def test_nodes_that_are_lost_with_a_container_or_with_the_coordinator_cost_no_record(
    job: DeployedJob, nodes: YarnCluster
) -> None:
    """What was on a lost node is fenced off, and begins on another one."""

    def all_said() -> str:
        return said(nodes)

    def goes_on_without(number: int) -> None:
        job.send(200)
        began_s = time.monotonic()
        nodes.kill_machine(number)
        job.send(200)
        job.await_counted(all_said)
        print("node_lost_to_all_outputs_s", round(time.monotonic() - began_s, 1))
        eventually(lambda: set(containers(job)) == {"0", "1"}, "both", within_s=120, context=all_said)
        nodes.restart(number)

    job.send(200)
    applied = job.answer("deploy", "apply")
    job.await_counted(all_said)
    coordinators = node_of(nodes, applied["id"])
    others = {node_of(nodes, one) for one in containers(job).values()} - {coordinators}
    assert others, "no node has room for all"
    goes_on_without(others.pop())
    assert len(job.starts()) == 1
    goes_on_without(node_of(nodes, applied["id"]))
    assert [event for event, _ in job.starts()] == ["deployment", "attempt"]
    job.assert_each_counted_once()


def test_coordinators_and_containers_that_die_at_any_step_lose_and_double_nothing(
    job: DeployedJob, nodes: YarnCluster, tmp_path: Path
) -> None:
    """Applications that were submitted and are in nobody's books, too. Each point kills one process."""
    once = tmp_path / "once"
    armed = {
        "GRETE_FAILPOINT": ",".join(f"{point}:kill" for point in KILLED_AT),
        "GRETE_FAILPOINT_ONCE": str(once),
    }
    attempts = {"spark.yarn.maxAppAttempts": "8"}
    job.configure({**{f"spark.yarn.appMasterEnv.{name}": value for name, value in armed.items()}, **attempts})
    job.send(400)
    job.answer("deploy", "apply")  # each coordinator that dies takes its lease with it, and a start of Spark
    eventually(lambda: job.count() == 400, "all", within_s=300, context=lambda: said(nodes))
    eventually(lambda: set(containers(job)) == {"0", "1"}, "both", within_s=120, context=lambda: said(nodes))
    assert job.run("container", "restart", "1").returncode == 0
    eventually(
        lambda: len(list(once.iterdir())) == len(KILLED_AT),
        "all points",
        within_s=240,
        context=lambda: said(nodes),
    )
    job.send(200)
    job.await_counted(lambda: said(nodes))
    job.assert_each_counted_once()


def test_it_ends_when_all_is_consumed_or_by_the_words_of_the_container_that_failed(
    job: DeployedJob, nodes: YarnCluster, tmp_path: Path
) -> None:
    """They are in its last heartbeat: YARN has the code of its end alone."""

    def all_said() -> str:
        return said(nodes)

    job.send(100)
    job.answer("deploy", "apply", "--until-drained")
    job.await_counted(all_said)
    job.await_state("finished", all_said)
    found = job.answer("deploy", "status")[0]
    assert [one["state"] for one in found["containers"]] == ["finished succeeded"] * 2

    job.fail_at(150)
    job.send(100)
    job.answer("deploy", "apply")
    job.await_state("failed", all_said)
    job.assert_failed_at(150)


def test_a_deployment_takes_the_place_of_one_with_its_containers_and_a_kill_ends_them(
    job: DeployedJob, nodes: YarnCluster
) -> None:
    def all_said() -> str:
        return said(nodes)

    job.send(200)
    first = job.answer("deploy", "apply")
    job.await_counted(all_said)
    before = containers(job)
    second = job.answer("deploy", "apply", "--replace")
    assert second["id"] != first["id"]
    job.send(200)
    job.await_counted(all_said)
    eventually(lambda: set(containers(job)) == {"0", "1"}, "both", within_s=120, context=all_said)
    now = containers(job)
    assert not set(before.values()) & set(now.values())
    nodes.pause(1)
    try:
        job.send(100)
        job.await_counted(all_said)
    finally:
        nodes.resume(1)
    assert set(job.answer("deploy", "kill")["ended"]) == {second["id"], *now.values()}
    assert containers(job) == {}
    job.assert_each_counted_once()


def test_containers_leave_a_node_that_is_decommissioned(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have not failed; the coordinator, if it is there, goes on."""
    yarn = YarnCluster(tmp_path / "yarn", nodes=3, settings=OURS)
    yarn.start()

    def all_said() -> str:
        return said(yarn)

    try:
        with job_on_yarn(yarn, kafka, tmp_path, monkeypatch, {**PATIENT, **SEVERAL}) as job:
            job.send(200)
            job.answer("deploy", "apply")
            job.await_counted(all_said)
            before = containers(job)
            left = node_of(yarn, before["0"])
            there = {number for number, one in before.items() if node_of(yarn, one) == left}
            yarn.decommission(left)
            eventually(
                lambda: not set(before[number] for number in there) & set(containers(job).values()),
                "its containers leave",
                within_s=60,
                context=all_said,
            )
            job.send(200)
            job.await_counted(all_said)
            eventually(lambda: set(containers(job)) == {"0", "1"}, "both", within_s=90, context=all_said)
            now = containers(job)
            assert left not in {node_of(yarn, now[number]) for number in there}
            assert all(now[number] == one for number, one in before.items() if number not in there)
            assert len(job.starts()) == 1
            job.assert_each_counted_once()
    finally:
        yarn.stop()


def test_containers_take_what_was_brought_from_hdfs_though_their_coordinator_is_another_one(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cluster has it: the machine that has deployed the job is not needed. Stores come from there too."""
    hdfs = HdfsCluster(tmp_path / "hdfs")
    hdfs.start()
    yarn = YarnCluster(tmp_path / "yarn", nodes=3, settings=OURS, file_system=hdfs.bootstrap)
    yarn.start()

    snapshots = f"webhdfs://127.0.0.1:{hdfs.nodes[0].web_port}/snapshots"
    settings = {**PATIENT, **SEVERAL, "job.snapshot.dir": snapshots, "job.snapshot.interval.ms": "1000"}

    def all_said() -> str:
        return said(yarn)

    try:
        with job_on_yarn(yarn, kafka, tmp_path, monkeypatch, settings) as job:
            job.isolate()
            job.send(200)
            applied = job.answer("deploy", "apply")
            shutil.rmtree(job.packages)
            shutil.rmtree(tmp_path / "operator")
            job.await_counted(all_said)

            def has_snapshot_of_each_store() -> bool:
                job.send(20)
                job.await_counted(all_said)
                return all_said().count(f" in {snapshots}/") >= 4

            eventually(has_snapshot_of_each_store, "snapshots", within_s=60, context=all_said)
            kill_driver(yarn, applied["id"])
            eventually(lambda: len(job.starts()) == 2, "another attempt", within_s=90, context=all_said)
            kill_driver(yarn, containers(job)["0"])
            job.send(200)
            job.await_counted(all_said)
            assert f"was taken over from the snapshot in {snapshots}/" in all_said()
            assert job.run("stop").returncode == 0
            eventually(lambda: not containers(job), "no container", within_s=60, context=all_said)
            job.assert_each_counted_once()
            job.assert_ran_in_its_package(tmp_path / "yarn")
    finally:
        yarn.stop()
        hdfs.stop()
