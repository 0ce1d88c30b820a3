"""A job whose coordinator stream and election are on Kafka: killed, cut off from the brokers, succeeded.

The real coordinator and containers, without Spark; the data is in the embedded system, so that only the control plane
needs the broker (S2-128).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.copying_job import TTL_S, CopyingJob
from tests.support.tcp_proxy import TcpProxy

from grete.cli.main import main
from grete.metadata.access import open_coordinator_stream
from grete.metadata.job_state import StopRequest, write_stop_request
from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = pytest.mark.fault


def coordinator_on_kafka(broker: str) -> dict[str, str]:
    return {
        "job.coordinator.replication.factor": "1",
        "job.coordinator.system": "kafka",
        "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
        "systems.kafka.consumer.bootstrap.servers": broker,
        "systems.kafka.producer.bootstrap.servers": broker,
    }


@pytest.fixture
def job(
    kafka: KafkaCluster, proxy: TcpProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CopyingJob]:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
    made = CopyingJob(tmp_path, coordinator_on_kafka(f"127.0.0.1:{kafka.nodes[0].proxied_port}"))
    yield made
    proxy.restore()
    made.end()


def test_a_coordinator_that_is_killed_is_succeeded_by_the_next_start(job: CopyingJob) -> None:
    """By name alone, since the home knows where the stream is; the container goes on and is adopted."""
    first, _ = job.copying()
    first.kill()
    first.wait()
    job.send(100)
    eventually(job.copied_once, "a container without a coordinator goes on")
    second = job.run_again()
    eventually(lambda: "container-adopted" in job.events(), "the container is adopted")
    job.send(100)
    eventually(job.copied_once, "the adopted container goes on")
    job.stop()
    assert second.wait(patient(30)) == 0


def test_what_a_coordinator_that_was_killed_has_left_is_stopped(job: CopyingJob) -> None:
    """The topic names a dead holder until another one leads, so it is known by its silence alone."""
    process, _ = job.copying()
    process.kill()
    process.wait()
    with open_job(job.id) as handle:
        assert handle.holder() is not None
    assert main(["stop", "--job", job.id.shown, "--deadline", "5"]) == 0
    with open_job(job.id) as handle:
        state = handle.state()
        assert (handle.launches(), handle.holder()) == ({}, None)
    assert state is not None
    assert state.state == "stopped"


def test_brokers_that_are_away_longer_than_the_lease_cost_an_incarnation_and_nothing_else(
    job: CopyingJob, proxy: TcpProxy
) -> None:
    """The process stays, its containers go on, and with the brokers comes another incarnation of a higher epoch."""
    process, epoch = job.copying()
    proxy.cut()
    time.sleep(2 * TTL_S)
    job.send(100)
    eventually(job.copied_once, "data does not need the coordinator")
    assert process.poll() is None
    proxy.restore()

    eventually(lambda: job.epoch() > epoch, "another incarnation leads")
    eventually(lambda: "container-adopted" in job.events(), "the container is adopted")
    job.send(100)
    eventually(job.copied_once, "the adopted container goes on")
    job.stop()
    assert process.wait(patient(30)) == 0
    assert job.copied_once()


def test_a_stop_that_was_requested_without_a_leader_is_obeyed_by_the_next_incarnation(
    job: CopyingJob, kafka: KafkaCluster, proxy: TcpProxy, tmp_path: Path
) -> None:
    """It names the epoch that the operator saw, and that one is over."""
    process, epoch = job.copying()
    proxy.cut()
    time.sleep(2 * TTL_S)
    direct = {**job.settings, "systems.kafka.producer.bootstrap.servers": kafka.bootstrap}
    with open_coordinator_stream(direct, job.id, tmp_path / "home") as stream:
        write_stop_request(stream, StopRequest(epoch, 5, "enough"))
    assert process.poll() is None
    proxy.restore()
    assert process.wait(patient(60)) == 0
    assert "stopped" in job.events()


def test_a_coordinator_that_was_cut_off_and_succeeded_leaves_the_job_to_its_successor(
    job: CopyingJob, proxy: TcpProxy
) -> None:
    process, epoch = job.copying()
    process.send_signal(signal.SIGSTOP)
    successor = job.run_again()
    eventually(lambda: job.epoch() > epoch, "the next one leads")
    process.send_signal(signal.SIGCONT)
    assert process.wait(patient(60)) == 5
    job.stop()
    assert successor.wait(patient(30)) == 0
