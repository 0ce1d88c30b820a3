"""Queries of Spark's Structured Streaming go on under grete with their state as they would alone, and back."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.kafka.test_migrate_spark import PROPERTIES, Killed, Query, said, values_in

from grete.cli.main import main
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

APPLICATION = """
from functools import reduce

import grete
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor


def parsed(rows):
    parts = F.split(rows["value"].cast("string"), " ")
    number = parts[1].cast("int")
    return rows.select(number.alias("number"), F.timestamp_seconds(number * 10).alias("at"))


def as_json(rows, *columns):
    return rows.select(F.to_json(F.struct(*columns)).alias("value"))


def summed(rows, k):
    groups = rows.groupBy(F.window("at", "1 minute"), k.alias("k"))
    start = F.unix_timestamp("window.start").alias("at")
    return as_json(groups.agg(F.sum("number").alias("sum")), start, "k", "sum")


def windows(rows):
    timed = parsed(rows).withWatermark("at", "1 minute")
    return summed(timed.dropDuplicatesWithinWatermark(["number"]), F.col("number") % 3)


def of_all(inputs):
    return reduce(DataFrame.union, reversed(inputs))


def merged(*inputs):
    return windows(of_all(inputs))


def one_operator_less(rows):
    return summed(parsed(rows).withWatermark("at", "1 minute"), F.col("number") % 3)


def other_keys(rows):
    timed = parsed(rows).withWatermark("at", "1 minute")
    return summed(timed.dropDuplicatesWithinWatermark(["number"]), F.col("number").cast("string"))


def joined(first, second):
    left = parsed(first).withWatermark("at", "1 minute")
    right = parsed(second).withWatermark("at", "1 minute").toDF("n", "then")
    on = F.expr("number = n and then between at and at + interval 30 seconds")
    return as_json(left.join(right, on, "leftOuter"), "number", "n")


def the_other_way_round(first, second):
    return joined(second, first)


def with_files(rows):
    return rows.select(rows["value"].cast("string")).union(rows.sparkSession.readStream.text("FOLDER"))


def merged_with_files(*inputs):
    return with_files(of_all(inputs))


class Totals(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timers):
        from pyspark.sql import Row

        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += row.number
        self.total.update((total,))
        yield Row(k=key[0], total=total)

    def close(self):
        pass


def totals(rows):
    keyed = parsed(rows).withColumn("k", F.col("number") % 3).groupBy("k")
    return as_json(keyed.transformWithState(Totals(), "k int, total long", "update", "none"), "k", "total")


class Again(grete.DataFramePipeline):
    output = "kafka.OUT"
    output_mode = "MODE"

    def build(self, inputs):
        return FUNCTION(*inputs.values())
"""
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Stateful(Query):
    """A query by hand whose frame the application's module makes, of topics that `task.inputs` has in this order."""

    function = "windows"
    mode = "append"
    of_one = ""
    """The function that makes the same of one source, which subscribes to all topics."""

    def prepare(self, folder: Path) -> ModuleType:
        """The application's module, by which the plain query is made as well."""
        path = folder / "plain.py"
        path.write_text(APPLICATION.replace("FOLDER", str(folder / "files")))
        spec = importlib.util.spec_from_file_location("plain", path)
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        return self.module

    def frame(self) -> DataFrame:
        inputs = [
            self.spark.readStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "subscribe": topics})
            .options(startingOffsets="earliest", maxOffsetsPerTrigger="40")
            .load()
            for topics in ([",".join(self.topics)] if self.of_one else self.topics)
        ]
        made: DataFrame = getattr(self.module, self.of_one or self.function)(*inputs)
        return made

    def final(self, rows: Sequence[str]) -> list[str]:
        """What its rows say in the end: how often an update is written depends on what the batches hold."""
        if self.mode == "append":
            return sorted(rows)
        last = {row["k"]: row for row in sorted(map(json.loads, rows), key=lambda row: row["total"])}
        return sorted(map(json.dumps, last.values()))

    def drained(self, checkpoint: Path | str, *, is_killed: bool = False) -> list[str]:
        """What it writes until it has read everything; or until it is killed in its next batch."""
        rows: list[str] = []

        def keep(batch: DataFrame, number: int) -> None:
            if is_killed:
                raise Killed
            rows.extend(row.value for row in batch.collect())

        self.spark.conf.set(PROVIDER, ROCKSDB)
        writer = self.frame().writeStream.foreachBatch(keep).outputMode(self.mode).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        with pytest.raises(StreamingQueryException) if is_killed else nullcontext():
            assert query.awaitTermination(patient(180))
        return rows


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(job: Any, *words: str) -> tuple[int, Any]:
        monkeypatch.setenv("GRETE_HOME", str(job.home))
        code = main([*words, "--config", str(job.config), "-o", "json"])
        out = capsys.readouterr()
        return code, json.loads(out.out) if out.out.startswith("{") else out.out + out.err

    return run


@pytest.fixture
def make(
    spark: SparkSession, kafka: KafkaCluster, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> Callable[..., tuple[Stateful, Callable[..., Any]]]:
    def made(function: str, *, mode: str = "append", sources: int = 1) -> tuple[Stateful, Callable[..., Any]]:
        query = Stateful(spark, kafka.bootstrap, tmp_path, sources)
        query.function, query.mode = function, mode
        query.prepare(tmp_path)

        def job(function: str = function, topics: Sequence[str] = (), more: str = "") -> Any:
            text = APPLICATION.replace("OUT", query.out).replace("MODE", mode).replace("FUNCTION", function)
            text = text.replace("FOLDER", str(tmp_path / "files"))
            properties = PROPERTIES.format(
                application="app.class=counter:Again",
                inputs=",".join(f"kafka.{topic}" for topic in topics or query.topics),
                out=query.out,
                bootstrap=query.bootstrap,
                name=query.out,
            )
            return job_maker(tmp_path / uuid.uuid4().hex[:6], text, properties + more)

        return query, job

    return made


@pytest.mark.parametrize(
    ("function", "mode", "sources", "keeps"),
    [
        ("windows", "append", 1, ["stateStoreSave", "dedupeWithinWatermark"]),
        pytest.param("joined", "append", 2, ["symmetricHashJoin"], marks=pytest.mark.nightly),
        pytest.param("totals", "update", 1, ["transformWithStateInPySparkExec"], marks=pytest.mark.nightly),
        pytest.param("with_files", "append", 1, [], marks=pytest.mark.nightly),
    ],
)
def test_a_query_goes_on_with_its_state_as_it_would_by_itself_and_then_by_itself_again(
    function: str,
    mode: str,
    sources: int,
    keeps: list[str],
    make: Callable[..., tuple[Stateful, Callable[..., Any]]],
    command: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Also where the first attempt to take it over was killed in between."""
    query, make_job = make(function, mode=mode, sources=sources)
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_text("a 1\n")
    query.send(100)
    query.drained(query.checkpoint)
    by_itself = tmp_path / "by-itself"
    shutil.copytree(query.checkpoint, by_itself)
    (files / "b").write_text("b 2\n")
    query.send(80)
    job = make_job()
    migrate = ["migrate", "spark", "--checkpoint", str(query.checkpoint)]
    code, found = command(job, *migrate)
    assert code == (1 if keeps else 0)
    assert ("--state keep goes on with it" in json.dumps(found)) == bool(keeps)
    before = {path: path.stat().st_mtime_ns for path in query.checkpoint.rglob("*")}
    take_over = [*migrate, "--state", "keep", "--execute"]
    if function == "windows":
        killed = job.environment(GRETE_FAILPOINT="lineage.current:kill")
        assert subprocess.run(job.command(*take_over), env=killed).returncode == -signal.SIGKILL
        assert list(job.home.glob("jobs/*/container-0/lineages/current.json")), "the lineage had begun"
    code, found = command(job, *take_over)
    assert (code, found["executed"]) == (0, True), found
    goes_on = ", ".join(keeps) or "nothing but its sources' offsets"
    assert f"the job goes on with it: {goes_on}; " in said(found)
    assert {path: path.stat().st_mtime_ns for path in query.checkpoint.rglob("*")} == before
    ran = job.run()
    assert ran.returncode == 0, ran.stderr + job.log()
    expected = query.final(query.drained(by_itself))
    assert query.final(values_in(query)) == expected
    assert len(expected) > 2
    back = ["migrate", "to-spark", "--checkpoint", str(tmp_path / "back")]
    code, found = command(job, *back)
    assert (code, found["executed"], found["operators"]) == (0, False, keeps)
    assert not (tmp_path / "back").exists()
    code, found = command(job, *back, "--execute")
    assert code == 0
    assert found["sources"] == [f"kafka.{topic}" for topic in query.topics] + [""] * (not keeps)
    query.send(50)
    (files / "c").write_text("c 3\n")
    assert query.final(query.drained(tmp_path / "back")) == query.final(query.drained(by_itself)) != []
    code, refused = command(job, *back, "--execute")
    assert code != 0
    assert "there is something in it already" in refused


@pytest.mark.parametrize(
    ("of_one", "function"),
    [("windows", "merged"), pytest.param("with_files", "merged_with_files", marks=pytest.mark.nightly)],
)
def test_a_query_that_subscribes_to_several_topics_goes_on_with_a_source_for_each_of_them(
    of_one: str,
    function: str,
    make: Callable[..., tuple[Stateful, Callable[..., Any]]],
    command: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Also with a batch that was planned and not committed, whichever topic `build` names first, and with a topic
    that comes later, as those do that a pattern finds, while the state moves into other partitions.
    """
    query, make_job = make(function, sources=2)
    query.of_one = of_one
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_text("a 1\n")
    query.send(100)
    query.drained(query.checkpoint)
    query.send(40)
    query.drained(query.checkpoint, is_killed=True)
    by_itself = tmp_path / "by-itself"
    shutil.copytree(query.checkpoint, by_itself)
    (files / "b").write_text("b 2\n")
    query.send(80)
    job = make_job()
    take_over = ["migrate", "spark", "--checkpoint", str(query.checkpoint), "--state", "keep", "--execute"]
    code, found = command(job, *take_over)
    assert (code, found["executed"]) == (0, True), found
    own = ", ".join(f"kafka.{topic}" for topic in query.topics[::-1])
    assert f"each topic becomes a source of its own: {own}" in said(found)
    ran = job.run()
    assert ran.returncode == 0, ran.stderr + job.log()
    expected = query.drained(by_itself)
    assert query.final(values_in(query)) == query.final(expected)
    assert len(expected) > 2
    query.create(f"{query.topics[0]}-a")
    query.send(60)
    inputs = ",".join(f"kafka.{topic}" for topic in query.topics)
    job.configure(
        {
            "task.inputs": inputs,
            "systems.kafka.samza.offset.default": "oldest",
            "spark.sql.shuffle.partitions": "3",
        }
    )
    ran = job.run()
    assert ran.returncode == 0, ran.stderr + job.log()
    expected += query.drained(by_itself)
    assert query.final(values_in(query)) == query.final(expected)
    assert ("is in 3 partitions" in job.log()) == (of_one == "windows"), job.log()
    back = tmp_path / "back"
    code, found = command(job, "migrate", "to-spark", "--checkpoint", str(back), "--execute")
    assert (code, found["sources"][:3]) == (0, [f"kafka.{topic}" for topic in query.topics[::-1]])
    query.send(50)
    expected = query.final(query.drained(by_itself))
    query.of_one = ""
    assert query.final(query.drained(back)) == expected != []


@pytest.mark.parametrize(
    ("function", "now", "sources", "says"),
    [
        (
            "windows",
            "one_operator_less",
            1,
            "kept state by an aggregation, dropDuplicatesWithinWatermark, and keeps",
        ),
        pytest.param("windows", "other_keys", 1, "were (window", marks=pytest.mark.nightly),
        pytest.param("joined", "the_other_way_round", 2, "in this order", marks=pytest.mark.nightly),
    ],
)
def test_what_the_state_of_a_query_does_not_fit_is_named_and_nothing_is_written(
    function: str,
    now: str,
    sources: int,
    says: str,
    make: Callable[..., tuple[Stateful, Callable[..., Any]]],
    command: Callable[..., Any],
) -> None:
    query, make_job = make(function, sources=sources)
    query.send(60)
    query.drained(query.checkpoint)
    job = make_job(now)
    migrate = ["migrate", "spark", "--checkpoint", str(query.checkpoint)]
    code, found = command(job, *migrate, "--state", "keep", "--execute")
    assert (code, found["executed"]) == (1, False)
    assert "the query does not fit what build makes" in said(found)
    assert says in said(found)
    assert not list(job.home.glob("jobs/*/container-0/lineages/*"))


def test_a_job_that_cannot_have_the_state_of_a_query_is_told_before_spark_is_asked(
    make: Callable[..., tuple[Stateful, Callable[..., Any]]], command: Callable[..., Any]
) -> None:
    query, make_job = make("windows")
    query.send(60)
    query.drained(query.checkpoint)
    migrate = ["migrate", "spark", "--checkpoint", str(query.checkpoint), "--state", "keep"]
    code, found = command(make_job(more="job.container.count=2\n"), *migrate)
    assert code == 1
    assert "the job would have 2 containers" in said(found)
    code, refused = command(make_job(), "migrate", "to-spark", "--checkpoint", str(query.checkpoint))
    assert code != 0
    assert "there is no job" in refused
