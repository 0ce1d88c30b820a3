"""Shares on a standalone cluster of Spark, whose machines come and go."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tests.fault.test_spark_shares import COUNTER, Running
from tests.unit.systems.test_local_commits import LocalJob

from grete.config.settings import Settings
from grete.container.control import Ended
from grete.spark.session.container_session import build_context
from grete.spark.stream_task import SparkEngine
from grete.testing.waiting import eventually, patient
from grete_workbench.spark_cluster import SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]
BEGIN_S = 20.0
"""Two Python workers start within it on a busy machine; five seconds were too few there."""


class Said(logging.Handler):
    """The container's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def work(master: str, home: Path, test: Connection) -> None:
    """A container's process: tells the test what it has reached, and goes on when it is told to."""
    said = Said()
    logging.getLogger("grete.container").addHandler(said)
    (home / "counting_shares.py").write_text(COUNTER)
    options = {
        "spark.executor.memory": "512m",
        "spark.decommission.enabled": "true",
        "spark.log.level": "ERROR",
    }
    context = build_context("shares", Settings.of({"spark.master": master, **options}))
    config = {"task.class": "counting_shares:Counter", "job.application.path": str(home)}
    with closing(LocalJob(home, config=config)) as job:

        def tell(what: str) -> None:
            test.send(what)
            test.recv()

        def begin(slots: int) -> Running:
            eventually(lambda: len(executors()) == slots, "executors")
            assert SparkEngine(context).slots_at_most == 2, "which Spark says at least, whatever it has"
            run = Running(job, context, 2, BEGIN_S)
            run.thread.start()
            return run

        def executors() -> list[str]:
            tracker = context._jsc.sc().statusTracker()
            return [one.host() for one in tracker.getExecutorInfos()][1:]

        def count(run: Running) -> None:
            job.fill(40)
            run.await_counted()

        first = begin(2)
        count(first)
        tell("two shares run")
        count(first)
        assert first.ended is None, "a decommissioned executor keeps its share"
        tell("they went on")
        eventually(lambda: first.ended is not None, "the epoch of two ends", within_s=150)
        assert first.ended is Ended.INTERRUPTED
        assert any(
            "only 1 of 2 shares run" in line and "executors were lost" in line for line in said.lines
        ), said
        assert SparkEngine(context).slots_at_most == 1
        second = Running(job, context, 1, BEGIN_S)
        second.thread.start()
        count(second)
        tell("one share runs")
        second.control.set()
        second.thread.join(patient(60))
        job.assert_exactly_once()
    context.stop()
    test.send("done")


@contextmanager
def started(cluster: SparkCluster) -> Iterator[SparkCluster]:
    """A cluster of this test's own, since it loses a machine."""
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.nightly  # seven JVMs; an executor that is lost with its disk is in test_isolated_executors.py
def test_a_machine_that_is_decommissioned_or_lost_costs_no_record_and_no_standstill(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with started(SparkCluster(tmp_path / "cluster")) as cluster:
        kept, lost = cluster.workers
        here, there = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        container = spawn.Process(target=work, args=(cluster.bootstrap, tmp_path / "home", there))
        container.start()
        there.close()
        try:
            assert here.recv() == "two shares run"
            eventually(lambda: cluster.executors(kept), "an executor")
            cluster.decommission_executors(kept)
            here.send("go on")
            assert here.recv() == "they went on"
            cluster.kill_machine(lost)
            here.send("go on")
            assert here.recv() == "one share runs"
            here.send("go on")
            assert here.recv() == "done"
            container.join(patient(60))  # its JVM ends with it
        finally:
            container.kill()
            container.join()
