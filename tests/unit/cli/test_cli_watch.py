"""`--watch` shows an answer again until it is interrupted, and a mistake ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grete.cli import watching
from grete.cli.main import EXIT_INTERRUPTED, main

Output = pytest.CaptureFixture[str]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, the third of which is interrupted."""
    made: list[float] = []

    def pause(seconds: float) -> None:
        made.append(seconds)
        if len(made) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching, "sleep", pause)  # not that of every thread: one would die as it begins
    return made


@pytest.mark.parametrize("command", [["status"], ["status", "--job", "orders"], ["container", "list"]])
def test_an_answer_comes_again_until_it_is_interrupted(
    job: Path, capsys: Output, pauses: list[float], command: list[str]
) -> None:
    assert main([*command, "--watch"]) == EXIT_INTERRUPTED
    assert pauses == [2.0, 2.0, 2.0]
    out = capsys.readouterr().out
    assert out.count("UTC\n") == 3
    assert out.count("ended with the job" if command[0] == "container" else "finished") == 3
    assert "\x1b" not in out, "this is no terminal"


def test_programs_get_a_document_each_time(job: Path, capsys: Output, pauses: list[float]) -> None:
    assert main(["status", "--watch", "5", "-o", "json"]) == EXIT_INTERRUPTED
    assert pauses == [5.0, 5.0, 5.0]
    decoder, text, found = json.JSONDecoder(), capsys.readouterr().out, []
    while text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document[0]["state"])
        text = text[end:].lstrip()
    assert found == ["finished"] * 3


def test_a_job_that_is_not_there_is_said_at_once(home: Path, capsys: Output, pauses: list[float]) -> None:
    assert main(["status", "--job", "nothing", "--watch"]) == 1
    assert pauses == []
