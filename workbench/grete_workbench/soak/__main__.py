"""`python -m grete_workbench.soak --hours 2`: jobs of every kind under random faults, whose every output is checked.

Three jobs of StreamTasks with stores (embedded, embedded on Spark, Kafka) and two pipelines (embedded, Kafka) share a
home, on a disk of its own of `--disk-mb` where the machine lets it be made. Every ten seconds something befalls one.
In the end all that was sent has its output once, no transaction is left open, and what the processes hold has
not grown over the last half.

Exit codes: 0 all is well, 1 something is not, with what; then the folder with the logs stays.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from grete.clock import SystemClock
from grete.kafka.library import Consumer, TopicPartition
from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.soak.faults import Faults
from grete_workbench.soak.jobs import PARTITIONS, Kind, SoakJob
from grete_workbench.soak.samples import Sample, growth, sample

_log = logging.getLogger("grete.soak")
KINDS = (
    Kind("counts", "local"),
    Kind("spark", "local", has_spark=True),
    Kind("topics", "kafka"),
    Kind("rows", "local", is_pipeline=True),
    Kind("rows-of-topics", "kafka", is_pipeline=True),
)
_BEGIN_S, _CALM_S = 120.0, 300.0
_EVERY_S, _STRIKES_S = 5.0, (4.0, 16.0)
_RECORDS = 50
"""To each partition each time: 20 records/s of a job."""
_SHOWN = 60
_GROWS = 0.25
"""Processes that come and go let figures differ by some tenths of their average."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m grete_workbench.soak")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disk-mb", type=int, default=3_000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    folder = Path(tempfile.mkdtemp(prefix="grete-soak-"))
    with ExitStack() as stack:
        home = folder / "home"
        home.mkdir()
        is_bounded = stack.enter_context(_disk(home, options.disk_mb))
        os.environ["GRETE_HOME"] = str(home)
        cluster = KafkaCluster(folder / "kafka", nodes=1)
        cluster.start()
        stack.callback(cluster.stop)
        jobs = [SoakJob(kind, home, cluster.bootstrap) for kind in KINDS]
        faults = Faults(jobs, cluster, home, is_bounded=is_bounded, seed=options.seed)
        result = _soak(jobs, faults, home, hours=options.hours, seed=options.seed)
        result["problems"] += _open_transactions(
            cluster.bootstrap, [job for job in jobs if job.kind.system == "kafka"]
        )
        if result["problems"]:
            for job in jobs:
                shutil.copytree(job.folder, folder / "logs" / job.kind.name, dirs_exist_ok=True)
            shutil.copytree(home / "jobs", folder / "logs" / "jobs", dirs_exist_ok=True)
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if result["problems"]:
        print(f"the logs are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


@contextmanager
def _disk(home: Path, size_mb: int) -> Iterator[bool]:
    """A disk of its own at `home`, which may be filled; False where this user may make none."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "grete-soak", str(home)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0  # noqa: S603
    if not is_mounted:
        _log.warning("no disk of its own can be made here, so none will be full: that needs root")
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(home)], check=False)  # noqa: S603, S607


def _soak(jobs: Sequence[SoakJob], faults: Faults, home: Path, *, hours: float, seed: int) -> dict[str, Any]:
    clock, chance, samples = SystemClock(), random.Random(seed), list[Sample]()  # noqa: S311
    for job in jobs:
        job.feed(_RECORDS)
        job.start()
    problems = _until_done(jobs, _BEGIN_S)
    began_s = clock.monotonic_s()
    next_s = began_s
    while not problems and clock.monotonic_s() < began_s + hours * 3_600:
        now_s = clock.monotonic_s()
        for job in jobs:
            job.feed(_RECORDS)
            job.check()
            problems += [f"{job.kind.name}: {one}" for one in job.checker.problems[:5]]
        samples.append(sample(now_s - began_s, home))
        if now_s >= next_s:
            faults.strike()
            next_s = clock.monotonic_s() + chance.uniform(*_STRIKES_S)
        time.sleep(max(0.0, now_s + _EVERY_S - clock.monotonic_s()))
    _log.info("no more faults")
    problems += _until_done(jobs, _CALM_S)
    grown = growth(samples) if samples else {}
    problems += [f"{name} grew by {by:.0%} over the last half" for name, by in grown.items() if by > _GROWS]
    codes = {job.kind.name: job.stop() for job in jobs}
    problems += [f"{name} ended with code {code}" for name, code in codes.items() if code]
    return {
        "hours": round((clock.monotonic_s() - began_s) / 3_600, 2),
        "seed": seed,
        "records": {job.kind.name: sum(job.sent) for job in jobs},
        "coordinators": {job.kind.name: job.starts for job in jobs},
        "faults": faults.struck,
        "keys_that_went_back": {job.kind.name: job.checker.went_back for job in jobs},
        "growth_over_the_last_half": {name: round(by, 3) for name, by in grown.items()},
        "samples": [[round(figure) for figure in one] for one in samples[:: max(1, len(samples) // _SHOWN)]],
        "problems": problems,
    }


def _until_done(jobs: Sequence[SoakJob], within_s: float) -> list[str]:
    """Until all that was sent has its output; what has none after so long a time without faults."""
    until_s = time.monotonic() + within_s
    while True:
        left = []
        for job in jobs:
            job.check()
            left += [f"{job.kind.name}: {one}" for one in (*job.missing()[:3], *job.checker.problems[:5])]
        if not left or time.monotonic() > until_s:
            return left
        time.sleep(1.0)


def _open_transactions(bootstrap: str, jobs: Sequence[SoakJob]) -> list[str]:
    """Topics that a reader of what is committed cannot read to their ends."""
    found = []
    for job in jobs:
        topic, ends = f"{job.kind.name}-out", []
        for level in ("read_committed", "read_uncommitted"):
            consumer = Consumer(
                {"bootstrap.servers": bootstrap, "group.id": "soak", "isolation.level": level}
            )
            places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            ends.append([consumer.get_watermark_offsets(place, timeout=30)[1] for place in places])
            consumer.close()
        if ends[0] != ends[1]:
            found.append(f"{topic}: a transaction is open at {ends[0]}, the end is {ends[1]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
