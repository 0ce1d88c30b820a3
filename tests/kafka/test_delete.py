"""`grete job delete` on Kafka: the job's topics go, and no others."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from grete.checkpoint.names import checkpoint_log_name
from grete.cli.main import main
from grete.config.settings import Settings
from grete.metadata.job_index import remember_submitted
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient


def test_a_deleted_job_leaves_no_topic_of_its_own(
    kafka: KafkaCluster, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = JobId(f"gone_{uuid.uuid4().hex[:8]}")
    input_ = f"{job.name}-in"
    config = {
        "job.name": job.name,
        "job.id": job.id,
        "job.coordinator.system": "kafka",
        "job.coordinator.replication.factor": "1",
        "task.checkpoint.replication.factor": "1",
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.producer.bootstrap.servers": kafka.bootstrap,
        "systems.kafka.default.stream.replication.factor": "1",
        "stores.default.changelog.replication.factor": "1",
        "task.class": "a:B",
        "task.inputs": f"kafka.{input_}",
        "stores.totals.factory": "grete.store.sqlite",
    }
    changelog = Settings.of(config).store("totals").changelog_stream(job)
    with open_job(job, Settings.of(config), must_exist=False) as handle:
        handle.stream.write_config(config, run_id="run-1", reason="first")
        with handle.checkpoints.system() as system:
            system.create_stream(StreamSpec(input_, 1))
            system.create_stream(StreamSpec(changelog, 1, compacted=True))
            system.checkpoint_log(checkpoint_log_name(job)).end()
    remember_submitted(Settings.of(config), job, home)

    assert main(["job", "delete", "--job", job.name, "-o", "json", "--execute"]) == 0
    assert json.loads(capsys.readouterr().out)["changelogs"] == [f"kafka.{changelog}"]

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def left() -> set[str]:
        topics = admin.list_topics(timeout=patient(10)).topics
        return {name for name in topics if job.name in name.replace("-", "_")}

    eventually(lambda: left() == {input_}, "only the input is left", within_s=30)
    assert main(["job", "delete", "--job", job.name]) == 1, "it is forgotten, too"
