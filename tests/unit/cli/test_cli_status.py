"""`grete status` of all jobs: one that cannot be looked at hides no other."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.clock import SystemClock
from grete.coordination.base import Holder
from grete.coordinator.health import RESTARTING, STARTING
from grete.metadata.job_index import claim_stream
from grete.metadata.job_state import JobState, write_state
from grete.model.ids import JobId
from grete.operations import open_job
from grete.operations.job_election import JobElection
from grete.systems.local.system import LocalSystem

JOB = JobId("orders")
CONFIG = {
    "job.name": "orders",
    "job.coordinator.system": "local",
    "task.class": "orders:Orders",
    "task.inputs": "local.in",
}
KEYS = {
    *(
        "job",
        "state",
        "tasks",
        "behind",
        "lag",
        "run_by",
        "silent_s",
        "url",
        "public_url",
        "token_file",
        "run_id",
    ),
    *("epoch", "hosts", "quarantined", "quarantined_count", "on_their_own", "processors", "resting", "spark"),
    "expectations",
    "message",
}
Output = pytest.CaptureFixture[str]


@pytest.fixture
def job(home: Path, system: LocalSystem) -> Path:
    with open_job(JOB, must_exist=False) as handle:
        claim_stream(handle.coordinator_log._file, JOB)  # type: ignore[attr-defined] # as `grete run` does
        handle.stream.write_config(CONFIG, run_id="run-1", reason="first")
        write_state(handle.stream, JobState("finished", "run-1", 1))
    return home


def submitted_elsewhere(home: Path, name: str, text: str) -> None:
    folder = home / "coordinators"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}-1.json").write_text(text)


def on_kafka(name: str, servers: str) -> str:
    return json.dumps(
        {
            "job.name": name,
            "job.id": "1",
            "job.coordinator.system": "far",
            "systems.far.samza.factory": "kafka",
            "systems.far.producer.bootstrap.servers": servers,
        }
    )


def rows(capsys: Output) -> dict[str, dict[str, object]]:
    assert main(["status", "-o", "json"]) == 0
    found = {row["job"]: row for row in json.loads(capsys.readouterr().out)}
    assert all(set(row) == KEYS for row in found.values())
    return found


def test_a_job_whose_only_submit_has_failed_hides_no_other(job: Path, capsys: Output) -> None:
    submitted_elsewhere(job, "typo", '{"job.name": "typo", "job.id": "1", "job.coordinator.system": "local"}')
    found = rows(capsys)
    assert (found["orders"]["state"], found["typo"]["state"]) == ("finished", "never ran")


def test_a_damaged_note_of_a_job_hides_no_other(job: Path, capsys: Output) -> None:
    submitted_elsewhere(job, "torn", "{")
    assert set(rows(capsys)) == {"orders"}


def test_while_the_brokers_of_one_job_are_away_the_others_are_shown_within_five_seconds(job: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, without a listener
        submitted_elsewhere(job, "far", on_kafka("far", f"127.0.0.1:{silent.getsockname()[1]}"))
        began_s = time.monotonic()
        result = timed(job, "status")
    assert time.monotonic() - began_s < 100
    assert result.returncode == 0
    assert float(result.stderr.splitlines()[-1]) < 5
    assert len(result.stderr.splitlines()) <= 4, "three of the command, one of the test"
    words = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()[1:]}
    assert words == {"far": "unreachable", "orders": "finished"}


def test_of_one_job_whose_brokers_are_away_is_shown_what_is_known_here(job: Path) -> None:
    logs = job / "jobs" / "far-1" / "logs"
    logs.mkdir(parents=True)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        submitted_elsewhere(job, "far", on_kafka("far", f"127.0.0.1:{silent.getsockname()[1]}"))
        result = timed(job, "status", "--job", "far", "-o", "json")
    assert result.returncode == 0, result.stderr
    assert float(result.stderr.splitlines()[-1]) < 15
    [row] = json.loads(result.stdout)
    assert (set(row), row["state"]) == (KEYS, "unreachable")
    assert str(logs) in row["message"]


def test_of_one_job_whose_inputs_are_away_all_but_the_lag_is_shown(job: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        far = {"systems.far.samza.factory": "kafka", "systems.far.producer.bootstrap.servers": servers}
        with open_job(JOB) as handle:
            inputs = {**CONFIG, **far, "task.inputs": "far.in"}
            handle.stream.write_config(inputs, run_id="run-1", reason="moved")
        result = timed(job, "status", "--job", "orders", "-o", "json")
    assert result.returncode == 0, result.stderr
    assert float(result.stderr.splitlines()[-1]) < 15
    [row] = json.loads(result.stdout)
    assert row["state"] == "finished"
    assert "the lag is not known" in row["message"]


def timed(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; the last line of its errors says how long it took, without imports."""
    return subprocess.run(
        [sys.executable, "-c", _TIMED, *words],
        env={**os.environ, "GRETE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
    )


_TIMED = """
import sys, time
from grete.cli.main import main
import grete.operations, grete.keyed_log.kafka
began_s = time.monotonic()
code = main(sys.argv[1:])
print(time.monotonic() - began_s, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("word", [STARTING, RESTARTING, "running"])
def test_a_running_job_says_how_it_stands_and_where_it_is_asked(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    holder = Holder("far", 7, "x", SystemClock().wall_ms(), None)
    monkeypatch.setattr(JobElection, "holder", lambda handle: holder)
    message = "restarting 3/9: KeyError 'page' at local.views.0 offset 4"
    with open_job(JOB) as handle:
        url, token = "http://127.0.0.1:7", "/home/http-token"
        write_state(handle.stream, JobState("running", "run-1", 1, url, token, message, standing=word))
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    for text in (word, message, url):
        assert text in shown
    assert token not in shown, "it made every line wider"
    assert main(["status", "--job", "orders"]) == 0
    shown = capsys.readouterr().out
    assert word in shown
    assert f"\nmessage: {message}\ntoken file: {token}\n" in shown


def test_a_table_of_jobs_fits_a_terminal_and_a_file_gets_all_of_it(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "it went on and on" + "!" * 400
    with open_job(JOB) as handle:
        write_state(handle.stream, JobState("failed", "run-1", 1, message=message))
    assert main(["status"]) == 0
    assert message in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 100
    assert lines[-1].endswith("…")
    assert main(["status", "--job", "orders"]) == 0
    assert message in capsys.readouterr().out, "of one job all is said"


def test_a_home_without_jobs_says_what_makes_one(home: Path, capsys: Output) -> None:
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith(f"no jobs in {home}. `grete run --config FILE` submits one")
