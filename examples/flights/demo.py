"""`make demo`: loads the flights, runs both jobs until they are drained, shows what they found and where it is.

Everything shown comes from the output streams, checkpoints and coordinator streams; nothing is remembered here. So
running it again shows the same figures, and so does running it after a kill at any moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from grete.assembly import grete_home, open_job
from grete.cli.output import print_table
from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.systems.local import LocalSystem

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from load import load  # noqa: E402 - the example's own module, found beside this file

JOBS = ("inherited-delays", "carriers")


def main() -> int:
    home = grete_home()
    print(f"Loading the flights of 2013 into the stream local.flights ({home / 'local'})")
    appended = load(home / "local", show_loading)
    print(f"  {appended:,} flights appended" if appended else "  all 336,776 flights are there already")
    before = committed_records()
    started = time.monotonic()
    code = run_jobs()
    if code:
        return code
    seconds = time.monotonic() - started
    processed = committed_records() - before
    show_results(home)
    print()
    if processed:
        print(f"{processed:,} records processed in {seconds:.1f} s by both jobs, Spark's start included")
    else:
        print("Nothing is new: both jobs had processed every flight before, and the figures are the same.")
    show_places(home)
    return 0


def show_loading(done: int, total: int) -> None:
    print(f"  {done:,} of {total:,} flights", flush=True)


def run_jobs() -> int:
    """Both jobs at once, each its own coordinator and Spark application."""
    command = [sys.executable, "-m", "grete.cli.main", "run", "--until-drained", "--config"]
    running = [subprocess.Popen([*command, str(HERE / f"{job}.properties")]) for job in JOBS]  # noqa: S603
    try:
        codes = [process.wait() for process in running]
    except KeyboardInterrupt:
        for process in running:
            process.terminate()
        codes = [process.wait() for process in running]
    return max(codes, key=abs)


def committed_records() -> int:
    """How many input records the checkpoints of both jobs cover."""
    covered = 0
    if not (grete_home() / "local" / "coordinator.db").exists():
        return 0
    for job in JOBS:
        with open_job(JobId(job), must_exist=False) as handle:
            commits = handle.checkpoints().values()
            covered += sum(int(offset) + 1 for commit in commits for offset in commit.offsets.values())
    return covered


def records(system: LocalSystem, stream: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for partition in range(system.partition_count(stream)):
        for _, batch in system.read(stream, partition, 0):
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                yield key.decode(), orjson.loads(value)


def show_results(home: Path) -> None:
    system = LocalSystem(home / "local", SystemClock())
    try:
        show_carriers(system)
        show_chains(system)
    finally:
        system.close()
    for job in JOBS:
        show_job(job)


def show_carriers(system: LocalSystem) -> None:
    print("\nCarriers (DataFrame pipeline)")
    latest = dict(records(system, "carriers"))
    names = ("flights", "cancelled", "mean_arr_delay", "max_arr_delay")
    print_table(
        ("carrier", "flights", "cancelled", "mean arrival delay", "max"),
        [(carrier, *(latest[carrier].get(name) for name in names)) for carrier in sorted(latest)],
    )


def show_chains(system: LocalSystem) -> None:
    print("\nWorst chains of inherited delays (stateful StreamTask)")
    longest: dict[tuple[str, str], dict[str, Any]] = {}
    flights = inherited = 0
    for tail, record in records(system, "inherited-delays"):
        flights += 1
        inherited += record["inherited"]
        if record["chain"] > 1 and not record["cancelled"]:
            longest[tail, record["chain_from"]] = record
    worst = sorted(longest.values(), key=lambda r: (-r["chain"], -r["chain_min"], r["tailnum"]))[:10]
    print_table(
        ("aircraft", "late departures in a row", "minutes", "from", "to"),
        [(r["tailnum"], r["chain"], r["chain_min"], r["chain_from"], r["last"]) for r in worst],
    )
    print(f"{flights:,} flights followed, {inherited:,} delays inherited from the flight before")


def show_job(name: str) -> None:
    with open_job(JobId(name)) as handle:
        assignments, changelog = handle.assignments(), handle.changelog_mapping()
        commits = handle.checkpoints()
        containers = sorted(set(assignments.values()))
        print(f"\nJob {handle.job}: {len(assignments)} tasks in {len(containers)} container(s)")
        print_table(
            ("task", "container", "changelog partition", "checkpoint"),
            [
                (
                    task,
                    assignments[task],
                    changelog[task],
                    ", ".join(f"{ssp}: {offset}" for ssp, offset in sorted(commits[task].offsets.items()))
                    if task in commits
                    else "-",
                )
                for task in sorted(assignments)
            ],
        )


def show_places(home: Path) -> None:
    print(f"\nEverything is in {home} (GRETE_HOME):")
    print("  local/coordinator.db  the jobs' coordinator streams: configuration, job model, history")
    print("  local/streams.db      input, outputs, changelogs and checkpoints, committed together")
    print("  jobs/                 store files (a cache of the changelogs), Spark's checkpoints, logs")
    print("Look around: .venv/bin/grete status; .venv/bin/grete checkpoint show --job carriers")


if __name__ == "__main__":
    os.environ.setdefault("GRETE_HOME", str(HERE.parent.parent / ".grete"))
    sys.exit(main())
