"""Findings of the two jobs, read from their output streams alone, so it can be read again at any time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from grete.systems.base import System

CHAINS = 10


def records(system: System, stream: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Key and value of every record, a partition after the other."""
    for partition in range(system.partition_count(stream)):
        for _, batch in system.read(stream, partition, 0):
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                yield key.decode(), orjson.loads(value)


def counted(system: System, stream: str) -> int:
    """How many records a stream has, each read."""
    partitions = range(system.partition_count(stream))
    return sum(batch.num_rows for p in partitions for _, batch in system.read(stream, p, 0))


def carriers(system: System) -> dict[str, dict[str, Any]]:
    """The last record of each carrier."""
    return dict(sorted(dict(records(system, "carriers")).items()))


def delays(system: System) -> dict[str, Any]:
    """How many flights were followed, cancelled and late by inheritance, and the worst chains: the longest first."""
    counts = {"flights": 0, "cancelled": 0, "inherited": 0}
    longest: dict[tuple[str, str], dict[str, Any]] = {}
    for tail, record in records(system, "inherited-delays"):
        counts["flights"] += 1
        counts["cancelled"] += record["cancelled"]
        counts["inherited"] += record["inherited"]
        if tail and record["chain"] > 1 and not record["cancelled"]:
            longest[tail, record["chain_from"]] = {
                "aircraft": tail,
                "late_departures": record["chain"],
                "minutes": record["chain_min"],
                "from": record["chain_from"],
                "to": record["departure"],
            }
    worst = sorted(longest.values(), key=lambda c: (-c["late_departures"], -c["minutes"], c["aircraft"]))
    return {**counts, "chains": worst[:CHAINS]}


def figures(system: System) -> dict[str, Any]:
    """Everything, for comparing."""
    return {"carriers": carriers(system), "delays": delays(system)}
