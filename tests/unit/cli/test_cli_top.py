"""`grete top`: what the screen shows, what keys do, and that a real terminal gets it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grete.cli.main import main
from grete.cli.top_screen import HELP, Room, Screen
from grete.testing.waiting import eventually


def row(job: str, state: str, behind: int | None, rate: float | None, message: str = "") -> dict[str, Any]:
    figures = {"behind": behind, "rate": rate, "tasks": 4}
    return {"job": job, "state": state, **figures, "run_by": "process 1 on a", "message": message}


JOBS = [
    row("orders", "running", 12_000, 512.4),
    row("visits", "failed", None, None, "KeyError\x1b[31m"),
    row("words", "running", 7, 0.0),
]
TASKS = [
    {
        "task": f"Partition {number}",
        "container": str(number % 2),
        "partition": f"kafka.in.{number}",
        "checkpointed": str(number),
        "upcoming": "90",
        "behind": number,
    }
    for number in range(50)
]


@pytest.fixture
def screen() -> Screen:
    def rows(room: Room, job: str) -> list[dict[str, Any]]:
        return {
            Room.JOBS: JOBS,
            Room.TASKS: TASKS,
            Room.LOG: [{"line": f"{job} line {i}"} for i in range(100)],
        }[room]

    return Screen(rows)


def first_words(screen: Screen, *, width: int = 120, height: int = 10) -> list[str]:
    return [line.split("  ")[0] for line in screen.lines(width, height, "top")[3:]]


def test_jobs_are_shown_with_their_figures_and_nothing_that_moves_a_terminal(screen: Screen) -> None:
    lines = screen.lines(200, 20, "top")
    assert lines[1] == HELP
    assert "12,000" in lines[3]
    assert "512.40" in lines[3]
    assert "KeyError\\x1b[31m" in lines[4]
    assert not any("\x1b" in line for line in lines)
    assert all(len(line) <= 60 for line in screen.lines(60, 20, "top"))


def test_keys_choose_open_and_go_back(screen: Screen) -> None:
    screen.lines(120, 10, "top")
    for key in ("down", "down", "down", "up"):
        screen.press(key)
    screen.lines(120, 10, "top")
    assert screen.chosen_line() == 4
    screen.press("enter")
    assert "visits" in screen.lines(120, 10, "top")[0]
    assert (screen.room, screen.job) == (Room.TASKS, "visits")
    screen.press("l")
    assert "visits line 99" in screen.lines(120, 10, "top")[-1], "a log is shown from its end"
    for room in (Room.TASKS, Room.JOBS, Room.JOBS):
        screen.press("escape")
        assert screen.room is room
    screen.press("q")
    assert screen.is_over


def test_rows_are_sorted_by_a_column_and_the_other_way(screen: Screen) -> None:
    assert first_words(screen) == ["orders", "visits", "words"]
    for _ in range(2):
        screen.press("s")
    assert first_words(screen) == ["orders", "words", "visits"], (
        "the most behind first, what is not known last"
    )
    screen.press("r")
    assert first_words(screen)[-1] == "orders"


def test_a_filter_is_typed(screen: Screen) -> None:
    for key in ("/", "x", "backspace", "f", "A", "i", "l", "enter"):
        screen.press(key)
    assert first_words(screen) == ["visits"]
    assert "filter: fAil" in screen.lines(120, 10, "top")[0]


def test_a_long_table_follows_what_is_chosen(screen: Screen) -> None:
    screen.lines(120, 10, "top")
    screen.press("enter")
    screen.lines(120, 10, "top")
    for key in ("page-down", "page-down", "page-down"):
        screen.press(key)
    lines = screen.lines(120, 10, "top")
    assert len(lines) == 10
    assert screen.chosen_line() == 9
    assert "Partition 9" in lines[9] or "Partition 49" in lines[9]


def test_without_a_terminal_the_way_out_is_named(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 2
    assert "grete status --watch" in capsys.readouterr().err


class Terminal:
    """`grete top` in a terminal of 100 columns and 24 lines."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.said = ""

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def shows(self, text: str) -> None:
        eventually(lambda: text in self._read(), f"the screen has {text!r}", context=lambda: self.said)

    def _read(self) -> str:
        while select.select([self._descriptor], [], [], 0.05)[0]:
            try:
                self.said += os.read(self._descriptor, 65_536).decode("utf-8", "replace")
            except OSError:  # the other end is gone
                break
        return self.said


@contextmanager
def terminal(home: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, "-m", "grete.cli.main", "--home", str(home), "top"]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_real_terminal_gets_the_jobs_a_jobs_tasks_and_its_end(job: Path) -> None:
    with terminal(job) as shown:
        shown.shows("orders")
        shown.shows("finished")
        shown.press("\r")
        shown.shows("local.in.1")
        shown.press("l")
        shown.shows("no container of this job has a log")
        shown.press("q")
        began_s = time.monotonic()
        assert shown.process.wait(20) == 0, f"after {time.monotonic() - began_s:.0f} s"
