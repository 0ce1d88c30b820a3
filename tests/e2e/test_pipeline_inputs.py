"""Inputs of a pipeline that come, grow and are rewound one by one, and sources of Spark's own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

import grete
from grete import Batch
from grete.clock import SystemClock
from grete.errors import JobError
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.pipeline import PipelineUnderTest
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CONFIG = {
    "task.inputs": "local.a,local.b",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}
Start = Callable[..., PipelineUnderTest]


class All(grete.DataFramePipeline):
    """Whatever inputs there are, as a job has whose inputs are chosen by a pattern."""

    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return reduce(DataFrame.unionByName, (inputs[name].select("key") for name in sorted(inputs)))


class CountOfAll(grete.DataFramePipeline):
    output = "local.out"
    output_mode = "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        rows = reduce(DataFrame.unionByName, (inputs[name].select("key") for name in sorted(inputs)))
        return rows.groupBy("key").agg(F.count("*").alias("n"))


class CountOfTwo(grete.DataFramePipeline):
    """Keeps more where there is a third input."""

    output = "local.out"
    output_mode = "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        rows = reduce(DataFrame.unionByName, (inputs[name].select("key") for name in sorted(inputs)))
        if len(inputs) > 2:
            rows = rows.dropDuplicates(["key"])
        return rows.groupBy("key").agg(F.count("*").alias("n"))


class Numbers(DataSource):
    """A source of somebody's own: ten numbers."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n int"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return NumbersReader()


class NumbersReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        return iter([(n,) for n in range(start["n"], 10)]), {"n": 10}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([(n,) for n in range(start["n"], end["n"])])


class WithOthers(grete.DataFramePipeline):
    """An input of the job, a Delta table and a Python data source."""

    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        self.context.spark.dataSource.register(Numbers)
        table = self.context.read_stream("delta", path=self.context.config["app.table"])
        numbers = self.context.read_stream("numbers")
        return (
            inputs["local.a"]
            .select(F.col("key").cast("string"))
            .union(table.select("key"))
            .union(numbers.select(F.col("n").cast("string")))
        )


class WithRate(grete.DataFramePipeline):
    """An input of the job, and the numbers that Spark makes by the clock."""

    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        rate = self.context.read_stream("rate", rowsPerSecond="20")
        numbers = rate.select(F.col("value").cast("string").alias("key"))
        return inputs["local.a"].select(F.col("key").cast("string")).union(numbers)


class Noted(grete.DataFramePipeline):
    """Writes each batch's rows into a file that has the batch's name."""

    def build(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        return {"own": inputs["local.a"].select(F.col("key").cast("string"))}

    def write_batch(self, name: str, frame: DataFrame, batch: Batch) -> None:
        path = Path(self.context.config["app.folder"]) / batch.id
        path.write_text(json.dumps([row.key for row in frame.collect()]))


@pytest.fixture
def start(start_pipeline: Start, spark: SparkSession) -> Start:
    def started(application: Any, **more: str) -> PipelineUnderTest:
        return start_pipeline(application, {**CONFIG, **more}, spark=spark)

    return started


def keys(job: PipelineUnderTest) -> list[str]:
    return sorted(str(out.message["key"]) if out.key is None else out.key for out in job.outputs("local.out"))


def send(job: PipelineUnderTest, **found: str) -> None:
    for stream, names in found.items():
        for key in names.split():
            job.send(f"local.{stream}", {}, key=key)


def test_one_of_two_inputs_grows_and_one_is_rewound_while_the_other_goes_on(start: Start) -> None:
    job = start(All)
    send(job, a="a0 a1", b="b0 b1")
    job.run()
    job.kill()
    with closing(LocalSystem(job.directory / "local", SystemClock())) as local:
        local.add_partitions("b", 3)
    job.start()
    send(job, a="a2", b="b2 b3 b4 b5 b6 b7")
    assert job.run().records == 7
    first = sorted(["a0", "a1", "a2", "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"])
    assert keys(job) == first
    job.replay("local.a", offset=1)
    send(job, b="b8")
    assert job.run().records == 3
    assert keys(job) == sorted([*first, "a1", "a2", "b8"])


def test_an_input_that_comes_is_read_from_its_beginning_and_a_count_goes_on(start: Start) -> None:
    more = {"task.inputs": "local.a,local.aa,local.b"}
    job = start(All)
    send(job, a="a0", b="b0")
    job.run()
    job.restart(config=more)
    send(job, a="a1", aa="c0")
    job.run()
    assert keys(job) == ["a0", "a1", "b0", "c0"]

    def counts() -> list[tuple[str, int]]:
        return [(str(out.key), out.message["n"]) for out in counting.outputs("local.out")]

    counting = start(CountOfAll)
    send(counting, a="x", b="x y")
    counting.run()
    send(counting, b="z")
    counting.run_batch(commit=False)
    counting.restart(config=more)
    send(counting, aa="x")
    counting.run()
    found = counts()
    assert sorted(found) == [("x", 2), ("x", 3), ("y", 1), ("z", 1)], (
        "what was counted, and a batch cut short"
    )
    counting.restart(config={"task.inputs": "local.a,local.aa,local.aaa,local.b"})
    send(counting, a="x", aa="y", aaa="z", b="x")
    counting.run()
    assert sorted(counts()[len(found) :]) == [("x", 5), ("y", 2), ("z", 2)]
    counting.restart()
    send(counting, aaa="y")
    counting.run()
    assert counts()[-1] == ("y", 3)


def test_where_the_state_does_not_fit_what_came_with_an_input_the_operator_is_asked(start: Start) -> None:
    counting = start(CountOfTwo)
    send(counting, a="x", b="x")
    counting.run()
    counting.restart(config={"task.inputs": "local.a,local.b,local.c"})
    send(counting, c="x")
    with pytest.raises(JobError, match=r"and keeps .*job\.lineage\.state=discard"):
        counting.run()
    counting.restart(config={"task.inputs": "local.a,local.b"})
    send(counting, a="x")
    counting.run()
    assert [out.message["n"] for out in counting.outputs("local.out")] == [2, 3], "nothing was lost by it"


@pytest.mark.nightly  # 38 s; a source of Spark itself is read below, in every run
def test_a_delta_table_and_a_python_data_source_are_read_beside_an_input(
    start: Start, spark: SparkSession, tmp_path: Path
) -> None:
    def grow(*names: str) -> None:
        rows: Sequence[tuple[str]] = [(name,) for name in names]
        spark.createDataFrame(rows, "key string").write.format("delta").mode("append").save(f"{tmp_path}/t")

    grow("t0", "t1")
    job = start(WithOthers, **{"task.inputs": "local.a", "app.table": f"{tmp_path}/t"})
    send(job, a="a0")
    job.run()
    numbers = [str(n) for n in range(10)]
    assert keys(job) == sorted([*numbers, "a0", "t0", "t1"])
    job.restart()
    grow("t2")
    send(job, a="a1")
    job.run()
    assert keys(job) == sorted([*numbers, "a0", "a1", "t0", "t1", "t2"])


def test_the_numbers_of_a_rate_source_go_on_after_a_restart_and_none_is_lost_or_repeated(
    start: Start,
) -> None:
    job = start(WithRate, **{"task.inputs": "local.a"})
    send(job, a="a0")

    def numbers() -> list[int]:
        return sorted(int(key) for key in keys(job) if key != "a0")

    def has_more_than(count: int) -> bool:
        job.run()
        return len(numbers()) > count

    eventually(lambda: has_more_than(0), "the clock has made numbers")
    before = numbers()
    job.restart()
    eventually(lambda: has_more_than(len(before)), "it has made more")
    assert numbers() == list(range(len(numbers())))
    assert keys(job).count("a0") == 1


PATTERN = """
job.name=counter
job.application.path=.
app.class=counter:All
task.inputs=local.orders-eu
task.outputs=local.out
job.config.rewriters=orders
job.config.rewriter.orders.class=regex-input
job.config.rewriter.orders.system=local
job.config.rewriter.orders.regex=orders-.*
job.coordinator.monitor-input-regex.frequency.ms=200
systems.local.samza.offset.default=oldest
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
UNION = """
from functools import reduce

import grete
from pyspark.sql import DataFrame

class All(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs):
        frames = (inputs[name].select("key", "value") for name in sorted(inputs))
        return reduce(DataFrame.unionByName, frames)
"""


@pytest.mark.nightly
def test_a_running_pipeline_reads_a_stream_that_its_pattern_matches_as_soon_as_it_is_there(
    tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    job = job_maker(tmp_path, UNION, PATTERN)

    with closing(LocalSystem(job.home / "local", SystemClock())) as local:

        def fill(stream: str) -> None:
            local.ensure_stream(StreamSpec(stream, 2))
            local.append(stream, (Message(b"%s" % stream.encode(), b"%d" % n, n) for n in range(100)))

        def sent() -> Counter[bytes]:
            if "out" not in local.streams():
                return Counter()
            partitions = range(local.partition_count("out"))
            batches = [batch for one in partitions for _, batch in local.read("out", one, 0)]
            return Counter(key for batch in batches for key in batch.column(0).to_pylist())

        fill("orders-eu")
        running = subprocess.Popen(job.command("run", "--quiet"), env=job.environment())
        try:
            eventually(lambda: sent() == {b"orders-eu": 100}, "the first input is read")
            fill("orders-us")
            both = {b"orders-eu": 100, b"orders-us": 100}
            eventually(lambda: sent() == both, "the one that came is read as well, and nothing twice")
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(timeout=patient(60)) == 0


def test_a_repeated_batch_has_its_name_and_no_other_batch_ever_gets_it(start: Start, tmp_path: Path) -> None:
    def batches() -> dict[str, list[str]]:
        return {path.name: json.loads(path.read_text()) for path in tmp_path.joinpath("own").iterdir()}

    tmp_path.joinpath("own").mkdir()
    job = start(Noted, **{"task.inputs": "local.a", "task.outputs": "", "app.folder": f"{tmp_path}/own"})
    send(job, a="k0 k1")
    assert job.run_batch(commit=False) is not None
    cut_short = batches()
    job.restart()
    job.run()
    assert batches() == cut_short
    assert [*cut_short.values()] == [["k0", "k1"]]
    job.replay("local.a", discard_state=True)
    job.run()
    job.restart(lose_lineages=True, config={"job.lineage.state": "discard"})
    send(job, a="k2")
    job.run()
    assert sorted(batches().values()) == [["k0", "k1"], ["k0", "k1"], ["k2"]]
