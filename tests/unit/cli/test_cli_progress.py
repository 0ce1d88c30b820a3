"""The progress line: rewritten in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io

import pytest

from grete.cli.progress import ProgressLine
from grete.cli.run_command import Restarts
from grete.coordinator.health import JobHealth


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_line_is_rewritten_and_the_last_one_stays() -> None:
    stream = Terminal()
    progress = ProgressLine(stream)
    for line in ("1 of 3", "1 of 3", "2 of 3"):
        progress.show(line)
    progress.end("3 of 3")
    assert stream.getvalue().split("\r\x1b[K") == ["", "1 of 3", "2 of 3", "3 of 3\n"]


def test_a_line_of_its_own_stays_whole_above_those_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        progress = ProgressLine(stream)
        progress.show("1 of 3")
        progress.stay("a restart")
        progress.end("3 of 3")
    assert terminal.getvalue().split("\r\x1b[K") == ["", "1 of", "a restart\n", "3 of 3\n"]
    assert file.getvalue() == "1 of 3\na restart\n3 of 3\n"


@pytest.mark.parametrize(("said_at", "said"), [(1, ["1", "2", "3", "4", "1"]), (3, ["3"])])
def test_of_restarts_each_is_said_once_or_the_third_alone(said_at: int, said: list[str]) -> None:
    restarts = Restarts(said_at)
    seen = [restarts.new(JobHealth("restarting", str(one), one)) for one in (0, 1, 2, 2, 3, 3, 4, 0, 1)]
    assert [one for one in seen if one] == said


def test_on_a_terminal_a_line_is_cut_to_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    stream = Terminal()
    ProgressLine(stream).show("123456789")
    assert stream.getvalue() == "\r\x1b[K1234"


def test_elsewhere_lines_are_few_and_the_last_is_always_there() -> None:
    stream = io.StringIO()
    progress = ProgressLine(stream)
    for number in range(1000):
        progress.show(f"{number} of 1000")
    progress.end("1000 of 1000")
    assert stream.getvalue() == "0 of 1000\n1000 of 1000\n"


def test_a_last_line_that_is_shown_already_is_not_repeated() -> None:
    stream = io.StringIO()
    progress = ProgressLine(stream)
    progress.show("done")
    progress.end("done")
    assert stream.getvalue() == "done\n"
