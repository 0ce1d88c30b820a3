"""Submit to first committed record, and memory at rest: a job of grete against Structured Streaming by hand.

    python -m benchmarks.start [embedded | pipeline | isolated] [--rounds N]

Both read 3,000 records. `embedded`: they run a Python function over them, grete a StreamTask with a store, changelog
and checkpoints on the embedded system, by hand a query with `mapInArrow` from text files into files. `pipeline`: they
run the same frame of Spark's own operators between two topics of one broker, new ones each time. Seconds until a
reader of what is committed sees the first output, CPU seconds of all processes until then, and their memory
(proportional set size) three seconds later. In turns; the ratio to by hand is of medians. Where there is an archive
of Spark's classes, from which pipelines start, one starts without it as well. `isolated`: the pipeline of
grete whose `build` has an environment of its own (that of the tests, whose wheels `make services` fetches), against
the same in the driver's.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from tests.support.client_environment import environment_of_a_client

from benchmarks.contestants import (
    PARTITIONS,
    PIPELINES,
    Command,
    Race,
    configured,
    keep,
    make_topic,
    reader,
    record,
    surroundings,
)
from benchmarks.processes import cpu_s, tree
from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.spark.session.versions import class_archive
from grete.systems.local.system import LocalSystem, Message
from grete.testing.kafka_broker import KafkaCluster

Prepare = Callable[[Path], tuple[Command, Callable[[], bool]]]
"""Makes a contestant's inputs in a folder; its command, and whether a reader sees an output of it."""
RECORDS = 3_000
ROUNDS = 5
_REST_S = 3.0
_LIMIT_S = 120.0
_PROPERTIES = """
job.name=start
task.class=grete.testing.counting:CountingTask
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.factory=grete.store.sqlite
spark.master=local[2]
"""
_BY_HAND = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g").config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
def through(batches):
    yield from batches
frame = spark.readStream.text(sys.argv[1] + "/in").mapInArrow(through, "value string")
query = frame.writeStream.format("text").option("checkpointLocation", sys.argv[1] + "/ck")
query.trigger(processingTime="0 seconds").start(sys.argv[1] + "/out").awaitTermination()
"""


def _grete(home: Path) -> tuple[Command, Callable[[], bool]]:
    (home / "job.properties").write_text(_PROPERTIES)
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        local.ensure_stream(StreamSpec("in", 2))
        local.append("in", (Message(b"key%d" % (i % 50), b"{}", i) for i in range(RECORDS)))

    def has_output() -> bool:
        with closing(LocalSystem(home / "local", SystemClock())) as local:
            return "out" in local.streams() and any(int(o.upcoming) for o in local.offsets("out").values())

    words = ["-m", "grete.cli.main", "run", "--quiet", "--config", str(home / "job.properties")]
    return ([sys.executable, *words], {"GRETE_HOME": str(home)}), has_output


def _by_hand(home: Path) -> tuple[Command, Callable[[], bool]]:
    (home / "in").mkdir()
    (home / "in" / "records.txt").write_text("".join(f'{{"key": "key{i % 50}"}}\n' for i in range(RECORDS)))
    (home / "by_hand.py").write_text(_BY_HAND)
    words = [sys.executable, str(home / "by_hand.py"), str(home)]
    return (words, {}), lambda: any((home / "out" / "_spark_metadata").glob("[0-9]*"))


def _between_topics(bootstrap: str, contestant: Callable[[Race], Command], name: str) -> Prepare:
    """New topics for each start, the first one filled."""
    numbers = itertools.count(1)

    def prepare(home: Path) -> tuple[Command, Callable[[], bool]]:
        source, target = (f"{name}-{next(numbers)}-{end}" for end in ("in", "out"))
        for topic in (source, target):
            make_topic(bootstrap, topic)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(RECORDS):
            key, value = record(number)
            producer.produce(source, value, key, number % PARTITIONS)
        producer.flush()
        race = Race(bootstrap, source, target, "pass", home)
        outputs = reader(race)
        return contestant(race), lambda: outputs.poll(0) is not None

    return prepare


def _memory_mb(pid: int) -> float:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended meanwhile
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _measured(prepare: Prepare) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        (command, variables), has_output = prepare(Path(folder))
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **variables}
        began_s = time.monotonic()
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                while not has_output():
                    if process.poll() is not None or time.monotonic() - began_s > _LIMIT_S:
                        raise RuntimeError(f"no output from {command}")
                    time.sleep(0.02)
                first_s = time.monotonic() - began_s
                cpu = cpu_s(process.pid)
                time.sleep(_REST_S)
                memory = sum(map(_memory_mb, tree(process.pid)))
            finally:
                process.send_signal(signal.SIGTERM)
        return {"first_record_s": first_s, "cpu_s": cpu, "memory_mb": memory}


_WITHOUT_ARCHIVE = {"spark.driver.extraJavaOptions": "-Xshare:auto"}
"""Options of one's own, here what Java does anyway, have the archive in them, or go without."""


@contextmanager
def _embedded() -> Iterator[Mapping[str, Prepare]]:
    yield {"grete": _grete, "spark by hand": _by_hand}


def _pipeline_with(settings: Mapping[str, str]) -> Callable[[Race], Command]:
    return partial(configured, PIPELINES["pipeline"], settings)


@contextmanager
def _pipeline() -> Iterator[Mapping[str, Prepare]]:
    contestants = {"grete": PIPELINES["pipeline"], "spark by hand": PIPELINES["pipeline by hand"]}
    if class_archive().exists():
        contestants["grete without archive"] = _pipeline_with(_WITHOUT_ARCHIVE)
    with _on_a_broker(contestants) as prepared:
        yield prepared


@contextmanager
def _isolated() -> Iterator[Mapping[str, Prepare]]:
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_of_a_client(Path(folder) / "environment")
        settings = {
            "job.split.deployment.enabled": "true",
            "job.application.environment": str(environment),
        }
        contestants = {"isolated": _pipeline_with(settings), "in the driver": PIPELINES["pipeline"]}
        with _on_a_broker(contestants) as prepared:
            yield prepared


@contextmanager
def _on_a_broker(contestants: Mapping[str, Callable[[Race], Command]]) -> Iterator[Mapping[str, Prepare]]:
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaCluster(Path(folder) / "broker")
        broker.start()
        # as on any broker in use: the first transaction of all makes it a topic, for which it waits a second
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "first"}).init_transactions()
        try:
            yield {
                name: _between_topics(broker.bootstrap, contestant, name.replace(" ", "-"))
                for name, contestant in contestants.items()
            }
        finally:
            broker.stop()


KINDS = {"embedded": _embedded, "pipeline": _pipeline, "isolated": _isolated}
PEERS = ("spark by hand", "in the driver")


def run(kind: str = "embedded", rounds: int = ROUNDS) -> dict[str, Any]:
    """Each start of all, their medians, and the ratio of these to the peer's."""
    found: dict[str, list[dict[str, float]]] = {}
    with KINDS[kind]() as contestants:
        for _ in range(rounds):
            for name, prepare in contestants.items():
                found.setdefault(name, []).append(_measured(prepare))
    medians = {
        name: {key: round(statistics.median(row[key] for row in rows), 2) for key in rows[0]}
        for name, rows in found.items()
    }
    [peer] = [one for name, one in medians.items() if name in PEERS]
    ratios = {
        name: {key: round(value / peer[key], 2) for key, value in one.items()}
        for name, one in medians.items()
        if one is not peer
    }
    return medians | {"ratio": ratios, "starts": found}


def main() -> None:
    parser = argparse.ArgumentParser(description="Submit to first committed record, against by hand.")
    parser.add_argument("kind", nargs="?", choices=KINDS, default="embedded")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--discard", action="store_true", help="keep no file of it")
    given = parser.parse_args()
    figures = surroundings() | run(given.kind, given.rounds)
    keep(figures, kind=f"start-{given.kind}", is_discarded=given.discard)


if __name__ == "__main__":
    main()
