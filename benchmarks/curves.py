"""Curves of the embedded default: how fast, how soon and at what cost, over the size of things. `make bench-curves`.

Each point of throughput is a job of its own, by the real command line on a local master of two cores, that reads what
is there and ends. The first tenth of its records is left out, in which Spark starts. Latency is `local_latency`'s,
one job that goes through all rates. Raw figures are kept, and docs/diagrams has the pictures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks import local_latency
from benchmarks.at_rest import cpu_s, of_home
from benchmarks.contestants import keep, surroundings
from benchmarks.latency import Pace
from benchmarks.plot import Plot
from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message

PICTURES = Path(__file__).parent.parent / "docs" / "diagrams"
RATES = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
RATE_S = 12.0
BYTES = 200_000_000
"""Of a point of record sizes, unless that were more records than a million."""
APPLICATION = """
import grete

class Application(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", envelope.message, key=envelope.key)
"""
PROPERTIES = """
job.name=curve
job.application.path=.
task.class=application:Application
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=bytes
stores.counts.factory=grete.store.sqlite
job.container.count={containers}
spark.master=local[2]
"""


@dataclass(frozen=True, slots=True)
class Point:
    """What a job is given."""

    records: int = 1_000_000
    value_bytes: int = 100
    tasks: int = 4
    keys: int = 10_000
    containers: int = 1


@dataclass(frozen=True, slots=True)
class Found:
    """Of all but the first tenth; `cpu_us` of all processes of the job, for each record."""

    records_per_s: float
    cpu_us: float


def measure(point: Point) -> Found:
    """Run one job over all of its input."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "application.py").write_text(APPLICATION)
        (folder / "job.properties").write_text(PROPERTIES.format(containers=point.containers))
        environment = {**os.environ, "GRETE_HOME": str(folder / "home")}
        with closing(LocalSystem(folder / "home" / "local", SystemClock())) as system:
            for stream in ("in", "out"):
                system.create_stream(StreamSpec(stream, point.tasks))
            chunk = max(1, min(50_000, 50_000_000 // point.value_bytes))
            for first in range(0, point.records, chunk):
                system.append("in", _messages(point, first, min(first + chunk, point.records)))
            command = [sys.executable, "-m", "grete.cli.main", "run", "--quiet", "--until-drained"]
            job = subprocess.Popen([*command, "--config", str(folder / "job.properties")], env=environment)
            used: dict[int, float] = {}
            tenth = _when(job, system, point.records // 10, environment["GRETE_HOME"], used)
            end = _when(job, system, point.records, environment["GRETE_HOME"], used)
            assert job.wait(120) == 0
        records = end.records - tenth.records
        rate, cpu = records / (end.at_s - tenth.at_s), (end.cpu_s - tenth.cpu_s) / records
        return Found(round(rate), round(cpu * 1e6, 2))


@dataclass(frozen=True, slots=True)
class _Moment:
    records: int
    at_s: float
    cpu_s: float


def _when(
    job: subprocess.Popen[bytes], system: LocalSystem, least: int, home: str, used: dict[int, float]
) -> _Moment:
    """The moment at which so many records are out. `used` has what each process, also one that has ended, used."""
    done, looked_s = 0, 0.0
    while done < least and job.poll() is None:
        time.sleep(0.02)
        done = sum(int(one.upcoming) for one in system.offsets("out").values())
        if done >= least or time.monotonic() > looked_s + 0.3:
            looked_s = time.monotonic()
            for pid in of_home(home):
                with suppress(OSError):
                    used[pid] = cpu_s(pid)
    return _Moment(done, time.monotonic(), sum(used.values()))


def _messages(point: Point, first: int, last: int) -> Iterator[Message]:
    value = b"x" * point.value_bytes
    for number in range(first, last):
        yield Message(
            b"user-%d" % (number % point.keys), value, 1_000 + number, partition=number % point.tasks
        )


def _sized(size: int) -> Point:
    return Point(records=max(200, min(1_000_000, BYTES // size)), value_bytes=size)


CURVES: Mapping[str, Mapping[int, Point]] = {
    "record size (bytes)": {size: _sized(size) for size in (100, 1_000, 10_000, 100_000, 1_000_000)},
    "tasks": {tasks: Point(tasks=tasks) for tasks in (1, 10, 100, 1_000)},
    "keys in the stores": {keys: Point(keys=keys) for keys in (1_000, 10_000, 100_000, 1_000_000)},
    "containers": {count: Point(containers=count) for count in (1, 2, 4)},
}


def main() -> None:
    """Measure, draw, keep."""
    figures = dict(surroundings())
    with tempfile.TemporaryDirectory() as name:
        turns = local_latency.measure("count", Path(name), Pace(RATES, RATE_S))
    figures["rate (records/s)"] = turns
    latency = {
        which: [(int(str(one["rate"])), float(str(one[which]))) for one in turns] for which in ("p50", "p99")
    }
    _draw("rate", Plot("Latency of a counter, embedded", "records a second", "ms", latency))
    for what, points in CURVES.items():
        found = {at: measure(point) for at, point in points.items()}
        figures[what] = {
            at: {"records_per_s": one.records_per_s, "cpu_us": one.cpu_us} for at, one in found.items()
        }
        print(json.dumps({what: figures[what]}), file=sys.stderr, flush=True)
        rates = {"records/s": [(at, one.records_per_s) for at, one in found.items()]}
        costs = {"µs of a core a record": [(at, one.cpu_us) for at, one in found.items()]}
        _draw(what.split()[0], Plot(f"A counter by {what}, embedded", what, "", {**rates, **costs}))
    keep(figures, kind="curves", is_discarded=False)


def _draw(name: str, plot: Plot) -> None:
    (PICTURES / f"curve-{name}.svg").write_text(plot.svg())


if __name__ == "__main__":
    main()
