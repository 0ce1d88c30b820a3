"""grete against the same PySpark by hand: same records, same source, same session, in turn; medians of the ratios.

By hand nothing is committed: rows are computed and collected. grete's side includes outputs, changelogs and
checkpoints in their transaction.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import applications as work
from grete.clock import SystemClock
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.spark.assignment import AssignedTask, Assignment
from grete.spark.job_run import JobRun
from grete.spark.local_plan import SourceOptions
from grete.spark.local_source import read_stream
from grete.spark.session import build_session
from grete.systems.base import StreamSpec
from grete.systems.local import LocalSystem, Message

PARTITIONS = 2
BATCH = 100_000
SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


class Bench:
    """One input, filled once; every run reads all of it in a home of its own."""

    def __init__(self, records: int) -> None:
        self.records = records
        self._directory = Path(tempfile.mkdtemp(prefix="grete-bench-"))
        self._runs = 0
        self.spark: SparkSession = build_session("bench", SPARK)
        self._input = self._directory / "input"
        system = LocalSystem(self._input / "local", SystemClock())
        system.create_stream(StreamSpec("in", PARTITIONS))
        for start in range(0, records, 50_000):
            system.append("in", (_message(i) for i in range(start, min(start + 50_000, records))))
        system.close()

    def close(self) -> None:
        shutil.rmtree(self._directory)

    def _home(self) -> Path:
        self._runs += 1
        home = self._directory / f"run-{self._runs}"
        shutil.copytree(self._input, home)
        return home

    def grete(self, **config: str) -> float:
        """Records a second of a grete job, first output of the session's query to the last."""
        home = self._home()
        if "stores.counts.factory" in config:
            system = LocalSystem(home / "local", SystemClock())
            system.create_stream(StreamSpec("bench-1-counts-changelog", PARTITIONS, compacted=True))
            system.close()
        tasks = tuple(
            AssignedTask(TaskName(f"Partition {p}"), (SystemStreamPartition("local", "in", p),), p)
            for p in range(PARTITIONS)
        )
        base = {
            "task.outputs": "local.out,local.aggregates",
            "systems.local.samza.offset.default": "oldest",
            "systems.local.samza.key.serde": "string",
            "systems.local.samza.msg.serde": "json",
            "task.max.records.per.batch": str(BATCH),
            **SPARK,
        }
        assignment = Assignment(
            JobId("bench"), ContainerId("0"), 1, {**base, **config}, tasks, until_drained=True
        )
        run = JobRun(assignment, home, stop=threading.Event())
        started = time.monotonic()
        run.execute()
        seconds = time.monotonic() - started
        run.close()
        return self.records / seconds

    def by_hand(self, query: Callable[[DataFrame], DataFrame], mode: str = "append") -> float:
        """Records a second of a query over the same source, its rows collected batch by batch."""
        home = self._home()
        ssps = tuple(f"local.in.{p}" for p in range(PARTITIONS))
        options = SourceOptions(str(home / "local"), ssps, dict.fromkeys(ssps, 0), None, BATCH)
        frame = query(read_stream(self.spark, options))

        def collect(batch: DataFrame, _: int) -> None:
            batch.toArrow()

        started = time.monotonic()
        writer = frame.writeStream.foreachBatch(collect).outputMode(mode)
        writer.option("checkpointLocation", str(home / "ck")).trigger(
            availableNow=True
        ).start().awaitTermination()
        return self.records / (time.monotonic() - started)

    def pass_through_by_hand(self) -> float:
        return self.by_hand(
            lambda frame: frame.mapInArrow(work.pass_through_by_hand, "key binary, value binary")
        )

    def count_by_hand(self) -> float:
        return self.by_hand(
            lambda frame: (
                frame.selectExpr("cast(key as string) as key", "value")
                .groupBy("key")
                .transformWithStateInPandas(work.CountByHand(), "key string, count long", "append", "none")
            )
        )


def _message(i: int) -> Message:
    value = b'{"n":%d,"carrier":"C%d","delay":%d,"pad":"%s"}' % (i, i % 16, i % 300, b"x" * 100)
    return Message(b"key%d" % (i % 5_000), value, i)


def _compare(pairs: int, ours: Callable[[], float], theirs: Callable[[], float]) -> dict[str, object]:
    ours(), theirs()  # warm up
    measured = [(ours(), theirs()) for _ in range(pairs)]
    return {
        "grete_records_per_s": round(statistics.median(pair[0] for pair in measured)),
        "by_hand_records_per_s": round(statistics.median(pair[1] for pair in measured)),
        "ratio": round(statistics.median(pair[0] / pair[1] for pair in measured), 2),
        "ratios": [round(pair[0] / pair[1], 2) for pair in measured],
    }


def run(records: int = 400_000, pairs: int = 3) -> dict[str, object]:
    """All three comparisons."""
    bench = Bench(records)
    name = "benchmarks.applications"
    counts = {"task.class": f"{name}:Count", "stores.counts.factory": "grete.store.sqlite"}
    try:
        return {
            "records": records,
            "pass_through_vs_map_in_arrow": _compare(
                pairs,
                lambda: bench.grete(**{"task.class": f"{name}:PassThrough"}),
                bench.pass_through_by_hand,
            ),
            "data_frame_pipeline_vs_pyspark": _compare(
                pairs,
                lambda: bench.grete(**{"app.class": f"{name}:Aggregate"}),
                lambda: bench.by_hand(work.aggregate, "update"),
            ),
            "stateful_vs_transform_with_state": _compare(
                pairs, lambda: bench.grete(**counts), bench.count_by_hand
            ),
        }
    finally:
        bench.close()


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
