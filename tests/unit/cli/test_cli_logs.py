"""`grete logs`: what the containers of a job log, without knowing where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.model.ids import JobId
from grete.operations import open_job
from grete.testing.waiting import eventually

Output = pytest.CaptureFixture[str]


@pytest.fixture
def logs(home: Path) -> Path:
    with open_job(JobId("orders"), must_exist=False) as handle:
        handle.stream.write_config({"job.name": "orders"}, run_id="run-1", reason="first")
    folder = home / "jobs" / "orders-1" / "logs"
    folder.mkdir(parents=True)
    for id_ in ("0", "1"):
        (folder / f"container-{id_}.log").write_text("".join(f"line {n} of {id_}\n" for n in range(5)))
    return folder


def test_the_last_lines_of_every_container_are_shown_with_whose_they_are(logs: Path, capsys: Output) -> None:
    assert main(["logs", "--job", "orders", "-n", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *("[0] line 3 of 0", "[0] line 4 of 0"),
        *("[1] line 3 of 1", "[1] line 4 of 1"),
    ]


def test_one_container_is_shown_alone(logs: Path, capsys: Output) -> None:
    assert main(["logs", "--job", "orders", "--container", "1", "-n", "1"]) == 0
    assert capsys.readouterr().out == "line 4 of 1\n"
    assert main(["logs", "--job", "orders", "--container", "7"]) == 1
    assert "no logs of container '7'" in capsys.readouterr().err


def test_a_log_cannot_talk_to_the_terminal(logs: Path, capsys: Output) -> None:
    (logs / "container-0.log").write_bytes(b"a\x1b[31m\tb\xff\n")
    assert main(["logs", "--job", "orders", "--container", "0"]) == 0
    assert capsys.readouterr().out == "a\\x1b[31m\tb\ufffd\n"


def test_lines_are_objects_for_programs(logs: Path, capsys: Output) -> None:
    assert main(["logs", "--job", "orders", "--container", "0", "-n", "1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"container": "0", "line": "line 4 of 0"}


def test_what_is_written_later_follows_also_into_a_new_file(logs: Path, tmp_path: Path) -> None:
    log, shown = logs / "container-0.log", tmp_path / "shown"
    command = [sys.executable, "-m", "grete.cli.main", "logs", "--job", "orders", "--container", "0", "-f"]
    with (
        shown.open("w") as output,
        subprocess.Popen(command, stdout=output, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process,
    ):
        try:
            eventually(lambda: "line 4" in shown.read_text(), "what was there", within_s=60)
            with log.open("a") as file:
                file.write("half")
                file.flush()
                file.write(" a line\n")
            eventually(lambda: "half a line\n" in shown.read_text(), "what was appended", within_s=60)
            log.rename(log.with_suffix(".log.1"))
            log.write_text("the next log\n")
            eventually(lambda: "the next log" in shown.read_text(), "the next log", within_s=60)
        finally:
            process.kill()
