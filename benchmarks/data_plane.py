"""grete against the same PySpark by hand: same records, same source, same session, in turn; medians of the ratios.

By hand nothing is committed: rows are computed and collected. grete's side includes outputs, changelogs and
checkpoints in their transaction. Both sides start their query in the session that is there, about 1.3 s each, which
`records` should make small. CPU time is that of all processes below this one; other work on the machine disturbs it
less than the clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import applications as work
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.process_state import ProcessState
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.spark.job_run import run_job
from grete.spark.pipeline.planned_source import read_stream
from grete.spark.session.container_session import build_session
from grete.systems.local.system import LocalSystem, Message
from grete.tasks.read_plan import SourceOptions

PARTITIONS = 2
BATCH = 100_000
SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_NAME = "benchmarks.applications"


@dataclass(frozen=True, slots=True)
class Cost:
    """Figures of a run. `batches_s`, where it is known: of the clock, without the start of a job."""

    seconds: float
    cpu_s: float
    batches_s: float | None = None


class Bench:
    """One input, filled once; every run reads all of it in a home of its own."""

    def __init__(self, records: int) -> None:
        self.records = records
        self._directory = Path(tempfile.mkdtemp(prefix="grete-bench-"))
        self._runs = 0
        self.spark: SparkSession = build_session("bench", Settings.of(SPARK))
        self._input = self._directory / "input"
        system = LocalSystem(self._input / "local", SystemClock())
        for stream in ("in", "out", "aggregates"):
            system.create_stream(StreamSpec(stream, PARTITIONS))
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

    def grete(self, **config: str) -> Cost:
        """A grete job over all records."""
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
            JobId("bench"), ContainerId("0"), 1, Settings.of({**base, **config}), tasks, until_drained=True
        )

        def run() -> None:
            with closing(ProcessState()) as kept:
                run_job(assignment, home, threading.Event(), on_batch=ignored, on_at_work=ignored, kept=kept)

        return measure(run)

    def by_hand(self, query: Callable[[DataFrame], DataFrame], mode: str = "append") -> Cost:
        """A query over the same source, its rows collected batch by batch."""
        home = self._home()
        ssps = tuple(f"local.in.{p}" for p in range(PARTITIONS))
        options = SourceOptions("local", {}, str(home), ssps, dict.fromkeys(ssps, 0), None, BATCH)
        frame = query(read_stream(self.spark, options))

        def collect(batch: DataFrame, _: int) -> None:
            batch.toArrow()

        writer = frame.writeStream.foreachBatch(collect).outputMode(mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(home / "ck"))
        return measure(lambda: writer.start().awaitTermination())

    def pass_through_by_hand(self) -> Cost:
        return self.by_hand(
            lambda frame: frame.mapInArrow(work.pass_through_by_hand, "key binary, value binary")
        )

    def count_by_hand(self) -> Cost:
        return self.by_hand(
            lambda frame: (
                frame.selectExpr("cast(key as string) as key", "value")
                .groupBy("key")
                .transformWithStateInPandas(work.CountByHand(), "key string, count long", "append", "none")
            )
        )


def ignored(*said: object) -> None:
    """Of a container's batches and beginnings nothing is wanted but the time."""


def _message(i: int) -> Message:
    value = b'{"n":%d,"carrier":"C%d","delay":%d,"pad":"%s"}' % (i, i % 16, i % 300, b"x" * 100)
    return Message(b"key%d" % (i % 5_000), value, i)


def measure(work_: Callable[[], object]) -> Cost:
    cpu, started = _cpu_s(), time.monotonic()
    work_()
    return Cost(time.monotonic() - started, _cpu_s() - cpu)


def _cpu_s() -> float:
    """User and system time of this process and all below it, the dead included."""
    found: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                found[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    ours, size = {os.getpid()}, 0
    while len(ours) > size:
        size = len(ours)
        ours |= {process for process, (parent, _) in found.items() if parent in ours}
    return sum(found[process][1] for process in ours) / os.sysconf("SC_CLK_TCK")


def compare(
    records: int, pairs: int, ours: Callable[[], Cost], theirs: Callable[[], Cost], warm_ups: int = 1
) -> dict[str, object]:
    """With an even number of pairs each side is first as often: what is second has more code compiled."""
    for _ in range(warm_ups):
        ours(), theirs()
    measured = []
    for number in range(pairs):
        if number % 2:
            by_hand, grete = theirs(), ours()
        else:
            grete, by_hand = ours(), theirs()
        measured.append((grete, by_hand))
    return {
        "records": records,
        "grete_records_per_s": round(statistics.median(records / g.seconds for g, _ in measured)),
        "by_hand_records_per_s": round(statistics.median(records / h.seconds for _, h in measured)),
        "ratio": round(statistics.median(h.seconds / g.seconds for g, h in measured), 2),
        "ratios": [round(h.seconds / g.seconds, 2) for g, h in measured],
        "cpu_ratio": round(statistics.median(h.cpu_s / g.cpu_s for g, h in measured), 2),
        "cpu_ratios": [round(h.cpu_s / g.cpu_s, 2) for g, h in measured],
        **_batches_ratio(measured),
    }


def _batches_ratio(measured: Sequence[tuple[Cost, Cost]]) -> dict[str, object]:
    ratios = [h.batches_s / g.batches_s for g, h in measured if g.batches_s and h.batches_s]
    if not ratios:
        return {}
    return {
        "batches_ratio": round(statistics.median(ratios), 2),
        "batches_ratios": [round(ratio, 2) for ratio in ratios],
    }


def stateless(records: int = 1_000_000, pairs: int = 5) -> dict[str, object]:
    """Jobs without state in Python: pass-through and the pipeline."""
    bench = Bench(records)
    try:
        return {
            "pass_through_vs_map_in_arrow": compare(
                bench.records,
                pairs,
                lambda: bench.grete(**{"task.class": f"{_NAME}:PassThrough"}),
                bench.pass_through_by_hand,
            ),
            "data_frame_pipeline_vs_pyspark": compare(
                bench.records,
                pairs,
                lambda: bench.grete(**{"app.class": f"{_NAME}:Aggregate"}),
                lambda: bench.by_hand(work.aggregate, "update"),
            ),
        }
    finally:
        bench.close()


def stateful(records: int = 400_000, pairs: int = 3) -> dict[str, object]:
    """A counter per key, against Spark's own state."""
    bench = Bench(records)
    counts = {"task.class": f"{_NAME}:Count", "stores.counts.factory": "grete.store.sqlite"}
    try:
        compared = compare(bench.records, pairs, lambda: bench.grete(**counts), bench.count_by_hand)
        return {"stateful_vs_transform_with_state": compared}
    finally:
        bench.close()


def run() -> dict[str, object]:
    """All three comparisons."""
    return stateless() | stateful()


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
