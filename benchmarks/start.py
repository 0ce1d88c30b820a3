"""Submit to first committed record, and memory at rest: a job of grete against Structured Streaming by hand.

    python -m benchmarks.start

Both read 3,000 records and run a Python function over them: grete a StreamTask with a store, changelog and
checkpoints on the embedded system, by hand a query with `mapInArrow` from text files into files. Seconds until a
reader sees the first output, CPU seconds of all processes until then, and their memory (proportional set size) three
seconds later. In turns; the ratio is of medians.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message

ROUNDS = 5
RECORDS = 3_000
_REST_S = 3.0
_LIMIT_S = 120.0
_PROPERTIES = """
job.name=start
task.class=grete.testing.counting:Counter
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.factory=grete.store.sqlite
spark.master=local[2]
"""
_BY_HAND = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g").config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
def through(batches):
    yield from batches
frame = spark.readStream.text(sys.argv[1] + "/in").mapInArrow(through, "value string")
query = frame.writeStream.format("text").option("checkpointLocation", sys.argv[1] + "/ck")
query.trigger(processingTime="0 seconds").start(sys.argv[1] + "/out").awaitTermination()
"""


def _grete(home: Path) -> tuple[list[str], Callable[[], bool]]:
    (home / "job.properties").write_text(_PROPERTIES)
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        local.ensure_stream(StreamSpec("in", 2))
        local.append("in", (Message(b"key%d" % (i % 50), b"{}", i) for i in range(RECORDS)))

    def has_output() -> bool:
        with closing(LocalSystem(home / "local", SystemClock())) as local:
            return "out" in local.streams() and any(int(o.upcoming) for o in local.offsets("out").values())

    return ["-m", "grete.cli.main", "run", "--quiet", "--config", str(home / "job.properties")], has_output


def _by_hand(home: Path) -> tuple[list[str], Callable[[], bool]]:
    (home / "in").mkdir()
    (home / "in" / "records.txt").write_text("".join(f'{{"key": "key{i % 50}"}}\n' for i in range(RECORDS)))
    (home / "by_hand.py").write_text(_BY_HAND)
    return [str(home / "by_hand.py"), str(home)], lambda: any(
        (home / "out" / "_spark_metadata").glob("[0-9]*")
    )


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from _tree(int(child))


def _cpu_s(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # its own, and of children that have ended


def _memory_mb(pid: int) -> float:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended meanwhile
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _measured(prepare: Callable[[Path], tuple[list[str], Callable[[], bool]]]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        command, has_output = prepare(home)
        environment = {**os.environ, "GRETE_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        began_s = time.monotonic()
        with subprocess.Popen(
            [sys.executable, *command], env=environment, stderr=subprocess.DEVNULL
        ) as process:
            try:
                while not has_output():
                    if process.poll() is not None or time.monotonic() - began_s > _LIMIT_S:
                        raise RuntimeError(f"no output from {command}")
                    time.sleep(0.02)
                first_s = time.monotonic() - began_s
                cpu_s = sum(map(_cpu_s, _tree(process.pid)))
                time.sleep(_REST_S)
                memory = sum(map(_memory_mb, _tree(process.pid)))
            finally:
                process.send_signal(signal.SIGTERM)
        return {"first_record_s": first_s, "cpu_s": cpu_s, "memory_mb": memory}


def run() -> dict[str, dict[str, float]]:
    """Medians of both, and their ratio."""
    contestants = {"grete": _grete, "spark by hand": _by_hand}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, prepare in contestants.items():
            found[name].append(_measured(prepare))
    medians = {
        name: {key: round(statistics.median(row[key] for row in rows), 2) for key in rows[0]}
        for name, rows in found.items()
    }
    grete, by_hand = medians["grete"], medians["spark by hand"]
    return medians | {"ratio": {key: round(grete[key] / by_hand[key], 2) for key in grete}}


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
