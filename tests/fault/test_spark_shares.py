"""Shares as tasks of Spark that lose their container, or find no core: the epoch goes on, or the next one does."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tests.unit.systems.test_local_commits import LocalJob

from grete.container.control import Control, Ended
from grete.container.process_state import ProcessState
from grete.container.share_server import ShareServer
from grete.spark.stream_task import SparkEngine
from grete.testing.waiting import eventually, patient, reaches
from grete.wire.container_protocol import Command, Directive

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(180)]
NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
COUNTER = """
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", {"count": count}, key=envelope.key)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[LocalJob]:
    (tmp_path / "counting_shares.py").write_text(COUNTER)
    config = {"task.class": "counting_shares:Counter", "job.application.path": str(tmp_path)}
    with closing(LocalJob(tmp_path, partitions=4, config=config)) as made:
        yield made


@contextmanager
def running(job: LocalJob, spark: SparkSession, *, slots: int, begin_s: float = 60.0) -> Iterator[Running]:
    """An epoch of the job's only container, in this process."""
    run = Running(job, spark.sparkContext, slots, begin_s)
    run.thread.start()
    try:
        yield run
    finally:
        run.control.set()
        run.thread.join(patient(60))


class Running:
    """`ended` when it has."""

    def __init__(self, job: LocalJob, context: SparkContext, slots: int, begin_s: float) -> None:
        self._job = job
        self.control = threading.Event()
        self.ended: Ended | None = None
        self._container = job.container(1, slots_at_most=slots)
        self.epoch = self._container.epoch
        self._engine = SparkEngine(context, begin_s=begin_s)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with closing(self._container):
            self.ended = self._engine.run(self.epoch, self.control)

    def await_counted(self) -> None:
        reaches(lambda: sum(map(len, self._job.counts().values())), self._job.sent, "records counted")


def cut_connections_of_shares() -> int:
    """Cut every connection between this process, as their container, and shares."""
    ports = {one.address[1] for one in gc.get_objects() if isinstance(one, ShareServer)}
    cut = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(number))) as one:
                    listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if one.family is socket.AF_INET and one.getsockname()[1] in ports and not listens:
                        one.shutdown(socket.SHUT_RDWR)
                        cut += 1
    return cut


def test_shares_that_are_cut_off_from_their_container_are_begun_again_in_the_same_epoch(
    job: LocalJob, spark: SparkSession
) -> None:
    with running(job, spark, slots=2) as run:
        for _ in range(2 if NIGHTLY else 1):  # Spark tries a task three times here
            job.fill(40)
            run.await_counted()
            assert cut_connections_of_shares() == 2
            job.fill(40)
        run.await_counted()
        assert run.ended is None
    assert run.ended is Ended.INTERRUPTED
    job.assert_exactly_once()


CLOSING = """
import time
from pathlib import Path
import grete

class Closing(grete.StreamTask):
    def init(self, context):
        self.folder = Path(context.config["test.folder"])

    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.message)

    def close(self):
        (self.folder / "closing").touch()
        while not (self.folder / "go-on").exists():
            time.sleep(0.01)
"""


def test_an_epoch_that_is_over_for_a_change_is_followed_by_one_that_waits_for_its_tasks_to_be_closed(
    job: LocalJob, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "closing_shares.py").write_text(CLOSING)
    job.config |= {"task.class": "closing_shares:Closing", "test.folder": str(tmp_path)}
    kept, stop = ProcessState(), threading.Event()
    control = Control(stop)
    with closing(job.container(1, slots_at_most=2)) as first, ThreadPoolExecutor(1) as pool:
        engine = SparkEngine(spark.sparkContext, kept=kept)
        epoch = pool.submit(engine.run, first.epoch, control)
        job.fill(40)
        reaches(lambda: len(list(job.records("out"))), 40, "outputs")
        control.on_directive(Directive(Command.RUN, 1))
        assert epoch.result(patient(30)) is Ended.INTERRUPTED
        assert not (tmp_path / "go-on").exists()
        control.running(1)
        with closing(job.container(1, slots_at_most=2, ended=first.ended)) as second:
            epoch = pool.submit(SparkEngine(spark.sparkContext, kept=kept).run, second.epoch, control)
            job.fill(40)
            eventually((tmp_path / "closing").exists, "the first epoch's tasks are being closed")
            assert len(list(job.records("out"))) == 40, "Spark has no cores for the second yet"
            (tmp_path / "go-on").touch()
            reaches(lambda: len(list(job.records("out"))), 80, "outputs")
            stop.set()
            control.on_directive(Directive(Command.STOP, 1))
            assert epoch.result(patient(30)) is Ended.INTERRUPTED
    kept.close()


def test_the_figures_of_shares_are_on_the_page_of_their_stage(job: LocalJob, spark: SparkSession) -> None:
    """Spark's own columns count rows, of which a share gives it none."""
    store, tracker = spark.sparkContext._jsc.sc().statusStore(), spark.sparkContext.statusTracker()

    def figures(run: Running) -> dict[str, str]:
        [number] = tracker.getJobIdsForGroup(run.epoch.lineage)
        found = store.lastStageAttempt(store.job(number).stageIds().head()).accumulatorUpdates()
        return {found.apply(place).name(): found.apply(place).value() for place in range(found.size())}

    with running(job, spark, slots=2) as run:
        job.fill(40)
        run.await_counted()
        # an executor says every ten seconds that its tasks run, with which pages are brought up to date
        eventually(lambda: figures(run).get("records") == "40", "the records in Spark's page")
        shown = figures(run)
    assert 1 <= int(shown["commits"]) <= 40
    assert int(shown["bytes of input"].replace(",", "")) >= 40 * len("key0{}")
    assert int(shown["milliseconds in commits"]) >= 0


def test_where_there_are_fewer_cores_than_spark_says_the_next_epoch_has_as_many_shares(
    job: LocalJob, spark: SparkSession
) -> None:
    job.fill(40)
    with running(job, spark, slots=4, begin_s=3.0) as run:
        eventually(lambda: run.ended is not None, "the epoch ends by itself")
    assert run.ended is Ended.INTERRUPTED
    again = SparkEngine(spark.sparkContext)
    assert again.slots_at_most == 2
    with running(job, spark, slots=again.slots_at_most) as run:
        run.await_counted()
        assert run.epoch.slots == [0, 1]
    job.assert_exactly_once()
