"""One run of OpenLineage for a job, and its listener, beside a pipeline that writes topics and a Delta table."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from grete.cli.main import main
from grete.spark.session.kafka_connector import jars_directory
from grete.testing.kafka_broker import KafkaCluster

APPLICATION = """
import grete

class Split(grete.DataFramePipeline):
    def build(self, inputs):
        rows = inputs["kafka.{name}-in"].select("value")
        return {{"kafka.{name}-out": rows, "kafka.{name}-more": rows, "lake": rows}}
"""
PROPERTIES = """
job.name={name}
job.application.path={folder}
app.class=split_{id}:Split
task.inputs=kafka.{name}-in
task.outputs=kafka.{name}-out
task.checkpoint.replication.factor=1
job.coordinator.system=local
systems.local.samza.factory=local
systems.kafka.samza.factory=kafka
systems.kafka.samza.offset.default=oldest
systems.kafka.default.stream.replication.factor=1
systems.kafka.producer.bootstrap.servers={bootstrap}
outputs.lake.format=delta
outputs.lake.path={folder}/lake
spark.master=local[2]
spark.jars={listener}
spark.extraListeners=io.openlineage.spark.agent.OpenLineageSparkListener
spark.openlineage.namespace=tests
spark.openlineage.transport.type=file
spark.openlineage.transport.location={folder}/events.jsonl
"""


def listener() -> Path:
    folder = jars_directory(None, "GRETE_SPARK_SINK_JARS", "spark-sinks-*")
    assert folder is not None, "make services fetches the jars of outputs"
    return next(folder.glob("openlineage-spark_*.jar"))


def named(datasets: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["namespace"], one["name"]) for one in datasets}


@pytest.mark.nightly  # 30 s; what is sent is shown without Spark in unit/diagnostics
@pytest.mark.spark
@pytest.mark.timeout(240)
def test_one_run_of_the_listener_has_all_inputs_and_all_outputs(
    kafka: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    id_ = uuid.uuid4().hex[:8]
    name = f"lineage-{id_}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics(
        [NewTopic(f"{name}-{end}", 1, 1) for end in ("in", "out", "more")]
    ).values():
        made.result()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(f"{name}-in", value=b"one")
    assert producer.flush(30) == 0
    (tmp_path / f"split_{id_}.py").write_text(APPLICATION.format(name=name))
    config = tmp_path / "split.properties"
    given = {
        "name": name,
        "id": id_,
        "folder": tmp_path,
        "bootstrap": kafka.bootstrap,
        "listener": listener(),
    }
    config.write_text(PROPERTIES.format(**given))
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
    assert main(["run", "--config", str(config), "--until-drained", "--quiet"]) == 0
    assert "INFO" not in capfd.readouterr().err

    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    ours = [event for event in events if event["job"]["name"] == f"{name}"]
    assert (ours[0]["eventType"], ours[-1]["eventType"]) == ("START", "COMPLETE")
    assert len({event["run"]["runId"] for event in ours}) == 1
    for event in ours:
        assert event["job"]["namespace"] == "tests"
        assert named(event["inputs"]) == {(f"kafka://{kafka.bootstrap}", f"{name}-in")}
    assert named(ours[-1]["outputs"]) == {
        (f"kafka://{kafka.bootstrap}", f"{name}-out"),
        (f"kafka://{kafka.bootstrap}", f"{name}-more"),
        ("file", f"{tmp_path}/lake"),
    }
    [read] = ours[-1]["inputs"]
    assert read["facets"]["grete_offsets"]["nextOffsets"] == {"0": "1"}
    listened = [event for event in events if event["job"]["name"] != f"{name}"]
    seen = {one for event in listened for one in named(event["inputs"]) | named(event["outputs"])}
    assert seen <= named(ours[-1]["inputs"]) | named(ours[-1]["outputs"]), "both name a dataset alike"
