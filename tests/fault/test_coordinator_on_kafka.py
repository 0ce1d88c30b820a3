"""A job whose coordinator stream and election are on Kafka: killed, cut off from the brokers, succeeded.

The real coordinator and containers, without Spark; the data is in the embedded system, so that only the control plane
needs the broker (S2-128).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.tcp_proxy import TcpProxy

from grete.cli.main import main
from grete.clock import SystemClock
from grete.errors import JobError
from grete.metadata.access import open_coordinator_stream
from grete.metadata.job_state import StopRequest, write_stop_request
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = pytest.mark.fault

COPY = """
import grete

class Copy(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.message)
"""
TTL_S = 3.0


class Job:
    """The job and its coordinator's processes."""

    def __init__(self, directory: Path, proxy_port: int) -> None:
        self.id = JobId(f"copy-{uuid.uuid4().hex[:8]}")
        self._directory = directory
        self._running: list[subprocess.Popen[str]] = []
        self._local = directory / "home" / "local"
        (directory / "copying.py").write_text(COPY)
        with closing(LocalSystem(self._local, SystemClock())) as system:
            system.create_stream(StreamSpec("in", 2))
            system.create_stream(StreamSpec("out", 1))
        self._sent = 0
        broker = f"127.0.0.1:{proxy_port}"
        self.settings = {
            "job.name": self.id.name,
            "job.application.path": str(directory),
            "job.coordinator.lease.ttl.ms": str(round(TTL_S * 1000)),
            "job.coordinator.replication.factor": "1",
            "job.coordinator.system": "kafka",
            "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
            "systems.kafka.consumer.bootstrap.servers": broker,
            "systems.kafka.producer.bootstrap.servers": broker,
            "systems.local.samza.factory": "local",
            "systems.local.samza.offset.default": "oldest",
            "task.class": "copying:Copy",
            "task.inputs": "local.in",
        }
        self._config = directory / "copy.properties"
        self._config.write_text("\n".join(f"{key}={value}" for key, value in self.settings.items()))

    def submit(self) -> subprocess.Popen[str]:
        return self._coordinate("--config", str(self._config))

    def run_again(self) -> subprocess.Popen[str]:
        return self._coordinate("--job", self.id.name)

    def _coordinate(self, *which: str) -> subprocess.Popen[str]:
        log = (self._directory / f"coordinator-{len(self._running)}.log").open("w")
        with log:
            started = subprocess.Popen(
                [sys.executable, "-m", "grete.testing.sparkless", *which], stderr=log, text=True
            )
        self._running.append(started)
        return started

    def send(self, count: int) -> None:
        with closing(LocalSystem(self._local, SystemClock())) as system:
            messages = [Message(None, b"%d" % (self._sent + i), 0, i % 2) for i in range(count)]
            system.append("in", messages)
        self._sent += count

    def copied_once(self) -> bool:
        with closing(LocalSystem(self._local, SystemClock())) as system:
            found = [v for _, batch in system.read("out", 0, 0) for v in batch.column(1).to_pylist()]
        assert len(found) == len(set(found)), "written twice"
        return len(found) == self._sent

    def events(self) -> list[str]:
        with open_job(self.id) as handle:
            return [row.event for row in handle.history()]

    def epoch(self) -> int:
        """Of the last incarnation that recorded its start."""
        with open_job(self.id) as handle:
            state = handle.state()
        return 0 if state is None else state.epoch

    def stop(self) -> None:
        """Stop the leader; not while one incarnation has ended and the next has not begun."""
        eventually(self._is_asked_to_stop, "a leader that can be stopped")

    def _is_asked_to_stop(self) -> bool:
        with open_job(self.id) as handle, contextlib.suppress(JobError):
            handle.request_stop(5, "enough")
            return True
        return False

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        with open_job(self.id) as handle:
            launches = handle.launches()
        for record in launches.values():
            if record.handle:
                _, pid, _ = record.handle.split("/")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def job(
    kafka: KafkaCluster, proxy: TcpProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Job]:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
    made = Job(tmp_path, kafka.nodes[0].proxied_port)
    yield made
    proxy.restore()
    made.end()


def copying(job: Job) -> tuple[subprocess.Popen[str], int]:
    """The job's first coordinator and its epoch, once records were copied."""
    process = job.submit()
    job.send(100)
    eventually(job.copied_once, "the first records are copied")
    return process, job.epoch()


def test_a_coordinator_that_is_killed_is_succeeded_by_the_next_start(job: Job) -> None:
    """By name alone, since the home knows where the stream is; the container goes on and is adopted."""
    first, _ = copying(job)
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


def test_what_a_coordinator_that_was_killed_has_left_is_stopped(job: Job) -> None:
    """The topic names a dead holder until another one leads, so it is known by its silence alone."""
    process, _ = copying(job)
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
    job: Job, proxy: TcpProxy
) -> None:
    """The process stays, its containers go on, and with the brokers comes another incarnation of a higher epoch."""
    process, epoch = copying(job)
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
    job: Job, kafka: KafkaCluster, proxy: TcpProxy, tmp_path: Path
) -> None:
    """It names the epoch that the operator saw, and that one is over."""
    process, epoch = copying(job)
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
    job: Job, proxy: TcpProxy
) -> None:
    process, epoch = copying(job)
    process.send_signal(signal.SIGSTOP)
    successor = job.run_again()
    eventually(lambda: job.epoch() > epoch, "the next one leads")
    process.send_signal(signal.SIGCONT)
    assert process.wait(patient(60)) == 5
    job.stop()
    assert successor.wait(patient(30)) == 0
