"""Fixtures that several kinds of test share."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
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
from tests.support.counter_job import COUNTER, COUNTER_PROPERTIES, COUNTING_PIPELINE, CounterJob, make_job
from tests.support.postgresql import PostgreSql
from tests.support.secure_kafka import BrokerLogin, SecureCluster
from tests.support.tcp_proxy import TcpProxy

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.systems.local.system import LocalSystem
from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.azurite import Azurite
from grete_workbench.hdfs import HdfsCluster
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


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """A NameNode and a DataNode for a file of tests, which may kill them."""
    cluster = HdfsCluster(tmp_path_factory.mktemp("hdfs"))
    cluster.start()
    yield cluster
    cluster.stop()


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
        # the 48 MB that a JVM has by default for compiled code are full after some tests, and swept from there on
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
        "spark.sql.shuffle.partitions": "2",
        # After two minutes without a core Spark takes its local executor for lost, and ends with code 56 after 60
        # heartbeats that nobody answers.
        "spark.executor.heartbeat.maxFailures": "100000",
        "spark.network.timeout": "3600s",
        "outputs.table.format": "delta",  # outputs that bring jars along
        "outputs.rows.format": "jdbc",
        "outputs.rows.url": "jdbc:postgresql:",
    }
    if "GRETE_NIGHTLY" not in os.environ:
        # a quarter of what its JVM computes is code for a few rows each; jobs of their own have it in every run
        settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
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
