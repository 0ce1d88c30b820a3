"""`make bench-kafka BENCH=whole_pipeline`: a pipeline's job from submit to end against the same PySpark by hand.

Like `kafka_pipeline`, but each turn is what a user types: `grete run --until-drained`, with its coordinator, its
container and their JVM, or a program with a Spark session of its own. Both read the same topic until nothing is left.
Seconds until the command has ended; processor seconds of its processes, looked at every 20 ms, and of the broker.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import kafka_pipeline
from benchmarks.contestants import (
    CONNECTOR_JARS,
    Command,
    keep,
    make_topic,
    surroundings,
)
from benchmarks.data_plane import Cost, compare
from benchmarks.processes import own_cpu_s, tree
from grete.testing.kafka_broker import KafkaCluster

_LOOK_S = 0.02
_BATCH = 200_000
QUERIES: dict[str, tuple[str, str]] = {
    "pass_through": ("PassThrough", "append"),
    "aggregate": ("Aggregate", "update"),
    "join": ("Join", "append"),
}
"""The class of grete's pipeline, and the query's output mode by hand."""


class Bench:
    """A broker with a topic that is filled once; each turn writes a topic of its own."""

    def __init__(self, broker: KafkaCluster, records: int, folder: Path) -> None:
        self._bootstrap = broker.bootstrap
        self._broker = [pid for pid in tree(os.getpid()) if pid != os.getpid()]
        self._folder = folder
        self._turns = 0
        make_topic(self._bootstrap, "in")
        kafka_pipeline.fill(self._bootstrap, records)

    def _next(self) -> tuple[str, Path]:
        self._turns += 1
        target, folder = f"out-{self._turns}", self._folder / str(self._turns)
        make_topic(self._bootstrap, target)
        folder.mkdir()
        return target, folder

    def grete(self, query: str) -> Cost:
        """A job that ends when the topic is read."""
        target, folder = self._next()
        config = {
            "job.name": target,
            "app.class": f"{kafka_pipeline.__name__}:{QUERIES[query][0]}",
            "job.application.path": str(Path(__file__).parents[1]),
            "task.inputs": "kafka.in",
            "task.outputs": f"kafka.{target}",
            "job.default.system": "kafka",
            "job.coordinator.replication.factor": "1",
            "task.checkpoint.replication.factor": "1",
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.samza.offset.default": "oldest",
            "systems.kafka.producer.bootstrap.servers": self._bootstrap,
            "task.max.records.per.batch": str(_BATCH),
            "spark.master": "local[2]",
            "bench.target": "${env:BENCH_TARGET}",  # so containers have it
        }
        path = folder / "job.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        words = [
            sys.executable,
            "-m",
            "grete.cli.main",
            "run",
            "--quiet",
            "--until-drained",
            "--config",
            str(path),
        ]
        return self._measured((words, {"GRETE_HOME": str(folder / "home"), "BENCH_TARGET": target}), folder)

    def by_hand(self, query: str) -> Cost:
        """A program with a session of its own."""
        target, folder = self._next()
        words = [
            sys.executable,
            "-m",
            __spec__.name,
            "--by-hand",
            query,
            self._bootstrap,
            target,
            str(folder),
        ]
        return self._measured((words, {}), folder)

    def _measured(self, command: Command, folder: Path) -> Cost:
        words, variables = command
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **variables,
        }
        broker_s, seen, began_s = self._broker_s(), dict[int, float](), time.monotonic()
        with (
            (folder / "output").open("wb") as output,
            subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as process,
        ):
            while process.poll() is None:
                for pid in tree(process.pid):
                    seen[pid] = max(own_cpu_s(pid), seen.get(pid, 0.0))
                time.sleep(_LOOK_S)
            took_s = time.monotonic() - began_s
        if process.returncode:
            raise RuntimeError((folder / "output").read_text()[-4_000:])
        return Cost(took_s, sum(seen.values()) + self._broker_s() - broker_s)

    def _broker_s(self) -> float:
        return sum(map(own_cpu_s, self._broker))


def run_by_hand(query: str, bootstrap: str, target: str, folder: str) -> None:
    """The program."""
    from pyspark.sql import SparkSession

    jars = ",".join(map(str, sorted(CONNECTOR_JARS.glob("*.jar"))))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "1g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "in")
    )
    frame = frame.option("kafka.isolation.level", "read_committed").option("startingOffsets", "earliest")
    records = frame.option("maxOffsetsPerTrigger", str(_BATCH)).load()
    made = {
        "pass_through": lambda: records.select("key", "value"),
        "aggregate": lambda: kafka_pipeline.aggregate_by_hand(records),
        "join": lambda: kafka_pipeline.joined(records),
    }[query]()
    writer = made.writeStream.format("kafka").outputMode(QUERIES[query][1]).trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    spark.stop()


def run(records: int, pairs: int, only: Sequence[str]) -> dict[str, object]:
    """The comparisons of these queries, in turns, the order changing; all without any."""
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as name:
        broker = KafkaCluster(Path(name) / "broker")
        broker.start()
        try:
            bench = Bench(broker, records, Path(name))
            return {
                query: compare(records, pairs, partial(bench.grete, query), partial(bench.by_hand, query))
                for query in only or QUERIES
            }
        finally:
            broker.stop()


def main() -> None:
    """Measure, print, keep."""
    if sys.argv[1:2] == ["--by-hand"]:
        run_by_hand(*sys.argv[2:6])
        return
    parser = argparse.ArgumentParser(
        description="A pipeline's job from submit to end against PySpark by hand."
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], choices=QUERIES)
    parser.add_argument("--discard", action="store_true", help="keep no file of it")
    given = parser.parse_args()
    figures = surroundings() | {"records": given.records} | run(given.records, given.pairs, given.only)
    keep(figures, kind="whole-pipeline", is_discarded=given.discard)


if __name__ == "__main__":
    main()
