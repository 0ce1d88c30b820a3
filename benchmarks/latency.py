"""Time from giving a record to a system to reading its output, for what is paced at a rate; of one contestant.

An output of `pass` holds the number of its record; one of `count` is that of its key's record of the same number,
since keys come in turn and each is counted from 1. A contestant's start and the first seconds of each rate are left
out. One that has lost or doubled records has other `outputs` than `records`. Units are ms.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from benchmarks.contestants import BATCH, KEYS, Command, Race, record, running
from grete.model.ids import JobId
from grete.operations import open_job
from grete.operations.configuration import set_config

SETTLE_S = 5.0
"""The beginning of a rate that is not measured."""
_WARM = 50
"""Outputs of a trickle after which a contestant counts as started."""
_START_S = 180.0
_DRAIN_S = 60.0
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
Turn = dict[str, object]

_numbers: Mapping[str, Callable[[Any], int]] = {
    "pass": lambda value: int(value["count"]),
    "count": lambda value: (value["count"] - 1) * KEYS + int(value["key"].removeprefix("user-")),
}


class Failed(Exception):
    """A contestant does not start, or has no outputs."""


class Outputs(threading.Thread, ABC):
    """Reads what becomes visible in a contestant's output; `seen` are (number of the record, when it was read)."""

    def __init__(self, work: str) -> None:
        super().__init__(name="outputs", daemon=True)
        self._number = _numbers[work]
        self._stop_asked = threading.Event()
        self.seen: list[tuple[int, float]] = []

    @abstractmethod
    def arrivals(self, is_over: Callable[[], bool]) -> Iterator[bytes]:
        """Values, each as soon as it is visible, until `is_over`. Called once, in the thread."""

    def run(self) -> None:
        for value in self.arrivals(self._stop_asked.is_set):
            now_s = time.monotonic()
            self.seen.append((self._number(orjson.loads(value)), now_s))

    def close(self) -> None:
        self._stop_asked.set()
        self.join()


class Load(ABC):
    """The records of a contestant; `sent_s` holds when each was given to the system."""

    every_s = 0.002

    def __init__(self) -> None:
        self.sent_s = array("d")

    @abstractmethod
    def give(self, key: str, value: bytes) -> None:
        """Give the system a record, to be sent with those that follow at once."""

    @abstractmethod
    def push(self) -> None:
        """Send what was given."""

    @abstractmethod
    def flush(self) -> None:
        """Return when what was given is in the system."""

    def send(self, count: int) -> None:
        for _ in range(count):
            key, value = record(len(self.sent_s))
            self.sent_s.append(time.monotonic())
            self.give(key, value)
        self.push()

    def pace(self, rate: int, seconds: float) -> None:
        began_s, first = time.monotonic(), len(self.sent_s)
        while (passed_s := time.monotonic() - began_s) < seconds:
            self.send(int(passed_s * rate) - (len(self.sent_s) - first))
            time.sleep(self.every_s)
        self.flush()


@dataclass(frozen=True, slots=True)
class Pace:
    """The rates that a contestant goes through, each for so long; grete's configuration changes meanwhile, or not."""

    rates: Sequence[int]
    seconds: float
    change_every_s: float = 0.0


def turn(command: Command, race: Race, load: Load, outputs: Outputs, pace: Pace) -> list[Turn]:
    """One contestant, started once, at each of the rates.

    Raises:
        Failed: it does not start, or has no outputs.
    """
    began_s = time.monotonic()
    log = race.directory / "log"
    with running(command, log) as process:
        outputs.start()
        try:
            _warm(load, outputs, process)
            start = {
                "seconds_to_first_output": round(outputs.seen[0][1] - began_s, 2),
                "seconds_to_warm": round(time.monotonic() - began_s, 1),
            }
            return [{**start, **_at(rate, race, load, outputs, pace)} for rate in pace.rates]
        except Failed as error:
            raise Failed(f"{error}, and: {log.read_text(errors='replace')[-3_000:]}") from error
        finally:
            outputs.close()


def _warm(load: Load, outputs: Outputs, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + _START_S
    while len(outputs.seen) < _WARM:
        load.send(20)
        load.flush()
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise Failed(f"{len(outputs.seen)} outputs")
        time.sleep(0.25)


def _at(rate: int, race: Race, load: Load, outputs: Outputs, pace: Pace) -> Turn:
    first, heard = len(load.sent_s), len(outputs.seen)
    with _changing(race, pace.change_every_s) as changed_s:
        load.pace(rate, pace.seconds)
    deadline_s = time.monotonic() + _DRAIN_S
    while len(outputs.seen) < len(load.sent_s) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    settled_s = load.sent_s[first] + SETTLE_S
    measured = [
        (number, read_s)
        for number, read_s in outputs.seen[heard:]
        if number >= first and load.sent_s[number] >= settled_s
    ]
    if len(measured) < 2:
        raise Failed(f"{len(measured)} outputs at {rate} records/s within {_DRAIN_S:g} s")
    times_ms = sorted((read_s - load.sent_s[number]) * 1000 for number, read_s in measured)
    arrivals_s = sorted(read_s for _, read_s in measured)
    return {
        "rate": rate,
        "records": sum(sent_s >= settled_s for sent_s in load.sent_s[first:]),
        "outputs": len(measured),
        **{name: _quantile(times_ms, share) for name, share in _QUANTILES.items()},
        "longest_gap": round(max(b - a for a, b in pairwise(arrivals_s)) * 1000, 1),
        "changes": len(changed_s),
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


@contextmanager
def _changing(race: Race, every_s: float) -> Iterator[list[float]]:
    """Change grete's configuration so often that its containers go on with another; collects when, monotonic."""
    changed_s: list[float] = []
    if every_s <= 0:
        yield changed_s
        return
    is_over = threading.Event()

    def change() -> None:
        os.environ["GRETE_HOME"] = str(race.home)
        with open_job(JobId(race.target)) as job:
            while not is_over.wait(every_s):
                changed_s.append(time.monotonic())
                size = str(BATCH + len(changed_s))
                set_config(job, {"task.max.records.per.batch": size}, reason="bench")

    thread = threading.Thread(target=change, name="changes", daemon=True)
    thread.start()
    try:
        yield changed_s
    finally:
        is_over.set()
        thread.join()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that only compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def in_short(turns: Mapping[str, Mapping[str, Sequence[Turn]]]) -> dict[str, dict[str, Turn]]:
    """By work and contestant, what stands for each at the first of its rates."""
    return {
        work: {
            name: {key: found[0][key] for key in ("rate", "p50", "p99", "max")}
            for name, found in by_name.items()
        }
        for work, by_name in turns.items()
    }


def arguments(program: str) -> argparse.ArgumentParser:
    """Those that every benchmark of latency has."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}")
    parser.add_argument(
        "--rate", type=int, nargs="+", default=[2_000], help="records/s; the first stands for all"
    )
    parser.add_argument(
        "--seconds", type=float, default=25.0, help=f"of a rate, the first {SETTLE_S:g} included"
    )
    parser.add_argument("--work", nargs="+", choices=("pass", "count"), default=["pass", "count"])
    parser.add_argument("--beside", type=int, default=0, help="processes that only compute meanwhile")
    parser.add_argument(
        "--change-every", type=float, default=0.0, help="seconds between changes of grete's configuration"
    )
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    return parser


def head(given: argparse.Namespace) -> dict[str, object]:
    """How a run was paced, for its result."""
    assert given.seconds > SETTLE_S
    return {"seconds": given.seconds, "beside": given.beside, "change_every_s": given.change_every}
