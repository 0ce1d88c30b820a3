"""`grete run --dry-run`: what would run, with Spark's plan, and nothing started, written or created."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.time_zone import local_time_zone
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = pytest.mark.spark

APPLICATION = """
import grete

class Priced(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs):
        [frame] = inputs.values()
        prices = frame.sparkSession.read.csv("prices.csv", header=True)
        item = frame.select(frame["value"].cast("string").alias("item"))
        return item.join(prices, "item").select(item["item"].alias("key"), "price")

class Typo(Priced):
    def build(self, inputs):
        return inputs["local.in"].select("key", "valu")

class Numbers(Priced):
    def build(self, inputs):
        return inputs["local.in"].select(inputs["local.in"]["partition"].alias("value"))

class Elsewhere(Priced):
    def build(self, inputs):
        return inputs["local.inn"]

class Counting(Priced):
    def build(self, inputs):
        return inputs["local.in"].groupBy("key").count()

class Several(Priced):
    output = ""

    def build(self, inputs):
        rows = super().build(inputs)
        return {"local.out": rows, "archive": rows, "pager": rows.where("price > 3")}

    def write_batch(self, name, frame, batch):
        raise AssertionError("nothing is written")

class Undeclared(Priced):
    output = "local.elsewhere"

class OnKafka(Priced):
    output = "kafka.{topic}-out"
"""
PROPERTIES = """
job.name=priced
job.application.path=.
app.class=counter:{kind}
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


class Trial:
    """A job that has not run yet, and its command line in another folder than the application's."""

    def __init__(self, job: Any, elsewhere: Path) -> None:
        self.job = job
        self.elsewhere = elsewhere

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.job.command("run", *words),
            cwd=self.elsewhere,
            env=self.job.environment(),
            capture_output=True,
            text=True,
            timeout=patient(300),
        )

    def left_behind(self) -> set[str]:
        """What there is in the home, but for the streams' file."""
        files = {str(path.relative_to(self.job.home)) for path in self.job.home.rglob("*") if path.is_file()}
        return {path for path in files if not path.startswith("local/streams.")}


@pytest.fixture
def trial(tmp_path: Path, job_maker: Callable[[Path, str, str], Any]) -> Callable[[str], Trial]:
    def make(kind: str) -> Trial:
        job = job_maker(tmp_path, APPLICATION, PROPERTIES.format(kind=kind))
        (tmp_path / "application" / "prices.csv").write_text("item,price\ntea,4\n")
        (tmp_path / "elsewhere").mkdir()
        with closing(LocalSystem(job.home / "local", SystemClock())) as local:
            local.create_stream(StreamSpec("in", 2))
            local.append("in", [Message(b"k", b"tea", 1)])
        return Trial(job, tmp_path / "elsewhere")

    return make


def test_it_says_inputs_outputs_and_sparks_plan_and_the_paths_of_build_are_those_of_the_run(
    trial: Callable[[str], Trial],
) -> None:
    tried = trial("Priced")
    planned = tried.run("--dry-run", "-o", "json")
    assert planned.returncode == 0, planned.stderr
    document = json.loads(planned.stdout)
    plan, own = document.pop("plan"), document.pop("settings")
    assert own["spark.sql.session.timeZone"]["value"] == local_time_zone(Settings())
    assert own["spark.sql.shuffle.partitions"]["value"] == "2"
    assert "spark.master" not in own
    assert document == {
        "job": "priced",
        "application": "counter:Priced",
        "inputs": {"local.in": 2},
        "outputs": {"local.out": 0},
        "containers": 1,
        "tasks": 2,
        "output_mode": "append",
    }
    assert "StreamingRelation" in plan["local.out"]
    assert "ReadSchema: struct<item:string,price:string>" in plan["local.out"]
    assert not tried.left_behind()
    ran = tried.run("--until-drained")
    assert ran.returncode == 0, ran.stderr + tried.job.log()
    with closing(LocalSystem(tried.job.home / "local", SystemClock())) as local:
        rows = [row for p in range(2) for _, batch in local.read("out", p, 0) for row in batch.to_pylist()]
    assert [(row["key"], json.loads(row["value"])) for row in rows] == [(b"tea", {"price": "4"})]


@pytest.mark.nightly  # a start of Spark each; the one above looks at outputs too
def test_outputs_that_are_no_streams_are_said_by_their_format(trial: Callable[[str], Trial]) -> None:
    tried = trial("Several")
    tried.job.configure(
        {"outputs.archive.format": "parquet", "outputs.archive.path": str(tried.elsewhere / "rows")}
    )
    planned = tried.run("--dry-run", "-o", "json")
    assert planned.returncode == 0, planned.stderr
    document = json.loads(planned.stdout)
    assert document["outputs"] == {"local.out": 0, "archive": "parquet", "pager": ""}
    assert set(document["plan"]) == {"local.out", "archive", "pager"}
    assert not list(tried.elsewhere.iterdir())


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Typo", ("build of counter:Typo failed", "UNRESOLVED_COLUMN", "Did you mean")),
        ("Counting", ("Spark refuses the plan", "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION")),
        ("Undeclared", ("output local.elsewhere", "task.outputs")),
    ],
)
def test_a_plan_that_cannot_run_is_refused_in_sparks_words_and_in_one_attempt(
    trial: Callable[[str], Trial], kind: str, words: tuple[str, ...]
) -> None:
    tried = trial(kind)
    refused = tried.run("--dry-run")
    assert refused.returncode == 1, refused.stdout
    assert not refused.stdout
    for word in words:
        assert word in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not tried.left_behind()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "Numbers",
            "output local.out: a pipeline's column 'value' must be string or binary, it is int. Cast it",
        ),
        ("Elsewhere", "build asks for the input 'local.inn', which is none; task.inputs has local.in"),
    ],
)
def test_what_a_start_would_refuse_a_dry_run_refuses(
    trial: Callable[[str], Trial], kind: str, words: str
) -> None:
    refused = trial(kind).run("--dry-run")
    assert refused.returncode == 2, refused.stdout
    assert words in refused.stderr


@pytest.mark.nightly
def test_a_setting_that_spark_refuses_is_named_without_a_trace(trial: Callable[[str], Trial]) -> None:
    refused = trial("Priced").run("--dry-run", "--set", "spark.sql.shuffle.partitions=many")
    assert refused.returncode == 2, refused.stdout
    assert "Spark refuses its settings" in refused.stderr
    assert 'the config "spark.sql.shuffle.partitions" is invalid' in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.nightly
def test_no_topic_is_created_on_kafka(
    kafka: KafkaCluster, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    topic = f"dry-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    properties = PROPERTIES.format(kind="OnKafka").replace("local.in", f"kafka.{topic}")
    properties = properties.replace("local.out", f"kafka.{topic}-out")
    properties += f"""
systems.kafka.samza.factory=kafka
systems.kafka.default.stream.replication.factor=1
systems.kafka.consumer.bootstrap.servers={kafka.bootstrap}
job.coordinator.system=kafka
job.coordinator.replication.factor=1
task.checkpoint.replication.factor=1
"""
    job = job_maker(tmp_path, APPLICATION.replace("{topic}", topic), properties)
    (tmp_path / "application" / "prices.csv").write_text("item,price\ntea,4\n")
    before = set(admin.list_topics(timeout=30).topics)
    planned = Trial(job, tmp_path).run("--dry-run", "-o", "json")
    assert planned.returncode == 0, planned.stderr
    document = json.loads(planned.stdout)
    assert document["outputs"] == {f"kafka.{topic}-out": 0}
    assert "StreamingRelation kafka" in document["plan"][f"kafka.{topic}-out"]
    created = set(admin.list_topics(timeout=30).topics) - before
    assert not [name for name in created if topic in name or "priced" in name]
