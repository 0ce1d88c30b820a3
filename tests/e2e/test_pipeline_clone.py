"""A second version of a pipeline beside the first, by the commands of docs/operating.md, with Spark."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from tests.support.topic_records import topic_records

from grete.clock import SystemClock
from grete.errors import StreamNotFound
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]
APPLICATION = """
import grete
from pyspark.sql import functions as F

class Counts(grete.DataFramePipeline):
    output_mode = "update"

    def build(self, inputs):
        [lines] = inputs.values()
        counts = lines.groupBy(F.col("key").cast("string").alias("name")).agg(F.count(F.lit(1)).alias("count"))
        counts = counts.withColumn("key", F.col("name"))
        return {"SYSTEM.out": counts, "files": counts, "table": counts, "last": counts.drop("key")}
"""
PROPERTIES = """
job.name={job}
job.application.path=.
app.class=counter:Counts
task.inputs={system}.in
task.outputs={system}.out
job.coordinator.system=local
systems.local.samza.factory=local
systems.{system}.samza.offset.default=oldest
outputs.files.format=json
outputs.files.path={path}/files
outputs.table.format=delta
outputs.table.path={path}/table
outputs.last.format=delta
outputs.last.path={path}/last
outputs.last.keys=name
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
KAFKA = """
systems.kafka.samza.factory=kafka
systems.kafka.default.stream.replication.factor=1
task.checkpoint.replication.factor=1
systems.kafka.consumer.bootstrap.servers={bootstrap}
"""
KEYS = 7


class Embedded:
    """Streams of the embedded system."""

    job = "counter"

    def __init__(self, job: Any) -> None:
        self._home = job.home

    def fill(self, numbers: Sequence[int]) -> None:
        with closing(LocalSystem(self._home / "local", SystemClock())) as local:
            local.ensure_stream(StreamSpec("in", 2))
            for partition in (0, 1):
                own = [n for n in numbers if n % 2 == partition]
                local.append("in", (Message(b"k%d" % (n % KEYS), b"", partition) for n in own))

    def values(self) -> list[Mapping[str, Any]]:
        with closing(LocalSystem(self._home / "local", SystemClock())) as local:
            found = [
                value for p in (0, 1) for _, b in local.read("out", p, 0) for value in b.column(1).to_pylist()
            ]
        return [json.loads(value) for value in found]


class OnKafka:
    """Topics of a broker."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self._servers = {"bootstrap.servers": kafka.bootstrap}
        mark = uuid.uuid4().hex[:8]
        self.job, self.input, self.output = (f"{one}-{mark}" for one in ("counter", "in", "out"))
        admin = AdminClient(self._servers)
        admin.create_topics([NewTopic(self.input, 2, 1)])[self.input].result(30)
        self.config = KAFKA.format(bootstrap=kafka.bootstrap)

    def fill(self, numbers: Sequence[int]) -> None:
        producer = Producer(self._servers)
        for n in numbers:
            producer.produce(self.input, b"", b"k%d" % (n % KEYS), n % 2)
        assert producer.flush(30) == 0

    def values(self) -> list[Mapping[str, Any]]:
        found = topic_records(self._servers["bootstrap.servers"], self.output, 2)
        return [json.loads(record.value or b"") for record in found]


@pytest.fixture(params=["embedded", "kafka"])
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pipeline(
    system: str, request: pytest.FixtureRequest, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> tuple[Any, Any]:
    """A job and its streams."""
    if system == "embedded":
        lines = PROPERTIES.format(job=Embedded.job, system="local", path=tmp_path)
        job = job_maker(tmp_path, APPLICATION.replace("SYSTEM.out", "local.out"), lines)
        return job, Embedded(job)
    streams = OnKafka(request.getfixturevalue("kafka"))
    lines = PROPERTIES.format(job=streams.job, system="kafka", path=tmp_path)
    lines = lines.replace("kafka.in", f"kafka.{streams.input}").replace(
        "kafka.out", f"kafka.{streams.output}"
    )
    application = APPLICATION.replace("SYSTEM.out", f"kafka.{streams.output}")
    return job_maker(tmp_path, application, lines + streams.config), streams


def test_a_clone_is_compared_with_its_original_and_takes_over_where_both_stand(
    pipeline: tuple[Any, Any], spark: SparkSession, tmp_path: Path
) -> None:
    job, streams = pipeline
    clone, name = tmp_path / "clone.properties", f"{streams.job}-2"
    both = ("--job", name, "--over", streams.job)
    streams.fill(range(200))
    job.of_home("run", "--quiet", "--config", str(job.config), "--until-drained")
    said = job.of_home("job", "clone", "--job", streams.job, "--as", name, "--to-file", str(clone)).stdout
    assert f"{tmp_path}/files-{name}" in said
    streams.fill(range(200, 300))
    job.of_home("run", "--quiet", "--config", str(clone), "--until-drained")
    job.of_home("job", "compare", *both, code=1)
    streams.fill(range(300, 360))
    point = {"GRETE_FAILPOINT": "lineage.planned:kill", "GRETE_FAILPOINT_ONCE": str(tmp_path / "once")}
    (tmp_path / "once").mkdir()
    found = json.loads(job.of_home("job", "promote", *both, "-o", "json", **point).stdout)
    assert list((tmp_path / "once").iterdir()), "it was killed with the batch planned, and went on"
    assert (found["equal"], sum(found["offsets"].values())) == (True, 300)
    check_tables(json.loads(job.of_home("job", "compare", *both, "--tables", "-o", "json", code=1).stdout))
    assert json.loads(job.of_home("job", "promote", *both, "--execute", "-o", "json").stdout)["promoted"]
    job.of_home("run", "--quiet", "--config", str(clone), "--until-drained")
    check(streams, spark, tmp_path, 360)


def check_tables(found: Mapping[str, Any]) -> None:
    """The last rows are the same. The clone has skipped counts between two batches of its original."""
    by_name = {Path(one["output"]).name: one for one in found["outputs"]}
    assert (by_name["last"]["same"], by_name["last"]["differ"]) == (KEYS, 0)
    assert by_name["last"]["sums"]["count"] == [300, 300]
    for name in ("files", "table"):
        own = by_name[name]
        assert own["missing"] == own["records"] - own["same"] > 0
        assert own["more"] == own["clone_records"] - own["same"]
    assert not found["equal"]


def check(streams: Any, spark: SparkSession, folder: Path, records: int) -> None:
    """No count was lost on the way, and none began again."""
    rows = counted(spark.read.json(f"{folder}/files").collect())
    assert sorted(counted(spark.read.format("delta").load(f"{folder}/table").collect())) == sorted(rows)
    assert sorted(counted(streams.values())) == sorted(rows), "all outputs have each row once"
    assert len(set(rows)) == len(rows), "and no count twice"
    last = {key: max(count for other, count in rows if other == key) for key, _ in rows}
    assert last == {f"k{k}": len(range(k, records, KEYS)) for k in range(KEYS)}


def counted(rows: Iterable[Any]) -> list[tuple[str, int]]:
    return [(row["name"], row["count"]) for row in rows]


def test_a_clone_begins_with_the_state_that_its_original_has(
    pipeline: tuple[Any, Any], spark: SparkSession, tmp_path: Path
) -> None:
    job, streams = pipeline
    clone, name = tmp_path / "clone.properties", f"{streams.job}-2"
    streams.fill(range(100))
    job.of_home("run", "--quiet", "--config", str(job.config), "--until-drained")
    words = (
        "job",
        "clone",
        "--job",
        streams.job,
        "--as",
        name,
        "--from",
        "checkpoint",
        "--to-file",
        str(clone),
    )
    for at in ("clone.made", "clone.lineage-copied", "clone.checkpoints-written"):
        job.of_home(*words, code=-signal.SIGKILL, GRETE_FAILPOINT=f"{at}:kill")
    job.of_home(*words)
    streams.fill(range(100, 150))
    for file in (clone, job.config):
        job.of_home("run", "--quiet", "--config", str(file), "--until-drained")
    compared = job.of_home("job", "compare", "--job", name, "--over", streams.job, "-o", "json")
    [output] = json.loads(compared.stdout)["outputs"]
    assert (output["records"], output["clone_records"], output["same"]) == (KEYS, KEYS, KEYS)
    check(streams, spark, tmp_path, 150)
    rows = spark.read.format("delta").load(f"{tmp_path}/table-{name}").collect()
    assert sorted(row["count"] for row in rows) == sorted(len(range(k, 150, KEYS)) for k in range(KEYS))


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.mark.parametrize("provider", ["", ROCKSDB], ids=["files", "rocksdb"])
@pytest.mark.parametrize("system", ["embedded"])
def test_a_clone_begins_with_the_state_of_one_of_its_originals_batches(
    pipeline: tuple[Any, Any], tmp_path: Path, provider: str, spark: SparkSession
) -> None:
    """The original goes on meanwhile, batch after batch."""
    job, streams = pipeline
    clones = [tmp_path / f"{streams.job}-{number}.properties" for number in (2, 3, 4)]
    more = {"task.max.records.per.batch": "200"}
    job.configure(more | ({"spark.sql.streaming.stateStore.providerClass": provider} if provider else {}))
    sent = 0

    def send() -> None:
        nonlocal sent
        streams.fill(range(sent, sent + 10))
        sent += 10

    def counted() -> int:
        last: dict[str, int] = {}
        with suppress(StreamNotFound):  # the coordinator makes it
            last = {value["name"]: value["count"] for value in streams.values()}
        return sum(last.values())

    send()
    words = ("run", "--quiet", "--config", str(job.config))
    running = subprocess.Popen([*job.command()[:3], *words], env=job.environment())
    try:
        eventually(lambda: counted() == sent, "it has begun", within_s=120)
        is_made = threading.Event()

        def keep_sending() -> None:
            while not is_made.wait(0.5):
                send()

        sending = threading.Thread(target=keep_sending)
        sending.start()
        try:
            for clone in clones:  # each at another moment
                made = ("--as", clone.stem, "--from", "checkpoint", "--to-file", str(clone))
                job.of_home("job", "clone", "--job", streams.job, *made)
        finally:
            is_made.set()
            sending.join()
        eventually(lambda: counted() == sent, "it goes on", within_s=120)
        assert running.poll() is None
    finally:
        running.terminate()
        running.wait(60)
    for clone in clones:
        job.of_home("run", "--quiet", "--config", str(clone), "--until-drained")
        job.of_home("job", "compare", "--job", clone.stem, "--over", streams.job)
        rows = spark.read.format("delta").load(f"{tmp_path}/last-{clone.stem}").collect()
        counts = {row["name"]: row["count"] for row in rows}
        assert counts == {f"k{k}": len(range(k, sent, KEYS)) for k in range(KEYS)}
