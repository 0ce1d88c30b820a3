"""Logs that grow while a container lives."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from grete.launch import log_files, process
from grete.launch.base import ContainerStart
from grete.launch.log_files import cut
from grete.launch.process import ProcessLauncher
from grete.model.ids import ContainerId
from grete.testing.waiting import eventually

WRITING = "n = 0\nwhile True:\n    n += 1\n    print(f'line {n:09d}', flush=True)\n"


def test_a_log_is_cut_while_its_writer_goes_on(tmp_path: Path) -> None:
    log, before = tmp_path / "container-0.log", tmp_path / "container-0.log.1"
    with log.open("ab") as output:
        writer = subprocess.Popen([sys.executable, "-c", WRITING], stdout=output)
    try:
        for _ in range(3):
            eventually(lambda: log.stat().st_size > 100_000, "it grows")
            cut(log, 100_000)
            assert before.stat().st_size > 100_000
            eventually(lambda: log.stat().st_size > 0, "the writer goes on")
            whole = before.read_text().splitlines()
            numbers = [int(line.split()[1]) for line in whole[1:-1]]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert "\0" not in log.read_text(), "no hole where the writer was before"
    finally:
        writer.kill()
        writer.wait()
    assert (before.stat().st_mode & 0o077) == 0


def test_the_launcher_cuts_the_logs_of_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOOK_S", 0.0)
    monkeypatch.setattr(log_files.cut, "__defaults__", (10_000,))
    with closing(ProcessLauncher([sys.executable, "-c", WRITING], tmp_path)) as launcher:
        launcher.start(ContainerStart(ContainerId("0"), 1, {}))

        def is_cut() -> bool:
            assert launcher.exits() == []
            return (tmp_path / "container-0.log.1").exists()

        eventually(is_cut, "the log is cut")


def test_of_a_log_that_was_never_looked_at_the_end_is_what_stays(tmp_path: Path) -> None:
    log = tmp_path / "container-0.log"
    log.write_text("".join(f"line {n:09d}\n" for n in range(10_000)))
    cut(log, 1_500)
    assert log.stat().st_size == 0
    lines = (tmp_path / "container-0.log.1").read_text().splitlines()
    assert (len(lines), lines[-1]) == (200, "line 000009999")


def test_what_cannot_be_cut_stays_and_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "container-0.log"
    cut(log, 0)
    log.write_text("a line\n")
    (tmp_path / "container-0.log.1").mkdir()
    with caplog.at_level(logging.WARNING):
        cut(log, 0)
    assert log.read_text() == "a line\n"
    assert "could not be cut" in caplog.text
