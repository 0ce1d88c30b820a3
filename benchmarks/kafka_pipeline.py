"""`make bench-kafka BENCH=kafka_pipeline`: a DataFrame pipeline on Kafka against the same PySpark by hand.

One broker, one Spark session, one topic of JSON; both sides read it with Spark's connector until nothing is left and
write to a topic of their own, turn by turn, the order changing. What grete does more is: one transaction under a
fence for the rows of each batch and its checkpoints; with stamps, a header on every record instead. By hand means
`writeStream.format("kafka")`, whose records are there at least once. With `--cluster` tasks run on the executors of
two workers, so the driver sends the rows of a transaction, and by hand and with stamps the tasks do.

A run of grete is a new job, with its topics, fence and checkpoints. That takes half a second here, where a session
stands waiting, and nothing where a job's JVM starts beside it; `batches_ratio` is of the clock without it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import grete
from benchmarks import RESULTS
from benchmarks import applications as work
from benchmarks.data_plane import Cost, compare, ignored, measure
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.process_state import ProcessState
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.spark.job_run import run_job
from grete.spark.session.container_session import build_session
from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.spark_cluster import SparkCluster

PARTITIONS = 4
BATCH = 200_000
_WARM_UPS = 2
"""After the first two million records the JVM still takes a quarter less for the next."""
_NAME = "benchmarks.kafka_pipeline"


class PassThrough(grete.DataFramePipeline):
    """Key and value as they came."""

    output = "kafka.out"

    def __init__(self) -> None:
        self.output = f"kafka.{os.environ['BENCH_TARGET']}"

    def build(self, inputs: dict[str, DataFrame]) -> DataFrame:
        [records] = inputs.values()
        return records.select("key", "value")


class Aggregate(PassThrough):
    """Count, mean and maximum per carrier, in Spark's state."""

    output_mode = "update"

    def build(self, inputs: dict[str, DataFrame]) -> DataFrame:
        [records] = inputs.values()
        return work.aggregate(records)


class Join(PassThrough):
    """Each record's carrier by its name, of a static table."""

    def build(self, inputs: dict[str, DataFrame]) -> DataFrame:
        [records] = inputs.values()
        return joined(records)


class TwoOutputs(grete.DataFramePipeline):
    """What is parsed once goes to two topics, a part of it to each."""

    def build(self, inputs: dict[str, DataFrame]) -> dict[str, DataFrame]:
        [records] = inputs.values()
        target, parsed = f"kafka.{os.environ['BENCH_TARGET']}", delays(records)
        return {target: late(parsed), f"{target}-2": early(parsed)}


def delays(records: DataFrame) -> DataFrame:
    """The records, parsed."""
    parsed = F.from_json(F.col("value").cast("string"), "n long, carrier string, delay int")
    return records.select("key", parsed.alias("r")).select("key", "r.*")


def late(parsed: DataFrame) -> DataFrame:
    """A third of them."""
    return parsed.where("delay >= 200").select("key", F.col("carrier").alias("value"))


def early(parsed: DataFrame) -> DataFrame:
    """A third of them, as JSON."""
    return parsed.where("delay < 100").select(
        "key", F.to_json(F.struct("n", "carrier", "delay")).alias("value")
    )


def fill(bootstrap: str, records: int) -> None:
    """The records of all turns, into the topic `in`."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for i in range(records):
        value = b'{"n":%d,"carrier":"C%d","delay":%d,"pad":"%s"}' % (i, i % 16, i % 300, b"x" * 100)
        producer.produce("in", value, b"key%d" % (i % 5_000), i % PARTITIONS)
        if i % 10_000 == 0:
            producer.flush()
    producer.flush()


class Bench:
    """A broker, a topic that is filled once, a session."""

    def __init__(self, broker: KafkaCluster, records: int, directory: Path, spark: Mapping[str, str]) -> None:
        self.records = records
        self._directory = directory
        self._bootstrap = broker.bootstrap
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._runs = 0
        self.config = {
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.samza.offset.default": "oldest",
            "systems.kafka.producer.bootstrap.servers": broker.bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
            "task.checkpoint.replication.factor": "1",
            "task.inputs": "kafka.in",
            "task.max.records.per.batch": str(BATCH),
            "spark.driver.memory": "2g",
            **spark,
        }
        self.spark: SparkSession = build_session("bench", Settings.of(self.config), kafka_system="kafka")
        self._topic("in")
        fill(self._bootstrap, records)

    def _topic(self, name: str) -> None:
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)

    def _next(self) -> str:
        """A fresh output topic, which names the run."""
        self._runs += 1
        name = f"out-{self._runs}"
        self._topic(name)
        return name

    def grete(self, pipeline: str, **config: str) -> Cost:
        """A grete job over all records."""
        target = os.environ["BENCH_TARGET"] = self._next()
        self._topic(f"{target}-2")
        tasks = tuple(
            AssignedTask(TaskName(f"Partition {p}"), (SystemStreamPartition("kafka", "in", p),), p)
            for p in range(PARTITIONS)
        )
        own = {"task.outputs": f"kafka.{target}", "app.class": f"{_NAME}:{pipeline}"}
        config = {**self.config, **own, **config}
        assignment = Assignment(
            JobId(target), ContainerId("0"), 1, Settings.of(config), tasks, until_drained=True
        )
        home = self._directory / target

        def run() -> None:
            with closing(ProcessState()) as kept:
                run_job(assignment, home, threading.Event(), on_batch=ignored, on_at_work=ignored, kept=kept)

        return replace(measure(run), batches_s=_batches_s(home))

    def by_hand(self, mode: str, *queries: Callable[[DataFrame], DataFrame]) -> Cost:
        """Each query between the connector's source and its sink, side by side."""
        targets = [self._next() for _ in queries]

        def start(query: Callable[[DataFrame], DataFrame], target: str) -> StreamingQuery:
            frame = self.spark.readStream.format("kafka").options(
                **{
                    "kafka.bootstrap.servers": self._bootstrap,
                    "kafka.isolation.level": "read_committed",
                    "subscribe": "in",
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": str(BATCH),
                }
            )
            writer = query(frame.load()).writeStream.format("kafka").outputMode(mode)
            writer = writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", target)
            writer = writer.option("checkpointLocation", str(self._directory / target))
            return writer.trigger(availableNow=True).start()

        def run() -> None:
            for query in [start(query, target) for query, target in zip(queries, targets, strict=True)]:
                query.awaitTermination()

        return replace(measure(run), batches_s=_batches_s(*(self._directory / target for target in targets)))


def _batches_s(*folders: Path) -> float:
    """From the start of the queries whose checkpoints are in the folders to their last commit."""
    checkpoints = [commits.parent for folder in folders for commits in folder.rglob("commits")]
    begun = min((checkpoint / "metadata").stat().st_mtime for checkpoint in checkpoints)
    done = (commit for checkpoint in checkpoints for commit in (checkpoint / "commits").iterdir())
    return max(commit.stat().st_mtime for commit in done) - begun


def joined(records: DataFrame) -> DataFrame:
    """Key, and the name of the carrier."""
    numbers = records.sparkSession.range(16)
    names = numbers.selectExpr("concat('C', id) carrier", "concat('the carrier ', id) value")
    carrier = F.get_json_object(F.col("value").cast("string"), "$.carrier").alias("carrier")
    return records.select("key", carrier).join(names, "carrier").select("key", "value")


def aggregate_by_hand(records: DataFrame) -> DataFrame:
    """As a pipeline's rows become records."""
    rows = work.aggregate(records)
    names = [name for name in rows.columns if name != "key"]
    return rows.select("key", F.to_json(F.struct(*names)).alias("value"))


def comparisons(bench: Bench) -> dict[str, tuple[Callable[[], Cost], Callable[[], Cost]]]:
    """What is compared: grete's side, and the same by hand."""

    def passed() -> Cost:
        return bench.by_hand("append", lambda frame: frame.select("key", "value"))

    return {
        "pass_through": (lambda: bench.grete("PassThrough"), passed),
        "pass_through_with_stamps": (
            lambda: bench.grete("PassThrough", **{"systems.kafka.pipeline.delivery": "stamps"}),
            passed,
        ),
        "two_outputs": (
            lambda: bench.grete("TwoOutputs"),
            lambda: bench.by_hand(
                "append", lambda frame: late(delays(frame)), lambda frame: early(delays(frame))
            ),
        ),
        "join": (lambda: bench.grete("Join"), lambda: bench.by_hand("append", joined)),
        "aggregate": (
            lambda: bench.grete("Aggregate"),
            lambda: bench.by_hand("update", aggregate_by_hand),
        ),
    }


@contextmanager
def on_workers(folder: Path) -> Iterator[Mapping[str, str]]:
    """Settings for a cluster of two workers with a core each."""
    cluster = SparkCluster(folder)
    cluster.start()
    try:
        yield {"spark.master": cluster.bootstrap, "spark.cores.max": "2", "spark.executor.memory": "1g"}
    finally:
        cluster.stop()


def run(records: int, pairs: int, only: Sequence[str], *, is_cluster: bool) -> dict[str, object]:
    """The comparisons of these names; all without any."""
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as name, ExitStack() as held:
        folder = Path(name)
        broker = KafkaCluster(folder / "broker")
        broker.start()
        held.callback(broker.stop)
        spark: Mapping[str, str] = {"spark.master": "local[2]"}
        if is_cluster:
            spark = held.enter_context(on_workers(folder / "cluster"))
        bench = Bench(broker, records, folder, spark)
        held.callback(bench.spark.stop)
        known = comparisons(bench)
        return {name: compare(records, pairs, *known[name], _WARM_UPS) for name in only or known}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description="A DataFrame pipeline on Kafka against PySpark by hand.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--cluster", action="store_true", help="on two workers of a core each, not local[2]")
    parser.add_argument("--only", nargs="+", default=[], metavar="COMPARISON")
    given = parser.parse_args()
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    figures = {
        "when": when,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_average_before": round(os.getloadavg()[0], 1),  # far above 1: something else ran beside it
        "batch": BATCH,
        "spark": "two workers of a core each" if given.cluster else "local[2]",
        **run(given.records, given.pairs, given.only, is_cluster=given.cluster),
    }
    text = json.dumps(figures, indent=2)
    print(text)
    (RESULTS / f"kafka-pipeline-{when}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
