"""`make bench-kafka BENCH=kafka_latency`: time from `produce` to a read_committed reader, by grete and its peers.

The work, its records and how each contestant is started are those of `kafka_peers`. Records are paced at a rate; a
thread reads the outputs as they become visible. An output of `pass` holds the number of its record; one of `count`
is that of its key's record of the same number, since keys come in turn and each is counted from 1. Contestants run
one after the other, each alone beside the broker and this process. A contestant's start and the first seconds of
each rate are left out. One that has lost or doubled records has other `outputs` than `records`. Units are ms.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer

from benchmarks.contestants import (
    CONTESTANTS,
    KEYS,
    Race,
    keep,
    make_topic,
    reader,
    record,
    running,
    surroundings,
)
from grete.testing.kafka_broker import KafkaCluster

SETTLE_S = 5.0
"""The beginning of a rate that is not measured."""
_WARM = 50
"""Outputs of a trickle after which a contestant counts as started."""
_START_S = 180.0
_DRAIN_S = 60.0
_PACE_S = 0.002
Turn = dict[str, object]


class Outputs(threading.Thread):
    """Reads what becomes visible in a contestant's output; `seen` are (number of the record, when it was read)."""

    def __init__(self, race: Race) -> None:
        super().__init__(name="outputs", daemon=True)
        self._race = race
        self._stop_asked = threading.Event()
        self.seen: list[tuple[int, float]] = []

    def run(self) -> None:
        consumer = reader(self._race, **{"fetch.wait.max.ms": 5})
        number = _numbers[self._race.work]
        while not self._stop_asked.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                now_s = time.monotonic()
                self.seen.append((number(orjson.loads(message.value() or b"{}")), now_s))
        consumer.close()

    def close(self) -> None:
        self._stop_asked.set()
        self.join()


_numbers = {
    "pass": lambda value: int(value["count"]),
    "count": lambda value: (value["count"] - 1) * KEYS + int(value["key"].removeprefix("user-")),
}


class Load:
    """Records of one turn; `sent_s` holds when each was given to the producer."""

    def __init__(self, race: Race) -> None:
        self._topic = race.source
        self._producer = Producer(
            {"bootstrap.servers": race.bootstrap, "linger.ms": 2, "partitioner": "murmur2_random"}
        )
        self.sent_s = array("d")

    def send(self, count: int) -> None:
        for _ in range(count):
            key, value = record(len(self.sent_s))
            self.sent_s.append(time.monotonic())
            self._producer.produce(self._topic, value, key)
        self._producer.poll(0)

    def pace(self, rate: int, seconds: float) -> None:
        began_s, first = time.monotonic(), len(self.sent_s)
        while (passed_s := time.monotonic() - began_s) < seconds:
            self.send(int(passed_s * rate) - (len(self.sent_s) - first))
            time.sleep(_PACE_S)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


def turn(contestant: str, race: Race, rates: Sequence[int], seconds: float) -> list[Turn]:
    """One contestant, started once, at each of the rates."""
    for topic in (race.source, race.target):
        make_topic(race.bootstrap, topic)
    load, outputs, log = Load(race), Outputs(race), race.directory / "log"
    began_s = time.monotonic()
    with running(CONTESTANTS[contestant](race), log) as process:
        outputs.start()
        try:
            _warm(load, outputs, process, log)
            warm_s = round(time.monotonic() - began_s, 1)
            found = [{"seconds_to_warm": warm_s, **_at(rate, seconds, load, outputs)} for rate in rates]
        finally:
            outputs.close()
    return found


def _warm(load: Load, outputs: Outputs, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _START_S
    while len(outputs.seen) < _WARM:
        load.send(20)
        load.flush()
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise Failed(f"{len(outputs.seen)} outputs, then: {log.read_text(errors='replace')[-3_000:]}")
        time.sleep(0.25)


class Failed(Exception):
    """A contestant does not start, or has no outputs."""


def _at(rate: int, seconds: float, load: Load, outputs: Outputs) -> Turn:
    first, heard = len(load.sent_s), len(outputs.seen)
    load.pace(rate, seconds)
    deadline_s = time.monotonic() + _DRAIN_S
    while len(outputs.seen) < len(load.sent_s) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    measured = [
        (number, read_s)
        for number, read_s in outputs.seen[heard:]
        if number >= first and load.sent_s[number] >= load.sent_s[first] + SETTLE_S
    ]
    if len(measured) < 2:
        raise Failed(f"{len(measured)} outputs at {rate} records/s within {_DRAIN_S:g} s")
    times_ms = sorted((read_s - load.sent_s[number]) * 1000 for number, read_s in measured)
    arrivals_s = sorted(read_s for _, read_s in measured)
    records = sum(sent_s >= load.sent_s[first] + SETTLE_S for sent_s in load.sent_s[first:])
    return {
        "rate": rate,
        "records": records,
        "outputs": len(measured),
        **{name: _quantile(times_ms, share) for name, share in _QUANTILES.items()},
        "longest_gap": round(max(b - a for a, b in pairwise(arrivals_s)) * 1000, 1),
    }


_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def _quantile(ordered: Sequence[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


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


def run(names: Sequence[str], works: Sequence[str], rates: Sequence[int], seconds: float) -> dict[str, Any]:
    """Every work by every contestant; `latency_ms` is of the first rate, `turns` has all of them in full."""
    turns: dict[str, dict[str, list[Turn]]] = {work: {} for work in works}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        cluster = KafkaCluster(Path(directory) / "broker")
        cluster.start()
        try:
            for work in works:
                for name in names:
                    label = f"{name.replace(' ', '-')}-{work}"
                    race = Race(cluster.bootstrap, f"in-{label}", label, work, Path(directory) / label)
                    race.directory.mkdir()
                    try:
                        turns[work][name] = turn(name, race, rates, seconds)
                        print(label, turns[work][name], file=sys.stderr, flush=True)
                    except Failed as error:
                        failed[label] = str(error)
                        print(label, error, file=sys.stderr, flush=True)
        finally:
            cluster.stop()
    short = {
        work: {
            name: {key: found[0][key] for key in ("rate", "p50", "p99", "max")}
            for name, found in by_name.items()
        }
        for work, by_name in turns.items()
    }
    return {"latency_ms": short, "turns": turns, "failed": failed}


def main() -> int:
    """Measure, print, keep; 1 when a contestant failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_latency")
    parser.add_argument(
        "--rate", type=int, nargs="+", default=[2_000], help="records/s; the first is in latency_ms"
    )
    parser.add_argument(
        "--seconds", type=float, default=25.0, help=f"of a rate, the first {SETTLE_S:g} included"
    )
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--work", nargs="+", choices=("pass", "count"), default=["pass", "count"])
    parser.add_argument("--beside", type=int, default=0, help="processes that only compute meanwhile")
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    given = parser.parse_args()
    assert given.seconds > SETTLE_S
    head = {**surroundings(), "seconds": given.seconds, "beside": given.beside}
    with busy(given.beside):
        figures = {**head, **run(given.only, given.work, given.rate, given.seconds)}
    keep(figures, kind="kafka-latency", is_discarded=given.discard)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
