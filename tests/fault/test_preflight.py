"""An executor that lacks something is named before the first batch, with its host and the way out."""

from __future__ import annotations

import multiprocessing
import socket
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from grete.config.settings import Settings
from grete.errors import GreteError
from grete.spark.executors.preflight import check_executors
from grete.spark.executors.shipping import ship
from grete.spark.session.container_session import build_context
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import patient
from grete_workbench.spark_cluster import Hidden, SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(360)]
WHOLE, HARMED = 2, 3
"""The numbers of the workers."""


def look(test: Connection) -> None:
    """A container's process: for each configuration that comes, an application of Spark that
    looks at its executors.
    """
    while (asked := test.recv()) is not None:
        config, stores = asked
        settings = Settings.of(config)
        context = build_context("look", settings)
        try:
            shipped = ship(context, settings, Path(stores).parent / "shipped")
            check_executors(context, settings, Path(stores), shipped)
            test.send("nothing is wrong")
        except GreteError as error:
            test.send(f"{type(error).__name__}: {error}")
        finally:
            context.stop()


@contextmanager
def looking() -> Iterator[Connection]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=look, args=(there,))
    process.start()
    try:
        yield here
        here.send(None)
        process.join(patient(60))
    finally:
        process.kill()
        process.join()


@pytest.fixture
def harmed_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """Two workers, one of which has no grete."""
    places = [Path(place or ".").resolve() / "grete" for place in sys.path]
    hidden = {HARMED: Hidden([place for place in places if (place / "__init__.py").exists()])}
    assert hidden[HARMED].folders
    cluster = SparkCluster(tmp_path / "cluster", nodes=3, hidden_of=hidden)
    cluster.start()
    yield cluster
    cluster.stop()


class Looks:
    """What a container says of the executors that it has, once for each configuration."""

    def __init__(self, cluster: SparkCluster, container: Connection, folder: Path) -> None:
        self.cluster = cluster
        self._container = container
        self._stores = str(folder / "stores")

    def said(self, cores: int, settings: Mapping[str, str] | None = None, stores: str = "") -> str:
        config = {
            "spark.master": self.cluster.bootstrap,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.log.level": "OFF",
            "spark.cores.max": str(cores),
        }
        self._container.send((config | dict(settings or {}), stores or self._stores))
        assert self._container.poll(patient(100)), "no answer"
        answer: str = self._container.recv()
        return answer

    def hide(self, *folders: Path) -> None:
        """Start the harmed worker anew without these."""
        self.cluster.kill_machine(HARMED)
        self.cluster.hide(HARMED, Hidden(folders))
        self.cluster.ensure_running()


@pytest.fixture
def looks(harmed_cluster: SparkCluster, tmp_path: Path) -> Iterator[Looks]:
    with looking() as container:
        yield Looks(harmed_cluster, container, tmp_path)


@pytest.mark.nightly  # a cluster of its own, 50 s of a processor; the looks themselves are tried in tests/unit/spark
def test_what_one_of_two_executors_lacks_is_named_with_its_place(looks: Looks) -> None:
    """No grete; no folder for stores; no way to the brokers."""
    [closed] = free_ports(1)
    answer = looks.said(2)
    assert answer.startswith(f"ConfigError: executor on {socket.gethostname()} (")
    assert f"node{HARMED}/work" in answer
    assert f"has no grete in {sys.executable}: install it there" in answer
    assert f"node{WHOLE}/work" not in answer

    looks.cluster.kill_machine(HARMED)
    answer = looks.said(1, stores="/proc/no-such-folder")
    assert "cannot keep stores" in answer
    assert f"node{WHOLE}/work" in answer
    brokers = {
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.producer.bootstrap.servers": f"127.0.0.1:{closed}",
    }
    answer = looks.said(1, brokers)
    assert answer.startswith("StreamUnreachable: executor on ")
    assert f"does not reach system 'kafka' at 127.0.0.1:{closed}" in answer


@pytest.mark.nightly  # a worker of the cluster is started for each
def test_an_executor_without_the_drivers_python_or_the_applications_environment_is_named(
    looks: Looks, tmp_path: Path
) -> None:
    looks.hide(Path(sys.executable).parent)
    answer = looks.said(2)
    assert answer.startswith("ConfigError: executor ")
    assert "on 127.0.0.1 cannot run the driver's Python" in answer
    assert sys.executable in answer

    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    looks.hide(environment)
    own = {"job.split.deployment.enabled": "true", "job.application.environment": str(environment)}
    answer = looks.said(2, own)
    assert answer.startswith(f"ConfigError: executor on {socket.gethostname()} (")
    assert f"node{HARMED}/work" in answer
    assert f"cannot run the application: job.application.environment: there is no {environment}" in answer
    assert f"node{WHOLE}/work" not in answer
