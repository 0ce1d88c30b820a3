"""The progress line: rewritten in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io

import pytest

from grete.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_line_is_rewritten_and_the_last_one_stays() -> None:
    stream = Terminal()
    progress = Progress(stream)
    for line in ("1 of 3", "1 of 3", "2 of 3"):
        progress.show(line)
    progress.end("3 of 3")
    assert stream.getvalue().split("\r\x1b[K") == ["", "1 of 3", "2 of 3", "3 of 3\n"]


def test_on_a_terminal_a_line_is_cut_to_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    stream = Terminal()
    Progress(stream).show("123456789")
    assert stream.getvalue() == "\r\x1b[K1234"


def test_elsewhere_lines_are_few_and_the_last_is_always_there() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for number in range(1000):
        progress.show(f"{number} of 1000")
    progress.end("1000 of 1000")
    assert stream.getvalue() == "0 of 1000\n1000 of 1000\n"


def test_a_last_line_that_is_shown_already_is_not_repeated() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.show("done")
    progress.end("done")
    assert stream.getvalue() == "done\n"
