"""How a query ends, with a Spark that hands over batches when the test wants it to."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from grete.container.control import Ended
from grete.errors import ConfigError, Fenced, GreteError, JobError, ProcessingError
from grete.spark.failures.translation import executor_error, failed
from grete.spark.pipeline.query import Query, QuerySettings
from grete.tasks.commit.base import BatchOutcome

HandOver = Callable[[Any, int], None]
LONG_S = 10.0


class SparkAboutToHandOver:
    """Frame, writer and query of a Spark whose thread calls with a batch just when it is stopped.

    As the real one, `stop` returns when that thread has ended: not before the call has come back.
    """

    def __init__(self) -> None:
        self.refused: list[BaseException] = []
        self.thread = threading.Thread(target=self._call, daemon=True)

    @property
    def writeStream(self) -> SparkAboutToHandOver:
        return self

    def foreachBatch(self, hand_over: HandOver) -> SparkAboutToHandOver:
        self._hand_over = hand_over
        return self

    def outputMode(self, mode: str) -> SparkAboutToHandOver:
        return self

    def option(self, name: str, value: str) -> SparkAboutToHandOver:
        return self

    def trigger(self, **settings: object) -> SparkAboutToHandOver:
        return self

    def start(self) -> SparkAboutToHandOver:
        return self

    status = {"isTriggerActive": True, "message": "Processing new data"}  # noqa: RUF012 - as Spark's, never changed

    def awaitTermination(self, timeout_s: float) -> bool:
        return False

    def stop(self) -> None:
        self.thread.start()
        self.thread.join(LONG_S)

    def _call(self) -> None:
        try:
            self._hand_over(None, 0)
        except BaseException as error:  # noqa: BLE001 - as Spark's, the thread ends with whatever it is
            self.refused.append(error)


def test_a_query_ends_though_a_batch_is_on_its_way_and_does_not_run_it(tmp_path: Path) -> None:
    ran: list[int] = []

    def run_batch(batch: DataFrame, batch_id: int, end: Any) -> BatchOutcome:
        ran.append(batch_id)
        return BatchOutcome()

    asked = threading.Event()
    asked.set()
    spark = SparkAboutToHandOver()
    query = Query(
        run_batch, QuerySettings(tmp_path, ("local.in",), until_drained=False, interval_ms=0), asked
    )
    gateway: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None))

    ended = query.run(gateway, spark)  # type: ignore[arg-type]  # as much of a frame as is used

    assert not spark.thread.is_alive(), "Spark waits for us, and we wait for Spark"
    assert ended is Ended.INTERRUPTED
    assert spark.refused, "the batch has to be refused: Spark would take a return for done"
    assert not ran


class SparkThatPlans(SparkAboutToHandOver):
    """A Spark that has begun, and hands over its first batch only when it is stopped."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True
        super().stop()


def test_outputs_that_cannot_be_opened_end_the_query_though_no_batch_has_come(tmp_path: Path) -> None:
    ran: list[int] = []
    worked: list[str] = []

    def run_batch(batch: DataFrame, batch_id: int, end: Any) -> BatchOutcome:
        ran.append(batch_id)
        return BatchOutcome()

    def cannot_open() -> None:
        raise Fenced("container/it/0", epoch=1, seen=2)

    settings = QuerySettings(tmp_path, ("local.in",), until_drained=False, interval_ms=0)
    spark, query = SparkThatPlans(), Query(run_batch, settings, threading.Event())
    query.on_started, query.on_at_work = cannot_open, lambda: worked.append("at work")
    gateway: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None))

    with pytest.raises(Fenced, match="epoch 2"):
        query.run(gateway, spark)  # type: ignore[arg-type]  # as much of a frame as is used

    assert spark.stopped, "nothing runs on"
    assert spark.refused, "nor is a batch that is on its way taken for done"
    assert not ran
    assert not worked


@pytest.mark.parametrize(
    ("line", "kind", "code"),
    [
        ("grete.errors.ConfigError: task.class: no module named 'x'", ConfigError, 2),
        ("grete.errors.ProcessingError: Partition 0: offset 7", ProcessingError, 3),
        ("grete.errors.SomethingNew: words", JobError, 1),
    ],
)
def test_what_a_worker_raised_is_known_by_its_name(line: str, kind: type[GreteError], code: int) -> None:
    """So a class that cannot be loaded ends the container for good, and is not started eight times more."""
    text = f"Job aborted\n  File grete.errors.py\n{line}\n\tat org.apache.spark.Something"
    found = executor_error(text)
    assert type(found) is kind
    assert (str(found), found.exit_code) == (line.partition(": ")[2], code)


class SparkWithoutMemory(SparkAboutToHandOver):
    """A Spark whose JVM ends before it answers."""

    def awaitTermination(self, timeout_s: float) -> bool:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (3, r"OutOfMemoryError.*Lower task\.max\.records\.per\.batch.*raise spark\.driver\.memory.*code 3"),
        (1, r"^Spark's JVM ended with code 1$"),
    ],
)
def test_a_jvm_that_has_run_out_of_memory_is_reported_with_the_keys(
    tmp_path: Path, code: int, says: str
) -> None:
    settings = QuerySettings(tmp_path, ("local.in",), until_drained=False, interval_ms=0)
    query = Query(lambda *batch: BatchOutcome(), settings, threading.Event())
    with subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"]) as jvm:
        gateway: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=jvm)))
        with pytest.raises(JobError, match=says):
            query.run(gateway, SparkWithoutMemory())  # type: ignore[arg-type]  # as much of a frame as is used


def test_a_process_that_ends_in_each_attempt_at_a_task_is_named_with_its_host_and_where_to_look() -> None:
    lost = "failed 4 times, most recent failure: Lost task 1.3 in stage 2.0 (TID 10) (worker-7 executor 4): "
    text = f"{lost}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    said = str(failed(RuntimeError(text)))
    assert said.startswith("a Python process on worker-7 ended in the middle of its work")
    assert "the log of executor 4" in said
    assert "ended in the middle" not in str(failed(RuntimeError(f"{lost}java.io.IOException: Job aborted")))
