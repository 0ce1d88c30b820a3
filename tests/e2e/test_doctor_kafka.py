"""The doctor on a real broker: it sees what is there, and makes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from grete.cli.doctor_kafka import kafka_findings
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.model.ids import JobId
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.real_samza import samza_config


@pytest.fixture
def job() -> JobId:
    return JobId(f"doctor_{uuid.uuid4().hex[:8]}", "1")


def topics(kafka: KafkaCluster) -> set[str]:
    return set(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=patient(10)).topics)


def test_a_job_that_never_ran_can_run_and_nothing_is_made(kafka: KafkaCluster, job: JobId) -> None:
    config = samza_config(kafka.bootstrap, job.name)
    findings = list(kafka_findings(Settings.of(config)))
    assert [f for f in findings if not f.ok] == []
    assert any("1 brokers answer" in f.found for f in findings)
    assert not any(job.name.replace("_", "-") in topic for topic in topics(kafka))


def test_more_copies_than_brokers_and_a_topic_that_deletes_are_reported(
    kafka: KafkaCluster, job: JobId
) -> None:
    config = {**samza_config(kafka.bootstrap, job.name), "task.checkpoint.replication.factor": "3"}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    new = NewTopic(stream_name(job), 2, 1, config={"cleanup.policy": "delete"})
    admin.create_topics([new])[stream_name(job)].result(30)
    eventually(
        lambda: stream_name(job) in admin.list_topics(timeout=patient(10)).topics, "the topic is known"
    )
    failed = "\n".join(f"{f.found}: {f.way_out}" for f in kafka_findings(Settings.of(config)) if not f.ok)
    assert "set task.checkpoint.replication.factor to 1 or less" in failed
    assert "2 partitions" in failed
    assert "cleanup.policy=delete" in failed


def test_a_stream_whose_readers_read_aborted_records_is_reported(kafka: KafkaCluster, job: JobId) -> None:
    config = samza_config(kafka.bootstrap, job.name)
    key = "systems.kafka.consumer.isolation.level"
    with closing(open_coordinator_log(Settings.of(config), stream_name(job), Path(), SystemClock())) as log:
        stream = CoordinatorStream(log, SystemClock(), source="test")
        stream.write_config({k: v for k, v in config.items() if k != key}, run_id="first")
        assert [f.check for f in kafka_findings(Settings.of(config)) if not f.ok] == ["isolation.level"]
        stream.write_config(config, run_id="second")
        assert [f.check for f in kafka_findings(Settings.of(config)) if not f.ok] == []


def test_brokers_that_do_not_answer_are_one_finding(job: JobId) -> None:
    (finding,) = kafka_findings(Settings.of(samza_config("127.0.0.1:1", job.name)))
    assert not finding.ok
    assert "no broker can be reached" in finding.found


def test_a_configuration_whose_brokers_are_away_is_findings_and_no_error(tmp_path: Path) -> None:
    """In a process of its own, to whose standard error no other client writes."""
    path = tmp_path / "job.properties"
    config = {**samza_config("127.0.0.1:1", "away"), "task.class": "json:JSONDecoder"}
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    done = subprocess.run(
        [sys.executable, "-m", "grete.cli.main", "doctor", "--config", str(path), "-o", "json"],
        env={**os.environ, "GRETE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert done.returncode == 1, done.stderr
    failed = {finding["check"] for finding in json.loads(done.stdout) if not finding["ok"]}
    assert "kafka kafka" in failed
    assert "rdkafka" not in done.stderr
