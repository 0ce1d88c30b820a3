"""An executor that lacks something is named before the first batch, with its host and the way out."""

from __future__ import annotations

import multiprocessing
import socket
import sys
import venv
from collections.abc import Iterator
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
        context = build_context("look", config)
        try:
            settings = Settings.of(config)
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


def test_what_one_of_two_executors_lacks_is_named_with_its_place(
    harmed_cluster: SparkCluster, tmp_path: Path
) -> None:
    """No grete; no Python of the driver's; no environment of the application's; no way to the brokers; no folder for
    stores.
    """
    [closed] = free_ports(1)
    config = {
        "spark.master": harmed_cluster.bootstrap,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "OFF",
    }
    two = config | {"spark.cores.max": "2"}
    brokers = {
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.producer.bootstrap.servers": f"127.0.0.1:{closed}",
    }
    with looking() as container:

        def said(*asked: object) -> str:
            container.send(asked)
            assert container.poll(patient(100)), "no answer"
            answer: str = container.recv()
            return answer

        answer = said(two, str(tmp_path / "stores"))
        assert answer.startswith(f"ConfigError: executor on {socket.gethostname()} (")
        assert f"node{HARMED}/work" in answer
        assert f"has no grete in {sys.executable}: install it there" in answer
        assert f"node{WHOLE}/work" not in answer

        harmed_cluster.kill_machine(HARMED)
        harmed_cluster.hide(HARMED, Hidden((Path(sys.executable).parent,)))
        harmed_cluster.ensure_running()
        answer = said(two, str(tmp_path / "stores"))
        assert answer.startswith("ConfigError: executor ")
        assert "on 127.0.0.1 cannot run the driver's Python" in answer
        assert sys.executable in answer

        environment = tmp_path / "environment"
        venv.create(environment, with_pip=False)
        harmed_cluster.kill_machine(HARMED)
        harmed_cluster.hide(HARMED, Hidden((environment,)))
        harmed_cluster.ensure_running()
        own = {
            "job.split.deployment.enabled": "true",
            "job.application.environment": str(environment),
        }
        answer = said(two | own, str(tmp_path / "stores"))
        assert answer.startswith(f"ConfigError: executor on {socket.gethostname()} (")
        assert f"node{HARMED}/work" in answer
        assert f"cannot run the application: job.application.environment: there is no {environment}" in answer
        assert f"node{WHOLE}/work" not in answer

        harmed_cluster.kill_machine(HARMED)
        one = config | {"spark.cores.max": "1"}
        answer = said(one, "/proc/no-such-folder")
        assert "cannot keep stores" in answer
        assert f"node{WHOLE}/work" in answer
        answer = said(one | brokers, str(tmp_path / "stores"))
        assert answer.startswith("StreamUnreachable: executor on ")
        assert f"does not reach system 'kafka' at 127.0.0.1:{closed}" in answer
