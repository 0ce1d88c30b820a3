"""The flights demo's StreamTask on two executors of a core each, on Spark standalone, YARN and Kubernetes, in turns.

    python -m benchmarks.flights_on_managers [--only standalone | yarn | kubernetes ...]
        [--flights 336776] [--rounds 3] [--isolated] [--discard]

One broker has the flights; the servers of a manager are those of the demo's `--cluster`, and run in its turns alone.
On standalone, coordinator and container are processes of this machine, of which executors see nothing; YARN and
Kubernetes run them, too, as `grete deploy apply` lets them. With `--isolated` the application is a package with an
interpreter of its own, as the demo has it there. `records_per_s` is the rate of the records that checkpoints cover,
from the first commit to the last, as in `benchmarks.flights_on_executors`; `seconds_to_first` is from the command to
the first commit. `ratio` is to standalone, of the same round. Each flight has one output of each turn, or there is no
result.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.contestants import keep, surroundings, unwind_at_sigterm
from benchmarks.flights_on_executors import command, turn

from clusters import DEPLOYED, MANAGERS  # isort: skip - flights_on_executors has put them on the path
from figures import counted  # isort: skip
from places import BROKER, Place, isolation, on_kafka  # isort: skip

JOB = "inherited-delays"
TWO_EXECUTORS = {"spark.cores.max": "2", "spark.executor.instances": "2", "spark.executor.cores": "1"}
"""Standalone looks at the first, YARN and Kubernetes at the second."""
_KILL_S = 120.0
_LOG_END = 3_000


def turn_on(
    manager: str, name: str, brokers: str, folder: Path, flights: int, files: Sequence[Path]
) -> dict[str, float]:
    """One run on servers of its own."""
    home, is_deployed = folder / "job", manager in DEPLOYED
    action = ("deploy", "apply") if is_deployed else ("run", "--quiet")
    with MANAGERS[manager](folder / "servers") as its_own:
        settings, load = {**its_own, **TWO_EXECUTORS}, os.getloadavg()[0]
        taken_away = deployed(name, brokers, home, settings, files) if is_deployed else nullcontext()
        with taken_away, explained(folder):
            found = turn(name, brokers, home, flights, settings, action=action, files=files)
        return {**found, "load": load}


@contextmanager
def deployed(
    name: str, brokers: str, folder: Path, settings: Mapping[str, str], files: Sequence[Path]
) -> Iterator[None]:
    """A deployment, which is taken away in the end."""
    try:
        yield
    finally:
        words, environment = command(
            name, folder, settings, action=("deploy", "kill"), files=files, brokers=brokers
        )
        environment = {**os.environ, **environment}
        subprocess.run(words, env=environment, check=True, timeout=_KILL_S, stdout=subprocess.DEVNULL)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """A failure says what the manager's processes have said as well."""
    try:
        yield
    except SystemExit as failure:
        if not isinstance(failure.code, str):  # a signal
            raise
        logs = sorted(
            log for pattern in ("*log", "stdout", "stderr") for log in folder.rglob(pattern) if log.is_file()
        )
        ends = (f"--- {log}\n{log.read_text(errors='replace')[-_LOG_END:]}" for log in logs)
        raise SystemExit("\n".join([str(failure), *ends])) from failure


def turns(
    managers: Sequence[str], flights: int, rounds: int, *, is_isolated: bool
) -> dict[str, list[dict[str, float]]]:
    """Every manager once a round, in turn."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in managers}
    with tempfile.TemporaryDirectory() as name, on_kafka(Path(name)) as place:
        place.load(flights, lambda _: None)
        files = [isolation(Path(name) / "packages", JOB)] if is_isolated else []
        for number in range(rounds):
            for manager in managers:
                job = f"flights-{manager}-{number}"
                folder = Path(name) / job
                found[manager].append(turn_on(manager, job, os.environ[BROKER], folder, flights, files))
                print(job, found[manager][-1], file=sys.stderr, flush=True)
        check_outputs(place, flights * rounds * len(managers))
    return found


def check_outputs(place: Place, expected: int) -> None:
    """As many committed outputs as flights were processed, by all turns together."""
    written = counted(place.system, JOB)
    if written != expected:
        raise SystemExit(f"{written} outputs of {expected} flights: lost or doubled")


def medians(found: Mapping[str, Sequence[Mapping[str, float]]], figure: str) -> dict[str, float]:
    """The median of a figure for each manager."""
    return {name: statistics.median(one[figure] for one in of) for name, of in found.items()}


def ratios(found: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, list[float]]:
    """Rates of the other managers to that of standalone, round by round; nothing without a turn on standalone."""
    base = [one["records_per_s"] for one in found.get("standalone", ())]
    return {
        name: [round(one["records_per_s"] / of, 2) for one, of in zip(turns, base, strict=True)]
        for name, turns in found.items()
        if base and name != "standalone"
    }


def run(managers: Sequence[str], flights: int, rounds: int, *, is_isolated: bool) -> dict[str, object]:
    """The turns and what follows from them."""
    found = turns(managers, flights, rounds, is_isolated=is_isolated)
    ratio = ratios(found)
    return {
        "median_records_per_s": medians(found, "records_per_s"),
        "median_seconds_to_first": medians(found, "seconds_to_first"),
        "ratio": ratio,
        "median_ratio": {name: statistics.median(each) for name, each in ratio.items()},
        "turns": found,
    }


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flights_on_managers")
    parser.add_argument("--only", nargs="+", choices=MANAGERS, default=list(MANAGERS))
    parser.add_argument("--flights", type=int, default=336_776)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--isolated", action="store_true", help="the application in an environment of its own"
    )
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    given = parser.parse_args()
    unwind_at_sigterm()
    figures = {
        **surroundings(),
        "flights": given.flights,
        "isolated": given.isolated,
        **run(given.only, given.flights, given.rounds, is_isolated=given.isolated),
    }
    keep(figures, kind="flights-on-managers", is_discarded=given.discard)


if __name__ == "__main__":
    main()
