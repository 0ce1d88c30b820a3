"""Fixtures that several kinds of test share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from hypothesis import HealthCheck, settings
from tests.harness.plugin import (
    pytest_collection_modifyitems,
    pytest_itemcollected,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_timeout_set_timer,
    pytest_xdist_make_scheduler,
)
from tests.harness.servers import shared
from tests.support.certificates import make_authority
from tests.support.postgresql import PostgreSql
from tests.support.secure_kafka import BrokerLogin, SecureCluster
from tests.support.tcp_proxy import TcpProxy

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import StreamNotFound
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient, reaches
from grete_workbench.azurite import Azurite
from grete_workbench.kube_apiserver import KubeApiServer
from grete_workbench.spark_cluster import Hidden, SparkCluster
from grete_workbench.yarn import YarnCluster
from grete_workbench.zookeeper_server import ZooKeeperCluster

__all__ = [  # pytest's hooks, which it finds here
    "pytest_collection_modifyitems",
    "pytest_itemcollected",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_timeout_set_timer",
    "pytest_xdist_make_scheduler",
]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from grete.testing.pipeline_fixtures import StartPipeline

os.environ.pop("GRETE_FAILPOINT", None)
# how long an example takes says how busy the machine is: other tests run beside this one
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
SPARK_ARCHIVE = Path(sys.prefix) / "spark.jsa"
"""Of `grete.spark.class_archive`. Java does without where it does not fit."""
if SPARK_ARCHIVE.exists():
    os.environ.setdefault(
        "SPARK_SUBMIT_OPTS",
        f"-XX:SharedArchiveFile={SPARK_ARCHIVE} -Xshare:auto -Xlog:disable -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GRETE_HOME of its own."""
    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def system(tmp_path: Path) -> Iterator[LocalSystem]:
    """An empty embedded system in `tmp_path/local`."""
    local = LocalSystem(tmp_path / "local", SystemClock())
    yield local
    local.close()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One Kafka broker for the whole run, started by the first test that needs it. No test harms it."""
    with shared("kafka", KafkaCluster, lambda: tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiServer]:
    """One API server for the whole run, started by the first test that needs it. A test that harms it mends it."""
    with shared("kubernetes", KubeApiServer, lambda: tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture
def kubernetes_proxy(kubernetes: KubeApiServer) -> Iterator[TcpProxy]:
    """Between the API server and clients whose kubeconfig names its `proxied_port`."""
    [node] = kubernetes.nodes
    with TcpProxy(node.proxied_port, node.port) as opened:
        yield opened


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Azure Storage for the whole run; the tests of one worker alone move its clock."""
    with shared("azurite", Azurite, lambda: tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def proxy(kafka: KafkaCluster) -> Iterator[TcpProxy]:
    """Between the broker and clients that begin at its `proxied_port`, of which it has one."""
    node = kafka.nodes[0]
    with TcpProxy(node.proxied_port, node.listener_port) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session in this process for all tests that look into Spark, with its connector to Kafka.

    Its JVM takes in jars at its start only, so a second session could not have what the first one lacked.
    """
    from grete.spark.session.container_session import build_session  # most tests do without pyspark

    settings = {
        "spark.master": "local[2,3]",  # tasks are tried again, as on a cluster
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        # After two minutes without a core Spark takes its local executor for lost, and ends with code 56 after 60
        # heartbeats that nobody answers.
        "spark.executor.heartbeat.maxFailures": "100000",
        "spark.network.timeout": "3600s",
        "outputs.table.format": "delta",  # outputs that bring jars along
        "outputs.rows.format": "jdbc",
        "outputs.rows.url": "jdbc:postgresql:",
    }
    session = build_session("tests", Settings.of(settings), kafka_system="kafka")
    ends: list[str] = []
    jvm = session.sparkContext._gateway.proc
    watch = threading.Thread(
        target=lambda: ends.append(f"code {jvm.wait()} in {_test_at_work()}"), daemon=True
    )
    watch.start()
    yield session
    assert not ends, f"the JVM of the shared session ended with {ends[0]}"
    session.stop()


@pytest.fixture
def start_pipeline(spark: SparkSession, tmp_path: Path) -> Iterator[StartPipeline]:
    """As users have it, over the session of this process: whoever is first must not start a JVM without its jars."""
    from grete.testing.pipeline import PipelineUnderTest
    from grete.testing.pytest_fixtures import started

    yield from started(partial(PipelineUnderTest, spark=spark), "pipeline", tmp_path)


def _test_at_work() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "no test")


@pytest.fixture(scope="session")
def isolated_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Spark's standalone cluster for the whole run: two workers, to which the folders of all tests are empty.

    They share one folder with everybody, `shared` in the cluster's. A test that harms the cluster mends it.
    """
    own = tmp_path_factory.getbasetemp()
    tests = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def make(directory: Path, **how: bool) -> SparkCluster:
        return SparkCluster(directory, hidden=Hidden((tests,), (directory / "shared",)), **how)

    with shared("isolated_cluster", make, lambda: tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    """A database server of this process."""
    server = PostgreSql()
    yield server
    server.close()


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """One broker that asks who comes, for the whole run, started by the first test that asks for it.

    `ann` gets in by PLAIN and `bob` by SCRAM; `cyd` has what a test grants; the last is as on Event Hubs, without
    transactions.
    """
    with shared("secure_kafka", _asking_broker, lambda: tmp_path_factory.mktemp("secure")) as cluster:
        allow_records(cluster, "$ConnectionString")
        yield cluster


def _asking_broker(directory: Path, **how: bool) -> SecureCluster:
    hub = "Endpoint=sb://flights.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey=aGlkZGVuIGluIHNpZ2h0"
    login = BrokerLogin(
        make_authority(directory / "authority"),
        users={"ann": "wonderland-4f1c; mad\\hatter", "cyd": "of-few-rights", "$ConnectionString": hub},
        scram_users={"bob": "the-builder"},
        transactional_users=("ann", "bob"),
    )
    return SecureCluster(directory / "broker", login, **how)


def allow_records(cluster: KafkaCluster, user: str) -> None:
    """Let a user read and write topics, also in groups, and nothing else: he has no transactional ids."""
    allowed = [
        AclBinding(
            kind,
            "*",
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_acls(allowed).values():
        made.result(30)


@pytest.fixture(scope="session")
def harmed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker for all tests that harm one."""
    with shared("harmed_broker", KafkaCluster, lambda: tmp_path_factory.mktemp("harmed")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def harmed_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three nodes for all tests that harm them."""
    make = partial(KafkaCluster, nodes=3)
    with shared("harmed_nodes", make, lambda: tmp_path_factory.mktemp("three")) as cluster:
        yield cluster


@pytest.fixture
def cluster(harmed_broker: KafkaCluster) -> Iterator[KafkaCluster]:
    """One broker, which is there again after whatever a test does to it."""
    yield harmed_broker
    harmed_broker.ensure_running()


@pytest.fixture
def three(harmed_nodes: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three nodes, all of which are there again after whatever a test does to them."""
    yield harmed_nodes
    harmed_nodes.ensure_running()


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """A ResourceManager and a NodeManager for the whole run, started by the first test that needs them."""
    with shared("yarn", YarnCluster, lambda: tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperCluster]:
    """One ZooKeeper server for the whole run. No test harms it."""
    with shared("zookeeper", ZooKeeperCluster, lambda: tmp_path_factory.mktemp("zookeeper")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def harmed_zookeepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperCluster]:
    """An ensemble of three for all tests that harm one."""
    make = partial(ZooKeeperCluster, nodes=3)
    with shared("harmed_zookeepers", make, lambda: tmp_path_factory.mktemp("zookeepers")) as cluster:
        yield cluster


@pytest.fixture
def zookeepers(harmed_zookeepers: ZooKeeperCluster) -> Iterator[ZooKeeperCluster]:
    """An ensemble of three, all of which are there again after whatever a test does to them."""
    yield harmed_zookeepers
    harmed_zookeepers.ensure_running()


COUNTER = '''
import logging

import grete

class Counter(grete.StreamTask):
    """Counts each key; every output says which count it is, so loss and duplication show."""

    def init(self, context):
        self.counts = context.store("counts")
        logging.getLogger("counter").info("counting in %s", context.task_name)

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", {"count": count}, key=envelope.key)
'''
COUNTER_PROPERTIES = """
job.name=counter
job.application.path=.
task.class=counter:Counter
task.inputs=local.in
task.outputs=local.out
task.max.records.per.batch=1000
cluster-manager.container.retry.longest-pause.ms=100
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.factory=grete.store.sqlite
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
KEYS = 50


COUNTING_PIPELINE = '''
import pathlib

import grete

class Counting(grete.DataFramePipeline):
    """Counts each key in Spark's state; every batch sends the counts that changed."""

    output = "local.out"
    output_mode = "update"

    def build(self, inputs):
        assert pathlib.Path("counter.py").is_file(), "containers work in the application's folder"
        [frame] = inputs.values()
        assert frame.sparkSession.read.text("counter.py").columns == ["value"], "and so does Spark"
        return frame.groupBy(frame["key"].cast("string").alias("key")).count()
'''


@dataclass
class CounterJob:
    """A job that counts the keys of `local.in`, run by the real command line in a home of its own."""

    home: Path
    config: Path

    def configure(self, settings: Mapping[str, str]) -> None:
        """Add settings to the configuration."""
        with self.config.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())

    def fill(self, records: int) -> None:
        """Append records; the keys take turns."""
        with closing(LocalSystem(self.home / "local", SystemClock())) as local:
            local.ensure_stream(StreamSpec("in", 2))
            local.append("in", (Message(b"key%d" % (i % KEYS), b"{}", 1_000 + i) for i in range(records)))

    def run(
        self, *arguments: str, spark: bool = True, within_s: float = 900, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """`grete run --until-drained` in the foreground; not `spark` where that is not the subject, in 2 s."""
        drained = "--until-drained"
        command = self.command("run", drained, "--quiet") if spark else self.without_spark(drained)
        return subprocess.run(
            [*command, *arguments],
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=patient(within_s),
        )

    def run_through(self, kills: Sequence[tuple[str, int]], died: Path, *, spark: bool = True) -> None:
        """Run to the end while the container dies at the nth pass of each point, each of them once.

        `died` is where those that were reached leave their mark; one that was not fails the test.
        """
        died.mkdir()
        settings = {
            "GRETE_FAILPOINT": ",".join(f"{point}:kill:{nth}" for point, nth in kills),
            "GRETE_FAILPOINT_ONCE": str(died),
            "GRETE_FAILPOINT_CONTAINER": "0",
        }
        result = self.run(spark=spark, within_s=300 + 60 * len(kills), **settings)  # 12 s each on two cores
        assert result.returncode == 0, result.stderr + self.log()
        reached = {path.name for path in died.iterdir()}
        missed = [kill for place, kill in enumerate(kills) if f"{place}-{kill[0]}" not in reached]
        assert not missed, f"never reached, so this shows nothing about them: {missed}"

    def command(self, *words: str) -> list[str]:
        """A grete command that names this job's configuration."""
        return [sys.executable, "-m", "grete.cli.main", *words, "--config", str(self.config)]

    def without_spark(self, *words: str) -> list[str]:
        """The command that runs this job without Spark."""
        return [sys.executable, "-m", "grete.testing.sparkless", *words, "--config", str(self.config)]

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a grete process in this home."""
        return {**os.environ, "GRETE_HOME": str(self.home), **more}

    def log(self) -> str:
        """The container's log."""
        [log] = self.home.glob("jobs/*/logs/container-0.log")
        return log.read_text()

    def report(self) -> str:
        """For a test that fails: what the job says of itself, and the end of each container's log."""
        report = []
        for words in (["status"], ["history"], ["container", "list"]):
            command = [*self.command(*words)[:-2], "--job", "counter", "-o", "json"]
            done = subprocess.run(
                command, env=self.environment(), capture_output=True, text=True, timeout=patient(60)
            )
            report.append(f"--- {' '.join(words)}\n{done.stdout}{done.stderr}")
        for log in sorted(self.home.glob("jobs/counter-1/logs/*.log")):
            last = log.read_text(errors="replace").splitlines()[-60:]
            report.append("\n".join([f"--- the end of {log.name}", *last]))
        return "\n".join(report)

    def counted(self) -> int:
        """How many counts were sent; 0 as well when the streams do not exist yet."""
        try:
            return sum(map(len, self.counts().values()))
        except StreamNotFound:
            return 0

    def wait_until_counted(self, records: int) -> None:
        """As long as it takes, if only the number grows."""
        reaches(self.counted, records, "the number of counts", still_s=90, context=self.report)

    def counts(self) -> dict[str, list[int]]:
        """Every count that was sent, by key, in stream order."""
        found: dict[str, list[int]] = {}
        with closing(LocalSystem(self.home / "local", SystemClock())) as local:
            for partition in range(local.partition_count("out")):
                for _, batch in local.read("out", partition, 0):
                    for key, value in zip(
                        batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True
                    ):
                        found.setdefault(key.decode(), []).append(json.loads(value)["count"])
        return found

    def assert_exactly_once(self, records: int) -> None:
        """Every record was counted once, in order."""
        expected = {f"key{key}": list(range(1, len(range(key, records, KEYS)) + 1)) for key in range(KEYS)}
        assert self.counts() == expected


@pytest.fixture
def counter_job(tmp_path: Path) -> CounterJob:
    """The counting job, not yet filled."""
    return make_job(tmp_path, COUNTER, COUNTER_PROPERTIES)


@pytest.fixture
def counting_pipelines(tmp_path: Path) -> tuple[CounterJob, CounterJob]:
    """Two homes with the same counting pipeline, not yet filled: one to be killed, one to compare it with."""
    properties = COUNTER_PROPERTIES.replace("task.class=counter:Counter", "app.class=counter:Counting")
    properties = properties.replace("stores.counts.factory=grete.store.sqlite\n", "")
    one, other = (make_job(tmp_path / name, COUNTING_PIPELINE, properties) for name in ("killed", "unharmed"))
    return one, other


@pytest.fixture
def counter_application() -> str:
    """The counting application, for jobs with another configuration."""
    return COUNTER


@pytest.fixture
def job_maker() -> Callable[[Path, str, str], CounterJob]:
    """For jobs of a test's own."""
    return make_job


def make_job(directory: Path, application_text: str, properties: str) -> CounterJob:
    """A home in `directory`, and the application and its configuration beside it."""
    application = directory / "application"
    application.mkdir(parents=True)
    (application / "counter.py").write_text(application_text)
    config = application / "counter.properties"
    config.write_text(properties)
    return CounterJob(directory / "home", config)
