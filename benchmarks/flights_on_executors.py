"""The flights demo's StreamTask on two isolated executors of a standalone cluster against local[2], in turns.

    python -m benchmarks.flights_on_executors [--flights 336776] [--rounds 3] [--discard]

Measured is the rate of the records that checkpoints cover, from the first to the last, so neither start nor end
counts. `ratio` is that of two executors of one core each to `local[2]`, of the same round; the goal is 0.8 on a quiet
machine of two cores, on which more processes have no more room.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.contestants import Command, keep, running, surroundings, unwind_at_sigterm
from benchmarks.executors import LOCAL, servers
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import read_commits
from grete.clock import SystemClock
from grete.config.load import load
from grete.config.settings import Settings
from grete.model.ids import JobId
from grete.systems.base import System
from grete.systems.factory import open_system

FLIGHTS = Path(__file__).resolve().parents[1] / "examples" / "flights"
sys.path.append(str(FLIGHTS))  # as the demo does: its modules are an application's, in no package

from load_kafka import load_topic  # noqa: E402 - see above

CONFIGS = ("inherited-delays", "kafka", "inherited-delays-on-kafka")
_LOOK_EVERY_S = 0.1
_PATIENCE_S = 240.0


def turn(
    name: str,
    brokers: str,
    folder: Path,
    flights: int,
    settings: Mapping[str, str],
    *,
    action: Sequence[str] = ("run", "--quiet"),
    files: Sequence[Path] = (),
) -> dict[str, float]:
    """One run of the job, under a name of its own, until it has covered all flights.

    `action` is the command that runs the job, or hands it over to a cluster manager; `files` are more configuration.
    """
    folder.mkdir(parents=True)
    drained = (*action, "--until-drained")
    words = command(name, folder, settings, action=drained, files=files, brokers=brokers)
    began_s, seen = time.monotonic(), list[tuple[float, int]]()
    with (
        closing(system_of(brokers, folder)) as system,
        running(words, folder / "log") as process,
    ):
        while not seen or seen[-1][1] < flights:
            now = covered(system, name)
            seen += [(time.monotonic(), now)] if now and (not seen or now > seen[-1][1]) else []
            if process.poll() not in (None, 0) or time.monotonic() > began_s + _PATIENCE_S:
                raise SystemExit(f"{now} of {flights} flights, then: {(folder / 'log').read_text()[-3_000:]}")
            time.sleep(_LOOK_EVERY_S)
        process.wait(60)
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    return {
        "records_per_s": round((last - first) / max(last_s - first_s, _LOOK_EVERY_S)),
        "measured_records": last - first,
        "seconds_to_first": round(first_s - began_s, 1),
    }


def command(
    name: str,
    folder: Path,
    settings: Mapping[str, str],
    *,
    action: Sequence[str],
    files: Sequence[Path] = (),
    brokers: str,
) -> Command:
    """A command of grete's with the configuration of a turn, in its home."""
    configs = [*(FLIGHTS / f"{one}.properties" for one in CONFIGS), *files]
    words = [word for config in configs for word in ("--config", str(config))]
    for key, value in {"job.name": name, **settings}.items():
        words += ["--set", f"{key}={value}"]
    environment = {"GRETE_HOME": str(folder / "home"), "GRETE_DEMO_KAFKA": brokers}
    return [sys.executable, "-m", "grete.cli.main", *action, *words], environment


def system_of(brokers: str, folder: Path) -> System:
    """The job's system on Kafka."""
    os.environ["GRETE_DEMO_KAFKA"] = brokers
    config = load([str(FLIGHTS / f"{one}.properties") for one in CONFIGS], {})
    return open_system(Settings.of(config), "kafka", folder, SystemClock())


def covered(system: System, name: str) -> int:
    """How many input records the job's checkpoints cover."""
    commits = read_commits(system.checkpoint_log(checkpoint_log_name(JobId(name))).read())
    return sum(int(offset) + 1 for commit in commits.values() for offset in commit.offsets.values())


def run(flights: int, rounds: int) -> dict[str, object]:
    """Both once a round, in turn."""
    found: dict[str, list[dict[str, float]]] = {LOCAL: [], "2 executors": []}
    with tempfile.TemporaryDirectory() as place, servers(Path(place), 2) as (brokers, master):
        folder = Path(place) / "turns"
        folder.mkdir(exist_ok=True)
        with closing(system_of(brokers, folder)) as system:
            load_topic(brokers, system, flights, lambda _: None)
        there = {"spark.master": master, "spark.cores.max": "2", "spark.executor.memory": "768m"}
        for number in range(rounds):
            for name, settings in ((LOCAL, {"spark.master": LOCAL}), ("2 executors", there)):
                job = f"flights-{''.join(filter(str.isalnum, name))}-{number}"
                found[name].append(turn(job, brokers, folder / job, flights, settings))
                print(job, found[name][-1], file=sys.stderr, flush=True)
    rates = {name: [one["records_per_s"] for one in turns] for name, turns in found.items()}
    ratios = [round(there / here, 2) for here, there in zip(rates[LOCAL], rates["2 executors"], strict=True)]
    return {"ratio": ratios, "median_ratio": statistics.median(ratios), "turns": found}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flights_on_executors")
    parser.add_argument("--flights", type=int, default=336_776)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    given = parser.parse_args()
    unwind_at_sigterm()
    figures = {**surroundings(), "flights": given.flights, **run(given.flights, given.rounds)}
    keep(figures, kind="flights-on-executors", is_discarded=given.discard)


if __name__ == "__main__":
    main()
