"""How fast the same job is on Spark standalone, YARN and Kubernetes.

    python -m benchmarks.managers [--only standalone | yarn | kubernetes ...] [--records N] [--rounds N] [--discard]

The job of `benchmarks.attempts`: an isolated StreamTask with a store, on executors with two cores together, with the
servers of the tests on this machine. When it has counted its first records, so many are sent, and the rate is of them
until a reader of what is committed has all; several times. `ratio` is that of medians, to standalone. Each record is
counted once, or there is no result.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.deployed_job import DeployedJob

from benchmarks.attempts import RECORDS, on_kubernetes, on_standalone, on_yarn
from benchmarks.contestants import keep, surroundings
from grete.testing.kafka_broker import KafkaCluster

MANAGERS = ("standalone", "yarn", "kubernetes")
_AT_ONCE = 50_000
_PATIENCE_S = 300.0


@contextmanager
def job_on(manager: str, kafka: KafkaCluster, folder: Path) -> Iterator[DeployedJob]:
    """The job at work on a manager."""
    if manager == "standalone":
        with pytest.MonkeyPatch.context() as patch, on_standalone(kafka, folder, patch) as running:
            yield running.job
    elif manager == "yarn":
        with on_yarn(kafka, folder, 0) as job:
            yield job
    else:
        with on_kubernetes(kafka, folder) as (job, _):
            yield job


def rate(job: DeployedJob, records: int) -> float:
    """Records a second, from the first that is sent to the last that is seen."""
    began_s = time.monotonic()
    before = job.count()
    for first in range(0, records, _AT_ONCE):
        job.send(min(_AT_ONCE, records - first))
    while job.count() < before + records:
        if time.monotonic() > began_s + _PATIENCE_S:
            raise SystemExit(f"{job.count() - before} of {records}: {job.log_ends()}")
    return records / (time.monotonic() - began_s)


def measure(manager: str, records: int, rounds: int) -> dict[str, Any]:
    """One manager, with a broker of its own."""
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaCluster(Path(folder, "broker"))
        broker.start()
        try:
            with job_on(manager, broker, Path(folder)) as job:
                job.send(RECORDS)
                job.await_counted()
                load, rates = os.getloadavg()[0], [round(rate(job, records)) for _ in range(rounds)]
                job.assert_each_counted_once()
        finally:
            broker.stop()
    return {"records_per_s": statistics.median(rates), "rounds": rates, "load": load}


def run(managers: Sequence[str], records: int, rounds: int) -> dict[str, object]:
    """One manager after the other."""
    found = {name: measure(name, records, rounds) for name in managers}
    base = found.get("standalone", {}).get("records_per_s")
    ratios = {name: round(one["records_per_s"] / base, 2) for name, one in found.items() if base}
    return {"records": records, **found, "ratio": ratios}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.managers")
    parser.add_argument("--only", nargs="+", choices=MANAGERS, default=list(MANAGERS))
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    given = parser.parse_args()
    figures = {**surroundings(), **run(given.only, given.records, given.rounds)}
    keep(figures, kind="managers", is_discarded=given.discard)


if __name__ == "__main__":
    main()
