"""`make bench-kafka BENCH=kafka_peers`: the same work by grete and its peers on one topic of one local broker.

JSON in, a counter for each key, JSON out (`count`), and JSON in, JSON out (`pass`), on two cores that the broker
shares. Every contestant runs with its checkpoints on, reads the same topic of four partitions and writes a topic
of its own; they take turns, so that what else the machine does hits all of them. Measured is the rate between the
output of the first records and the last, so that starting a JVM or a Spark session is not measured. In the
end every output is read and compared: a contestant that lost or doubled a record is shown as wrong.

quix-streams and bytewax are installed into an environment of their own, outside the tree; grete depends on neither.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.run import RESULTS
from grete.testing.kafka_broker import KafkaCluster

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "grete"
PACKAGES = ("quixstreams==3.28.1", "bytewax==0.21.1", "confluent-kafka", "orjson")
RUNNER_JARS = Path(os.environ.get("GRETE_RUNNER_JARS", CACHE / "samza-runner-1.8.0"))
CONNECTOR_JARS = Path(os.environ.get("GRETE_SPARK_KAFKA_JARS", CACHE / "spark-kafka-4.2.0"))
PARTITIONS = 4
KEYS = 10_000
BATCH = 100_000
"""Records of a micro-batch, of those that have batches."""
WARM_UP = 100_000
_PATIENCE_S = 300.0
_NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._TIMED_OUT,
)
_JVM = ("-Xmx1g", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")


@dataclass(frozen=True, slots=True)
class Race:
    """One contestant's turn."""

    bootstrap: str
    source: str
    target: str
    work: str
    directory: Path

    @property
    def arguments(self) -> list[str]:
        return [self.bootstrap, self.source, self.target, self.work, str(self.directory)]


Command = tuple[list[str], Mapping[str, str]]


def _peers_python() -> str:
    """The interpreter of the environment that has the peers; made when it is not there."""
    home = CACHE / "bench-peers"
    mark = home / "complete"
    if not mark.exists() or mark.read_text() != " ".join(PACKAGES):
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", *PACKAGES], check=True)
        mark.write_text(" ".join(PACKAGES))
    return str(home / "bin" / "python")


def _quix(race: Race) -> Command:
    return [_peers_python(), str(HERE / "peers" / "quix_streams.py"), *race.arguments], {}


def _bytewax(race: Race) -> Command:
    recovery = race.directory / "recovery"
    recovery.mkdir()
    python = _peers_python()
    subprocess.run([python, "-m", "bytewax.recovery", str(recovery), "2"], check=True)
    flow = str(HERE / "peers" / "bytewax_flow.py") + ":flow"
    words = [python, "-m", "bytewax.testing", flow, "-p", "2", "-r", str(recovery), "-s", "1", "-b", "0"]
    return words, {"BENCH_ARGUMENTS": " ".join(race.arguments[:4])}


def _spark(race: Race) -> Command:
    jars = ",".join(str(path) for path in sorted(CONNECTOR_JARS.glob("*.jar")))
    words = [sys.executable, str(HERE / "peers" / "spark_by_hand.py"), *race.arguments]
    return words, {"BENCH_SPARK_JARS": jars, "BENCH_BATCH": str(BATCH), "SPARK_LOCAL_IP": "127.0.0.1"}


def _samza(race: Race) -> Command:
    config = {
        "app.name": race.target,
        "app.id": "1",
        "app.runner.class": "org.apache.samza.runtime.LocalApplicationRunner",
        "processor.id": "0",
        "job.default.system": "kafka",
        "job.coordinator.factory": "org.apache.samza.standalone.PassthroughJobCoordinatorFactory",
        "job.coordinationUtils.factory": "org.apache.samza.standalone.PassthroughCoordinationUtilsFactory",
        "task.name.grouper.factory": "org.apache.samza.container.grouper.task.SingleContainerGrouperFactory",
        "job.container.thread.pool.size": "2",
        "job.coordinator.replication.factor": "1",
        "task.checkpoint.factory": "org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory",
        "task.checkpoint.replication.factor": "1",
        "task.commit.ms": "1000",
        "job.logged.store.base.dir": str(race.directory),
        "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
        "systems.kafka.consumer.bootstrap.servers": race.bootstrap,
        "systems.kafka.producer.bootstrap.servers": race.bootstrap,
        "systems.kafka.default.stream.samza.offset.default": "oldest",
        "bench.source": race.source,
        "bench.target": race.target,
        "bench.work": race.work,
    }
    if race.work == "count":
        config |= {
            "stores.counts.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
            "stores.counts.changelog": f"kafka.{race.target}-changelog",
            "stores.default.changelog.replication.factor": "1",
            "stores.counts.key.serde": "string",
            "stores.counts.msg.serde": "integer",
            "serializers.registry.string.class": "org.apache.samza.serializers.StringSerdeFactory",
            "serializers.registry.integer.class": "org.apache.samza.serializers.IntegerSerdeFactory",
        }
    path = race.directory / "job.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    java = shutil.which("java") or "java"
    return [
        java,
        *_JVM,
        "-cp",
        f"{RUNNER_JARS}/classes:{RUNNER_JARS}/*",
        "grete.interop.Counter",
        str(path),
    ], {}


def _grete(race: Race) -> Command:
    config = {
        "job.name": race.target,
        "job.application.path": str(HERE / "peers"),
        "task.class": f"grete_task:{race.work.title()}",
        "task.inputs": f"kafka.{race.source}",
        "task.outputs": f"kafka.{race.target}",
        "task.max.records.per.batch": str(BATCH),
        "job.default.system": "kafka",
        "job.coordinator.replication.factor": "1",
        "task.checkpoint.replication.factor": "1",
        "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
        "systems.kafka.producer.bootstrap.servers": race.bootstrap,
        "systems.kafka.default.stream.samza.offset.default": "oldest",
        "systems.kafka.default.stream.samza.key.serde": "string",
        "systems.kafka.default.stream.samza.msg.serde": "json",
        "bench.target": f"kafka.{race.target}",
        "spark.master": "local[2]",
    }
    if race.work == "count":
        config |= {
            "stores.counts.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
            "stores.counts.changelog": f"kafka.{race.target}-changelog",
            "stores.default.changelog.replication.factor": "1",
            "stores.counts.changelog.replication.factor": "1",
            "stores.counts.key.serde": "string",
            "stores.counts.msg.serde": "integer",
        }
    path = race.directory / "job.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    words = [sys.executable, "-m", "grete.cli.main", "run", "--quiet", "--config", str(path)]
    return words, {"GRETE_HOME": str(race.directory / "home")}


CONTESTANTS: dict[str, Callable[[Race], Command]] = {
    "grete": _grete,
    "samza": _samza,
    "spark by hand": _spark,
    "bytewax": _bytewax,
    "quix-streams": _quix,
}


def fill(bootstrap: str, topic: str, records: int) -> None:
    """The input: JSON of about 110 bytes, keys in turn, so that each has the same count in the end."""
    _make(bootstrap, topic)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "partitioner": "murmur2_random"}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        key = f"user-{number % KEYS}"
        producer.produce(topic, orjson.dumps({"key": key, "n": number, "page": "/a/page/of/a/site" * 3}), key)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def _make(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


class Watched:
    """How many records are in a topic, markers of transactions included, of which there are few."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def count(self) -> int:
        """Zero while a topic that was just made has no leaders yet."""
        asked = dict.fromkeys(self._partitions, OffsetSpec.latest())
        found = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        try:
            return sum(future.result(30).offset for future in found.values())
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET:
                raise
            return 0


@contextmanager
def running(command: Command, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    words, environment = command
    with log.open("wb") as file:
        process = subprocess.Popen(
            words,
            env={**os.environ, **environment},
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def measure(contestant: str, race: Race, records: int) -> dict[str, object]:
    """One turn: records/s after the warm-up, and whether every record came out once."""
    _make(race.bootstrap, race.target)
    watched, log = Watched(race.bootstrap, race.target), race.directory / "log"
    began = time.monotonic()
    with running(CONTESTANTS[contestant](race), log) as process:
        first_s, first = _until(watched, WARM_UP, process, log)
        last_s, last = _until(watched, records, process, log)
        problem = _wrong(race, records)
    result: dict[str, object] = {
        "records_per_s": round((last - first) / (last_s - first_s)),
        "measured_records": last - first,
        "seconds_to_warm": round(first_s - began, 1),
    }
    return {**result, "wrong": problem} if problem else result


def _until(watched: Watched, wanted: int, process: subprocess.Popen[bytes], log: Path) -> tuple[float, int]:
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        count, now_s = watched.count(), time.monotonic()
        if count >= wanted:
            return now_s, count
        if process.poll() is not None or now_s > deadline_s:
            raise SystemExit(f"{count} of {wanted} records, then: {log.read_text(errors='replace')[-3_000:]}")
        time.sleep(0.05)


def _wrong(race: Race, records: int) -> str:
    """Faults of the output, empty when there are none."""
    seen: dict[str, list[int]] = {}
    for value in _read(race, records):
        seen.setdefault(value["key"], []).append(value["count"])
    total = sum(map(len, seen.values()))
    if total != records:
        return f"{total} outputs of {records} records"
    per_key = records // KEYS
    expected = {"count": lambda: list(range(1, per_key + 1)), "pass": lambda: None}[race.work]()
    bad = sum(sorted(counts) != expected for counts in seen.values()) if expected else 0
    return f"{bad} of {len(seen)} keys have wrong counts" if bad else ""


def _read(race: Race, records: int) -> Iterator[dict[str, object]]:
    consumer = Consumer(
        {
            "bootstrap.servers": race.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(race.target, number, 0) for number in range(PARTITIONS)])
    found, quiet_s = 0, time.monotonic()
    while found <= records and time.monotonic() - quiet_s < 5:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                found, quiet_s = found + 1, time.monotonic()
                yield orjson.loads(message.value())
    consumer.close()


def run(names: Sequence[str], works: Sequence[str], records: int, rounds: int) -> dict[str, object]:
    """Every contestant once a round, in turn."""
    found: dict[str, dict[str, list[dict[str, object]]]] = {
        work: {name: [] for name in names} for work in works
    }
    with tempfile.TemporaryDirectory() as directory:
        cluster = KafkaCluster(Path(directory) / "broker")
        cluster.start()
        try:
            fill(cluster.bootstrap, "in", records)
            for number in range(rounds):
                for work in works:
                    for name in names:
                        turn = f"{name.replace(' ', '-')}-{work}-{number}"
                        race = Race(cluster.bootstrap, "in", turn, work, Path(directory) / turn)
                        race.directory.mkdir()
                        found[work][name].append(measure(name, race, records))
                        print(turn, found[work][name][-1], file=sys.stderr, flush=True)
        finally:
            cluster.stop()
    medians = {
        work: {
            name: statistics.median(int(str(turn["records_per_s"])) for turn in turns)
            for name, turns in by_name.items()
        }
        for work, by_name in found.items()
    }
    return {"median_records_per_s": medians, "turns": found}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_peers")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--work", nargs="+", choices=("count", "pass"), default=["count", "pass"])
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    given = parser.parse_args()
    assert given.records % KEYS == 0
    assert given.records > WARM_UP
    figures = {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_at_start": os.getloadavg(),
        "records": given.records,
        "keys": KEYS,
        "partitions": PARTITIONS,
        "peers": PACKAGES[:2],
        **run(given.only, given.work, given.records, given.rounds),
    }
    text = json.dumps(figures, indent=2)
    print(text)
    if not given.discard:
        name = f"kafka-peers-{str(figures['when']).replace(':', '')}.json"
        (RESULTS / name).write_text(text + "\n")


if __name__ == "__main__":
    main()
