"""`python -m benchmarks.local_latency`: time from an append to the embedded system to the visible output of grete.

The work and its records are those of `kafka_latency`, on the streams of one SQLite file. Appends are durable, so each
takes its turn with the job's commits.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.contestants import PARTITIONS, Command, Race, grete_command, keep, surroundings
from benchmarks.latency import Load, Outputs, Pace, Turn, arguments, busy, head, in_short, turn
from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message

_LOOK_S = 0.001


class LocalOutputs(Outputs):
    """See Outputs."""

    def __init__(self, race: Race, system: LocalSystem) -> None:
        super().__init__(race.work)
        self._stream = race.target
        self._system = system

    def arrivals(self, is_over: Callable[[], bool]) -> Iterator[bytes]:
        after = dict.fromkeys(range(PARTITIONS), 0)
        while not is_over():
            for partition, offsets in self._system.offsets(self._stream).items():
                if int(offsets.upcoming) > after[partition]:
                    for _, batch in self._system.read(self._stream, partition, after[partition]):
                        after[partition] += batch.num_rows
                        yield from batch.column(1).to_pylist()
            time.sleep(_LOOK_S)


class LocalLoad(Load):
    """See Load. What is given between two pushes is one append, and so one fsync."""

    every_s = 0.01

    def __init__(self, race: Race, system: LocalSystem) -> None:
        super().__init__()
        self._stream = race.source
        self._system = system
        self._given: list[Message] = []

    def give(self, key: str, value: bytes) -> None:
        self._given.append(Message(key.encode(), value, time.time_ns() // 1_000_000))

    def push(self) -> None:
        if self._given:
            self._system.append(self._stream, self._given)
        self._given = []

    def flush(self) -> None:
        """Appends are durable."""


def _command(race: Race) -> Command:
    config = {
        "task.inputs": f"local.{race.source}",
        "task.outputs": f"local.{race.target}",
        "job.default.system": "local",
        "systems.local.samza.factory": "local",
        "systems.local.default.stream.samza.offset.default": "oldest",
        "systems.local.default.stream.samza.key.serde": "string",
        "systems.local.default.stream.samza.msg.serde": "json",
        "bench.target": f"local.{race.target}",
    }
    return grete_command(race, "local", config)


def measure(work: str, directory: Path, pace: Pace) -> list[Turn]:
    """grete at each rate, in a home of its own."""
    race = Race("", "in", f"embedded-{work}", work, directory)
    system = LocalSystem(race.home / "local", SystemClock())
    for stream in (race.source, race.target):
        system.create_stream(StreamSpec(stream, PARTITIONS))
    try:
        return turn(_command(race), race, LocalLoad(race, system), LocalOutputs(race, system), pace)
    finally:
        system.close()


def main() -> None:
    """Measure, print, keep."""
    given = arguments("local_latency").parse_args()
    figures, turns = {**surroundings(), **head(given)}, {}
    with busy(given.beside), tempfile.TemporaryDirectory() as directory:
        for work in given.work:
            home = Path(directory) / work
            home.mkdir()
            pace = Pace(given.rate, given.seconds, given.change_every)
            turns[work] = {"grete": measure(work, home, pace)}
            print(turns[work], file=sys.stderr, flush=True)
    figures |= {"latency_ms": in_short(turns), "turns": turns}
    keep(figures, kind="local-latency", is_discarded=given.discard)


if __name__ == "__main__":
    main()
