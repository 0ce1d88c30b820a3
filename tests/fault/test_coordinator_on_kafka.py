"""A job whose coordinator stream and election are on Kafka: killed, cut off from the brokers, succeeded.

The real coordinator and containers, without Spark; the data is in the embedded system, so that only the control plane
needs the broker (S2-128).
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.fault.coordinator_elsewhere import CoordinatorElsewhere
from tests.fault.copying_job import TTL_S, CopyingJob
from tests.support.tcp_proxy import TcpProxy

from grete.cli.main import main
from grete.config.settings import Settings
from grete.metadata.access import open_coordinator_stream
from grete.metadata.job_state import StopRequest, write_stop_request
from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.failover.services import job_settings

pytestmark = pytest.mark.fault


@pytest.fixture
def way(proxy: TcpProxy) -> TcpProxy:
    return proxy


@pytest.fixture
def settings(kafka: KafkaCluster) -> dict[str, str]:
    return job_settings("kafka", f"127.0.0.1:{kafka.nodes[0].proxied_port}")


class TestOnKafka(CoordinatorElsewhere):
    """Its `settings` are the module's."""

    def test_what_a_coordinator_that_was_killed_has_left_is_stopped(self, job: CopyingJob) -> None:
        """The topic names a dead holder until another one leads, so it is known by its silence alone."""
        process, _ = job.copying()
        process.kill()
        process.wait()
        with open_job(job.id) as handle:
            assert handle.election.holder() is not None
        assert main(["stop", "--job", job.id.shown, "--deadline", "5"]) == 0
        with open_job(job.id) as handle:
            state = handle.state()
            assert (handle.launches(), handle.election.holder()) == ({}, None)
        assert state is not None
        assert state.state == "stopped"

    def test_a_stop_that_was_requested_without_a_leader_is_obeyed_by_the_next_incarnation(
        self, job: CopyingJob, kafka: KafkaCluster, way: TcpProxy, tmp_path: Path
    ) -> None:
        """It names the epoch that the operator saw, and that one is over."""
        process, epoch = job.copying()
        way.cut()
        time.sleep(2 * TTL_S)
        direct = {**job.settings, "systems.kafka.producer.bootstrap.servers": kafka.bootstrap}
        with open_coordinator_stream(Settings.of(direct), job.id, tmp_path / "home") as stream:
            write_stop_request(stream, StopRequest(epoch, 5, "enough"))
        assert process.poll() is None
        way.restore()
        assert process.wait(patient(60)) == 0
        assert "stopped" in job.events()

    def test_a_coordinator_that_was_cut_off_and_succeeded_leaves_the_job_to_its_successor(
        self, job: CopyingJob, way: TcpProxy
    ) -> None:
        process, epoch = job.copying()
        process.send_signal(signal.SIGSTOP)
        successor = job.run_again()
        eventually(lambda: job.epoch() > epoch, "the next one leads")
        process.send_signal(signal.SIGCONT)
        assert process.wait(patient(60)) == 5
        job.stop()
        assert successor.wait(patient(30)) == 0
