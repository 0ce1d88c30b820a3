"""From an empty folder to a first result: commands, files, lines and seconds, grete and its peers in one run.

Everybody has installed his framework. Counted is what a person types (commands), writes (files and their lines, of
what the framework has not written by itself) and waits for: from the first command until the first result is on the
screen. quix-streams has its broker running already, which is not counted. Turns are taken, three of each.

    python -m benchmarks.first_result
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.contestants import CACHE, keep, peers_python
from grete.testing.kafka_broker import KafkaCluster

HERE = Path(__file__).parent / "newcomer"
TURNS = 3
PIPELINES = "pyspark[pipelines]==4.2.0"
SHOW = """
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
session.read.parquet("spark-warehouse/example_python_materialized_view").show()
"""
"""The result is a table: somebody has to look at it."""
_WITHIN_S = 120.0
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Way:
    """What is typed, one after the other; the last one's output shows the result, which has this text in it."""

    commands: Sequence[Sequence[str]]
    shows: str
    written: Sequence[Path] = ()
    folder: str = "."
    """Of the commands after the first."""
    programs: Path = BIN
    """The folder of its environment's programs, which is first on the path."""


def ways() -> dict[str, Way]:
    """Each framework's own way in, as its first page has it."""
    python, pipelines = peers_python(), _pipelines_environment()
    grete = str(BIN / "grete")
    task, pipeline = (
        Way([[grete, "init", "clicks", "--kind", kind], [grete, "dev"]], "local.alarms  ", folder="clicks")
        for kind in ("task", "pipeline")
    )
    return {
        "grete, a task": task,
        "grete, a pipeline": pipeline,
        "bytewax": Way(
            [[python, "-m", "bytewax.run", "bytewax_flow:flow"]], "('home', 1)", [HERE / "bytewax_flow.py"]
        ),
        "quix-streams": Way(
            [[python, "quix_clicks.py"], [python, "quix_streams.py"]],
            "'page': ",
            [HERE / "quix_clicks.py", HERE / "quix_streams.py"],
        ),
        "spark-pipelines": Way(
            [
                [str(pipelines / "spark-pipelines"), "init", "--name", "clicks"],
                [str(pipelines / "spark-pipelines"), "run"],
                [str(pipelines / "python"), "-c", SHOW],
            ],
            "+---+",
            folder="clicks",
            programs=pipelines,
        ),
    }


def _pipelines_environment() -> Path:
    """The programs of an environment with Spark's declarative pipelines; made when it is not there."""
    home = CACHE / "bench-pipelines"
    if not (home / "bin" / "spark-pipelines").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", PIPELINES], check=True)
    return home / "bin"


def once(way: Way, environment: Mapping[str, str]) -> float:
    """Seconds until the result is there.

    Raises:
        AssertionError: a command failed, or the result did not come.
    """
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        for path in way.written:
            shutil.copy(path, at)
        began_s = time.monotonic()
        for number, command in enumerate(way.commands[:-1]):
            where = at / way.folder if number else at
            done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-2000:]
        where = at / way.folder if len(way.commands) > 1 else at
        return _until_shown(way, where, environment) - began_s


def _until_shown(way: Way, where: Path, environment: Mapping[str, str]) -> float:
    with (where / "said").open("w+") as said:
        running = subprocess.Popen(
            way.commands[-1],
            cwd=where,
            env={**environment, "PYTHONUNBUFFERED": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            until_s = time.monotonic() + _WITHIN_S
            while way.shows not in (text := Path(said.name).read_text(errors="replace")):
                assert time.monotonic() < until_s, text[-2000:]
                time.sleep(0.02)
            return time.monotonic()
        finally:
            running.send_signal(signal.SIGINT)
            try:
                running.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()


def lines(path: Path) -> int:
    """Lines that say something."""
    return sum(bool(line.strip()) for line in path.read_text().splitlines())


def run() -> dict[str, object]:
    """The figures of each."""
    known = ways()
    with tempfile.TemporaryDirectory() as folder:
        kafka = KafkaCluster(Path(folder))
        try:
            kafka.start()
            found = _turns(known, kafka.bootstrap)
        finally:
            kafka.stop()
    return {
        name: {
            "commands": len(known[name].commands),
            "files": len(known[name].written),
            "lines": sum(map(lines, known[name].written)),
            "seconds": [round(one, 2) for one in seconds],
            "median_s": round(statistics.median(seconds), 2),
        }
        for name, seconds in found.items()
    }


def _turns(known: Mapping[str, Way], bootstrap: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for _ in range(TURNS):
        for name, way in known.items():
            path = f"{way.programs}:{os.environ['PATH']}"
            environment = {**os.environ, "BROKER": bootstrap, "PATH": path}
            environment.pop("GRETE_HOME", None)
            found.setdefault(name, []).append(once(way, environment))
    return found


def main() -> None:
    """Measure, print, keep."""
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background ignores it, and so would all below
    figures = {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_1_min": os.getloadavg()[0],
        "first_result": run(),
    }
    keep(figures, kind="first-result", is_discarded=False)


if __name__ == "__main__":
    main()
