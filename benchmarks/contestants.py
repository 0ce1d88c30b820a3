"""grete and its peers on one local broker: how each is started, for the benchmarks that compare them.

Each does the same small work (`benchmarks.peers`) with its checkpoints on, from a topic of four partitions to a
topic of its own, on two cores that the broker shares. quix-streams and bytewax are installed into an environment of
their own, outside the tree; grete depends on neither.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import RESULTS

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "grete"
PACKAGES = ("quixstreams==3.28.1", "bytewax==0.21.1", "confluent-kafka", "orjson")
RUNNER_JARS = Path(os.environ.get("GRETE_RUNNER_JARS", CACHE / "samza-runner-1.8.0"))
STREAMS_JARS = Path(os.environ.get("GRETE_KAFKA_STREAMS_JARS", CACHE / "kafka-streams-4.3.1"))
CONNECTOR_JARS = Path(os.environ.get("GRETE_SPARK_KAFKA_JARS", CACHE / "spark-kafka-4.2.0"))
PARTITIONS = 4
KEYS = 10_000
BATCH = 100_000
"""Records of a micro-batch, of those that have batches."""
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

    @property
    def home(self) -> Path:
        """GRETE_HOME, if it is grete's turn."""
        return self.directory / "home"


Command = tuple[list[str], Mapping[str, str]]


def peers_python() -> str:
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
    return [peers_python(), str(HERE / "peers" / "quix_streams.py"), *race.arguments], {}


def _bytewax(race: Race) -> Command:
    recovery = race.directory / "recovery"
    recovery.mkdir()
    python = peers_python()
    subprocess.run([python, "-m", "bytewax.recovery", str(recovery), "2"], check=True)
    flow = str(HERE / "peers" / "bytewax_flow.py") + ":flow"
    words = [python, "-m", "bytewax.testing", flow, "-p", "2", "-r", str(recovery), "-s", "1", "-b", "0"]
    return words, {"BENCH_ARGUMENTS": " ".join(race.arguments[:4])}


def _spark(race: Race, program: str = "spark_by_hand") -> Command:
    jars = ",".join(str(path) for path in sorted(CONNECTOR_JARS.glob("*.jar")))
    words = [sys.executable, str(HERE / "peers" / f"{program}.py"), *race.arguments]
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


def _kafka_streams(race: Race, *settings: str) -> Command:
    """With its own settings but for these: exactly once, a commit every 100 ms."""
    java = shutil.which("java") or "java"
    path = f"{STREAMS_JARS}/classes:{STREAMS_JARS}/*"
    own = ("processing.guarantee=exactly_once_v2", *settings)
    return [java, *_JVM, "-cp", path, "grete.bench.Counter", *race.arguments, *own], {}


def _grete(race: Race) -> Command:
    config = {
        "task.inputs": f"kafka.{race.source}",
        "task.outputs": f"kafka.{race.target}",
        "job.default.system": "kafka",
        "job.coordinator.replication.factor": "1",
        "task.checkpoint.replication.factor": "1",
        "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
        "systems.kafka.producer.bootstrap.servers": race.bootstrap,
        "systems.kafka.default.stream.samza.offset.default": "oldest",
        "systems.kafka.default.stream.samza.key.serde": "string",
        "systems.kafka.default.stream.samza.msg.serde": "json",
        "bench.target": f"kafka.{race.target}",
    }
    if race.work == "count":
        config |= dict.fromkeys(
            ("stores.default.changelog.replication.factor", "stores.counts.changelog.replication.factor"), "1"
        )
    return grete_command(race, "kafka", config)


def configured(contestant: Callable[[Race], Command], settings: Mapping[str, str], race: Race) -> Command:
    """The command of a contestant of grete's, with more settings, which win."""
    command = contestant(race)
    with (race.directory / "job.properties").open("a") as config:
        config.writelines(f"{key}={value}\n" for key, value in settings.items())
    return command


def _pipeline(race: Race) -> Command:
    words, environment = _grete(race)
    path = race.directory / "job.properties"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("task.class=")]
    path.write_text("\n".join([*kept, "app.class=grete_pipeline:Pass"]) + "\n")
    return words, environment


def grete_command(race: Race, system: str, config: Mapping[str, str]) -> Command:
    """A job of grete that reads and writes streams of one system, which `config` describes."""
    config = {
        "job.name": race.target,
        "job.application.path": str(HERE / "peers"),
        "task.class": f"grete_task:{race.work.title()}",
        "task.max.records.per.batch": str(BATCH),
        "spark.master": "local[2]",
        **config,
    }
    if race.work == "count":
        config |= {
            "stores.counts.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
            "stores.counts.changelog": f"{system}.{race.target}-changelog",
            "stores.counts.key.serde": "string",
            "stores.counts.msg.serde": "integer",
        }
    path = race.directory / "job.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    words = [sys.executable, "-m", "grete.cli.main", "run", "--quiet", "--config", str(path)]
    return words, {"GRETE_HOME": str(race.home)}


CONTESTANTS: dict[str, Callable[[Race], Command]] = {
    "grete": _grete,
    "samza": _samza,
    "kafka streams": _kafka_streams,
    "spark by hand": _spark,
    "bytewax": _bytewax,
    "quix-streams": _quix,
}
VARIANTS: dict[str, Callable[[Race], Command]] = {
    "grete isolated": partial(configured, _grete, {"job.split.deployment.enabled": "true"}),
    "kafka streams 10 ms": lambda race: _kafka_streams(race, "commit.interval.ms=10", "producer.linger.ms=0"),
    "kafka streams at least once": lambda race: _kafka_streams(
        race, "processing.guarantee=at_least_once", "producer.linger.ms=0"
    ),
}
"""Of contestants; they run when they are named."""
PIPELINES: dict[str, Callable[[Race], Command]] = {
    "pipeline": _pipeline,
    "pipeline by hand": lambda race: _spark(race, "spark_pipeline"),
}
"""A frame of Spark's own operators, by grete and by hand; they only pass records through."""


def make_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """An empty topic, of as many partitions as every turn has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def send(bootstrap: str, topic: str, records: Iterable[tuple[str | bytes, bytes, int]]) -> None:
    """Send so many keys and values, each to its partition; -1 is that of the key, as Java's client has it."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "partitioner": "murmur2_random"}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    for number, (key, value, partition) in enumerate(records):
        producer.produce(topic, value, key, partition)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


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
        _end(process)


def unwind_at_sigterm() -> None:
    """Let SIGTERM end what this process has started, as Ctrl-C does: jobs and pods would outlive it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a contestant in order: containers of grete outlive a coordinator that is killed, and ran beside others.

    With a second SIGTERM a coordinator kills them.
    """
    for number, patience_s in ((signal.SIGTERM, 20), (signal.SIGTERM, 20), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return


def record(number: int) -> tuple[str, bytes]:
    """Key and value of an input, JSON of about 110 bytes; keys come in turn, so that all are counted as often."""
    key = f"user-{number % KEYS}"
    return key, orjson.dumps({"key": key, "n": number, "page": "/a/page/of/a/site" * 3})


def reader(race: Race, **settings: object) -> Consumer:
    """A consumer of what a contestant has committed, from the first record on."""
    consumer = Consumer(
        {
            "bootstrap.servers": race.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.assign([TopicPartition(race.target, number, 0) for number in range(PARTITIONS)])
    return consumer


def surroundings() -> dict[str, object]:
    """When and on what a run takes place, for the head of its result."""
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_at_start": os.getloadavg(),
        "keys": KEYS,
        "partitions": PARTITIONS,
        "peers": PACKAGES[:2],
    }


def keep(figures: Mapping[str, object], *, kind: str, is_discarded: bool) -> None:
    """Print a result, and keep it among the others."""
    text = json.dumps(figures, indent=2)
    print(text)
    if not is_discarded:
        (RESULTS / f"{kind}-{str(figures['when']).replace(':', '')}.json").write_text(text + "\n")
