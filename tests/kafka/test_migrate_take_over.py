"""The report of a take-over shows what the real Samza 1.8.0 wrote, and writes nothing."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from grete.checkpoint.file_system_store import FileSystemCheckpointStore
from grete.checkpoint.store import StoreContext, StoredCheckpoint
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.metadata.coordinator_stream import stream_name
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient
from grete_workbench.real_samza import run_samza, samza_config

Output = pytest.CaptureFixture[str]
GROUPERS = "org.apache.samza.container.grouper.stream."


@pytest.fixture(scope="module")
def job(harmed_broker: KafkaCluster) -> dict[str, str]:
    """A job of Samza's with a topic of two partitions, of which 102 records are processed.

    On a broker without other writers of topics: those that `migrate` makes would show.
    """
    name = f"moved_{uuid.uuid4().hex[:8]}"
    config = samza_config(harmed_broker.bootstrap, name)
    admin = AdminClient({"bootstrap.servers": harmed_broker.bootstrap})
    for topic, policy in (("page-views", "delete"), (f"{name}-counts-changelog", "compact")):
        if topic not in admin.list_topics(timeout=patient(10)).topics:
            new = NewTopic(topic, 2, 1, config={"cleanup.policy": policy})
            admin.create_topics([new])[topic].result(30)
    fill(harmed_broker)
    return {
        **config,
        "task.class": "com.example.Counter",
        "stores.counts.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
        "stores.counts.changelog": f"kafka.{name}-counts-changelog",
    }


@pytest.fixture(scope="module")
def ran(job: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same job after it ran under the real Samza, which made its coordinator stream at submit."""
    admin = AdminClient({"bootstrap.servers": job["systems.kafka.producer.bootstrap.servers"]})
    stream = stream_name(JobId(job["job.name"], "1"))
    new = NewTopic(stream, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([new])[stream].result(30)
    for command in ("write-coordinator-stream", "write-checkpoints"):
        run_samza(command, job, tmp_path_factory.mktemp("samza"))
    return job


def fill(broker: KafkaCluster) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(220):
        producer.produce("page-views", b"{}", partition=number % 2)
    assert producer.flush(30) == 0


def take_over(config: dict[str, str], directory: Path, capsys: Output) -> tuple[int, dict[str, Any]]:
    path = directory / "job.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    code = main(["migrate", "samza", "--check", str(path), "--coordinator-stream", "-o", "json"])
    return code, json.loads(capsys.readouterr().out)["take_over"]


def topics(config: dict[str, str]) -> set[str]:
    """Without those that brokers make by themselves."""
    servers = config["systems.kafka.producer.bootstrap.servers"]
    found = set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=patient(10)).topics)
    return found - {"__consumer_offsets", "__transaction_state"}


def test_tasks_offsets_and_changelog_partitions_are_samzas(
    ran: dict[str, str], tmp_path: Path, capsys: Output
) -> None:
    before = topics(ran)
    code, found = take_over(ran, tmp_path, capsys)
    assert code == 0
    assert found["tasks"] == [
        {
            "task": f"Partition {number}",
            "container": "0",
            "changelog_partition": number,
            "checkpoint": {f"kafka.page-views.{number}": f"10{number}"},
        }
        for number in range(2)
    ]
    assert {"written.by", "task.class"} <= set(found["differs"])
    assert any("2 partitions for 2 tasks" in finding["says"] for finding in found["findings"])
    assert topics(ran) == before


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            {"job.systemstreampartition.grouper.factory": f"{GROUPERS}GroupBySystemStreamPartitionFactory"},
            "grouper",
        ),
        ({"task.inputs": "kafka.narrow"}, "task.inputs"),
        ({"stores.counts.changelog": "kafka.narrow"}, "stores.counts.changelog"),
        ({"stores.counts.rocksdb.ttl.ms": "60000"}, "stores.counts.changelog"),
    ],
)
def test_what_would_lose_state_or_offsets_is_reported(
    harmed_broker: KafkaCluster,
    ran: dict[str, str],
    tmp_path: Path,
    capsys: Output,
    change: dict[str, str],
    what: str,
) -> None:
    if "narrow" not in topics(ran):
        admin = AdminClient({"bootstrap.servers": harmed_broker.bootstrap})
        admin.create_topics([NewTopic("narrow", 1, 1)])["narrow"].result(30)
    code, found = take_over(ran | change, tmp_path, capsys)
    assert code == 1
    blocking = [f for f in found["findings"] if f["outcome"] == "will not work"]
    assert any(what in finding["what"] for finding in blocking)
    assert all(finding["way_out"] for finding in blocking)


def test_a_standalone_job_has_checkpoints_and_no_coordinator_stream(
    job: dict[str, str], tmp_path: Path, capsys: Output
) -> None:
    alone = {**job, "job.id": "alone"}
    run_samza("write-checkpoints", alone, tmp_path)
    before = topics(alone)
    code, found = take_over(alone, tmp_path, capsys)
    assert code == 0
    assert [(task["task"], task["changelog_partition"], task["checkpoint"]) for task in found["tasks"]] == [
        (f"Partition {number}", number, {f"kafka.page-views.{number}": f"10{number}"}) for number in range(2)
    ]
    assert "as of a standalone job" in found["findings"][0]["says"]
    assert found["differs"] == []
    assert topics(alone) == before


def show(config: dict[str, str], directory: Path, capsys: Output) -> tuple[int, list[str], str]:
    path = directory / "job.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    code = main(["checkpoint", "show", "--config", str(path)])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err


def test_the_checkpoints_of_a_standalone_job_are_shown_before_its_first_run(
    job: dict[str, str], tmp_path: Path, capsys: Output
) -> None:
    alone = {**job, "job.id": "shown"}
    run_samza("write-checkpoints", alone, tmp_path)
    before = topics(alone)
    code, lines, said = show(alone, tmp_path, capsys)
    assert code == 0
    assert lines == [
        f"tasknames.Partition {n}.systems.kafka.streams.page-views.partitions.{n} = 10{n}" for n in range(2)
    ]
    topic = f"__samza_checkpoint_ver_1_for_{alone['job.name'].replace('_', '-')}_shown"
    assert f"A first run goes on from what is in topic {topic}" in said
    assert topics(alone) == before


def test_checkpoints_in_files_are_shown_before_the_first_run(
    job: dict[str, str], tmp_path: Path, capsys: Output
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    in_files = {
        **job,
        "job.id": "files",
        "task.checkpoint.factory": "org.apache.samza.checkpoint.file.FileSystemCheckpointManagerFactory",
        "task.checkpoint.path": str(folder),
    }
    context = StoreContext(JobId(job["job.name"], "files"), Settings.of(in_files), tmp_path, SystemClock())
    ssp = SystemStreamPartition("kafka", "page-views", 1)
    with closing(FileSystemCheckpointStore(context)) as store:
        store.write({TaskName("Partition 1"): StoredCheckpoint({ssp: "57"})})
    before = topics(in_files)
    code, lines, said = show(in_files, tmp_path, capsys)
    assert (code, lines) == (
        0,
        ["tasknames.Partition 1.systems.kafka.streams.page-views.partitions.1 = 57"],
    )
    assert "grete.checkpoint.file-system (1 tasks)" in said
    assert topics(in_files) == before


def test_a_job_that_never_ran_is_reported_and_not_made(
    job: dict[str, str], tmp_path: Path, capsys: Output
) -> None:
    before = topics(job)
    code, found = take_over({**job, "job.id": "never"}, tmp_path, capsys)
    assert code == 1
    assert "never ran here" in found["findings"][0]["says"]
    assert show({**job, "job.id": "never"}, tmp_path, capsys)[0] == 1
    assert topics(job) == before
