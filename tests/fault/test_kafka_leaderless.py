"""A partition of an input has no leader: its one copy is on a node that is away. The job reads the others."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.fault.job_on_kafka import Job, job_on

from grete.clock import SystemClock
from grete.kafka.client import KafkaConnection
from grete.kafka.topics import Topics, TopicSettings
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


def knows(node: str, topic: str) -> bool:
    """A client without metadata asks this node."""
    return topic in AdminClient({"bootstrap.servers": node}).list_topics(timeout=patient(10)).topics


@pytest.mark.nightly  # three brokers of its own; the next test stops one of three as well
def test_a_client_whose_controller_died_gets_its_answers_from_another_node(three: KafkaCluster) -> None:
    """librdkafka waits for that node until it asks for metadata by itself, which is every five minutes."""
    clock = SystemClock()
    connection = KafkaConnection({"bootstrap.servers": three.bootstrap}, 30.0, clock)
    topics = Topics(connection, "kafka", clock)
    assert topics.create("in", 1, TopicSettings(3, ""))
    # a node that is behind says for a moment that there is no such topic
    for node in three.bootstrap.split(","):
        eventually(partial(knows, node, "in"), f"{node} knows the topic")
    three.kill(connection.admin.list_topics(timeout=patient(10)).controller_id)
    for _ in range(3):
        assert topics.get("in").partitions == 1


def assert_named(job: Job, partition: int) -> None:
    """By the container's log and by the job's status."""
    ssp = f"kafka.{job.input}.{partition}"
    assert job.unreachable() == [ssp]
    eventually(lambda: job.has_said(f"waiting for {ssp}"), "the log names it")


@pytest.mark.nightly  # 30 s and three nodes
def test_a_partition_without_a_leader_is_named_and_waited_for_while_others_are_read(
    three: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a container that starts then."""
    # the killed node may be the one that answers for the election, which is not the subject: its successor needs 5 s
    lease = {"job.coordinator.lease.ttl.ms": "20000"}
    with job_on(three, tmp_path / "job", monkeypatch, copies=3, placed=[[1], [2]], settings=lease) as job:
        job.submit()
        job.send(200)
        job.await_counted()
        three.kill(2)
        job.send(200, only=0)
        job.await_counted()
        assert_named(job, 1)
        for pid in job.container_pids():
            os.kill(pid, signal.SIGKILL)
        job.send(200, only=0)
        job.await_counted()
        assert_named(job, 1)
        three.restart(2)
        returned_s = time.monotonic()
        job.send(200, only=1)
        job.await_counted()
        print(f"counted {time.monotonic() - returned_s:.1f} s after the node's return")
        assert job.events().count("container-exited") == 1
        job.stop()
        job.assert_each_counted_once()
