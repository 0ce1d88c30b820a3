"""From the loss of an executor with its disk to all tasks' outputs going on, by how much their stores hold.

    python -m benchmarks.executor_loss [--keys 10000 200000] [--times 3] [--discard]

A StreamTask with a store, four tasks on two workers of one core each, which see nothing of each other's disk. When
every key is counted once, one worker, its executor and its Python are killed and its folder is gone; a new one starts
at once, as a cluster manager would do. Then a record for each of forty keys of all tasks is sent. `goes_on_s` is from
the kill until a reader of what is committed has them all, counted right; `undisturbed_s` is the same without a kill,
just before. Each key has all its counts once in the end, or there is no result.

Of `goes_on_s`, `worker_back_s` is until the new worker is known to the master, and `restoring_s` from the moment at
which the first of the lost stores was made again to that at which the last of their tasks was initialised, which is
done with a store that is whole. No log and no metric tells of it, so it is taken from the files on the new worker's
disk, whose rows are the `restored`, and from what tasks say of themselves.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.cluster_job import ClusterJob

from benchmarks.contestants import keep, surroundings, unwind_at_sigterm
from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.spark_cluster import Hidden, SparkCluster

PARTITIONS, PROBES, PAD = 4, 40, 200
_FILL = 50_000
"""Records that a producer has at once."""
_PATIENCE_S = 240.0
_STORE = "counts"
COUNTER = """
import time

import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
        self.initialised_s = time.time()

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or {"count": 0})["count"] + 1
        self.counts.put(envelope.key, {"count": count, "pad": "PAD"})
        said = {"count": count, "initialised_s": self.initialised_s}
        collector.send("kafka.OUTPUT", said, key=envelope.key)
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
        self.last_initialised_s = 0.0
        """When the youngest of the instances was initialised of which an output was seen, by the wall clock."""
        self._consumer = Consumer(
            {"bootstrap.servers": brokers, "group.id": self.job.name, "isolation.level": "read_committed"}
        )

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
            key, said = message.key() or b"", json.loads(message.value() or b"{}")
            if said["count"] != self._seen.get(key, 0) + 1:
                raise SystemExit(
                    f"{key!r} was counted {said['count']} after {self._seen.get(key, 0)}: lost or doubled"
                )
            self._seen[key] = said["count"]
            self.last_initialised_s = max(self.last_initialised_s, said["initialised_s"])

    def check(self, keys: int, probed: int) -> None:
        """Compare all that is committed with what was sent, once the job has ended."""
        counts = {key: [one["count"] for one in said] for key, said in self.job.outputs().items()}
        sent = {f"key{key}": 1 + probed * (key < PROBES) for key in range(keys)}
        wrong = {
            key: (counts.get(key), sent.get(key))
            for key in counts.keys() | sent.keys()
            if counts.get(key) != list(range(1, sent.get(key, 0) + 1))
        }
        if wrong:
            raise SystemExit(
                f"lost or doubled, by counts and records of {len(wrong)} keys: {dict(sorted(wrong.items())[:10])}"
            )

    @contextmanager
    def running(self) -> Iterator[None]:
        """The job at work, ended in order."""
        with closing(self._consumer), self.job.start() as process:
            try:
                yield
            finally:
                process.terminate()
                process.communicate(timeout=60)


def stores_made(cluster: SparkCluster, job: ClusterJob, since_s: float) -> dict[Path, float]:
    """The store files that workers have made since a moment, and when, by the wall clock."""
    pids = [cluster.nodes[worker - 1].running_pid() for worker in cluster.workers]
    roots = [Path(f"/proc/{pid}/root{job.home}") for pid in pids]  # as the worker sees its disk
    born = born_s([file for root in roots for file in root.rglob(f"{_STORE}.db")])
    return {file: at_s for file, at_s in born.items() if at_s > since_s}


def born_s(files: Sequence[Path]) -> dict[Path, float]:
    """When each file was made, by the wall clock, which Python does not tell."""
    said = subprocess.run(["stat", "-c", "%.6W", *files], capture_output=True, text=True, check=True)  # noqa: S607
    return dict(zip(files, map(float, said.stdout.split()), strict=True))


def rows_of(file: Path) -> int:
    """The keys in a store's file that nothing changes. SQLite would follow the way to it out of the worker's disk."""
    with tempfile.TemporaryDirectory() as folder:
        for end in ("", "-wal"):
            if (part := file.with_name(f"{file.name}{end}")).exists():
                shutil.copy(part, folder)
        with closing(sqlite3.connect(Path(folder, file.name))) as copy:
            return int(copy.execute("SELECT count(*) FROM kv").fetchone()[0])


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
        found = loss(counted, cluster, keys)
    counted.check(keys, 2)
    return {"undisturbed_s": round(undisturbed_s, 2), **found}


def loss(counted: Counted, cluster: SparkCluster, keys: int) -> dict[str, float]:
    """Kill a worker with its disk, and wait until all tasks have counted what is sent then."""
    lost = cluster.workers[0]
    began_s, killed_s = time.monotonic(), time.time()
    cluster.kill_machine(lost)
    shutil.rmtree(cluster.nodes[lost - 1].directory / "work", ignore_errors=True)
    cluster.ensure_running()
    back_s = time.monotonic() - began_s
    counted.probe()
    counted.await_counts(keys, 2)
    goes_on_s = time.monotonic() - began_s
    made = stores_made(cluster, counted.job, killed_s)
    restored = sum(map(rows_of, made))
    if not made or restored != len(made) * keys // PARTITIONS:
        raise SystemExit(
            f"{len(made)} stores of {keys // PARTITIONS} keys were lost, {restored} are restored"
        )
    return {
        "goes_on_s": round(goes_on_s, 2),
        "worker_back_s": round(back_s, 2),
        "restoring_s": round(counted.last_initialised_s - min(made.values()), 2),
        "restored": restored,
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
                    print(size, found[size][-1], file=sys.stderr, flush=True)
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
    unwind_at_sigterm()
    assert all(size >= PROBES and size % PARTITIONS == 0 for size in given.keys)
    head = surroundings()
    keep({**head, **run(given.keys, given.times)}, kind="executor-loss", is_discarded=given.discard)


if __name__ == "__main__":
    main()
