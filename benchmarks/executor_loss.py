"""From the loss of an executor with its disk to all tasks' outputs going on, by how much their stores hold.

    python -m benchmarks.executor_loss [--keys 10000 200000] [--times 3] [--discard]

A StreamTask with a store, four tasks on two workers of one core each, which see nothing of each other's disk. When
every key is counted once, one worker, its executor and its Python are killed and its folder is gone; a new one starts
at once, as a cluster manager would do. Then a record for each of forty keys of all tasks is sent. `goes_on_s` is from
the kill until a reader of what is committed has them all, counted right; `undisturbed_s` is the same without a kill,
just before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.cluster_job import ClusterJob

from benchmarks.contestants import keep, surroundings
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.spark_cluster import Hidden, SparkCluster

PARTITIONS, PROBES, PAD = 4, 40, 200
_FILL = 50_000
"""Records that a producer has at once."""
_PATIENCE_S = 240.0
COUNTER = """
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or {"count": 0})["count"] + 1
        self.counts.put(envelope.key, {"count": count, "pad": "PAD"})
        collector.send("kafka.OUTPUT", count, key=envelope.key)
"""


class Counted:
    """The job, and what a reader of what is committed has seen of its output."""

    def __init__(self, brokers: str, cluster: SparkCluster, folder: Path) -> None:
        self.job = ClusterJob(brokers, cluster, folder, partitions=PARTITIONS)
        text = COUNTER.replace("OUTPUT", self.job.output).replace("PAD", "x" * PAD)
        self.job.write("counting.py", text)
        self.job.until_drained = False
        self.job.config |= {
            "task.class": "counting:Counter",
            "stores.counts.factory": "grete.store.sqlite",
            "stores.counts.key.serde": "string",
            "stores.counts.msg.serde": "json",
            "stores.counts.changelog.replication.factor": "1",
            "spark.driver.memory": "1g",
        }
        self._producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
        self._seen: dict[bytes, int] = {}
        self._consumer = Consumer({"bootstrap.servers": brokers, "group.id": self.job.name})

    def begin(self, keys: int) -> None:
        """Each key once. The output is read from here on."""
        for first in range(0, keys, _FILL):
            self.job.fill(min(_FILL, keys - first), keys=keys, first=first)
        where = [TopicPartition(self.job.output, one, 0) for one in range(self.job.output_partitions)]
        self._consumer.assign(where)

    def probe(self) -> None:
        """A record for each of some keys."""
        for key in range(PROBES):
            self._producer.produce(self.job.input, b"{}", b"key%d" % key, key % PARTITIONS)
        if self._producer.flush(60):
            raise SystemExit("not all records were sent")

    def await_counts(self, keys: int, probed: int) -> None:
        """Until every key was counted once, and the probed ones as often as they were sent, in order."""
        expected = keys + probed * PROBES
        end_s = time.monotonic() + _PATIENCE_S
        while sum(self._seen.values()) < expected:
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                if time.monotonic() > end_s:
                    raise SystemExit(f"{sum(self._seen.values())} of {expected}: {self.job.log()[-3_000:]}")
                continue
            key, value = message.key() or b"", json.loads(message.value() or b"0")
            if value != self._seen.get(key, 0) + 1:
                raise SystemExit(
                    f"{key!r} was counted {value} after {self._seen.get(key, 0)}: lost or doubled"
                )
            self._seen[key] = value

    @contextmanager
    def running(self) -> Iterator[None]:
        """The job at work, ended in order."""
        with closing(self._consumer), self.job.start() as process:
            try:
                yield
            finally:
                process.terminate()
                process.communicate(timeout=60)


def turn(brokers: str, cluster: SparkCluster, folder: Path, keys: int) -> dict[str, float]:
    """One loss."""
    counted = Counted(brokers, cluster, folder)
    counted.begin(keys)
    with counted.running():
        counted.await_counts(keys, 0)
        began_s = time.monotonic()
        counted.probe()
        counted.await_counts(keys, 1)
        undisturbed_s = time.monotonic() - began_s
        lost = cluster.workers[0]
        began_s = time.monotonic()
        cluster.kill_machine(lost)
        shutil.rmtree(cluster.nodes[lost - 1].directory / "work", ignore_errors=True)
        cluster.ensure_running()
        counted.probe()
        counted.await_counts(keys, 2)
        return {
            "undisturbed_s": round(undisturbed_s, 2),
            "goes_on_s": round(time.monotonic() - began_s, 2),
        }


def run(sizes: list[int], times: int) -> dict[str, object]:
    """Losses by the number of keys, in turn."""
    found: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker = KafkaCluster(folder / "broker")
        cluster = SparkCluster(folder / "cluster", hidden=Hidden((folder / "turns",)))
        try:
            broker.start()
            cluster.start()
            for number in range(times):
                for size in sizes:
                    place = folder / "turns" / f"{size}-{number}"
                    found[size].append(turn(broker.bootstrap, cluster, place, size))
        finally:
            cluster.stop()
            broker.stop()
    return {
        str(size): {name: statistics.median(one[name] for one in turns) for name in turns[0]}
        | {"turns": turns}
        for size, turns in found.items()
    }


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description="From the loss of an executor to all outputs going on.")
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 200_000])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--discard", action="store_true", help="keep no result")
    given = parser.parse_args()
    head = surroundings()
    keep({**head, **run(given.keys, given.times)}, kind="executor-loss", is_discarded=given.discard)


if __name__ == "__main__":
    main()
