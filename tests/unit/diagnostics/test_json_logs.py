"""Logs as JSON lines: of a record whatever it holds, and of all processes of a job."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.visits_job import append, behind, running_visits

from grete import text_logs
from grete.testing.waiting import eventually
from grete.text_logs import JsonFormatter, log_as


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_logs, "_works_for", {})


def line_of(message: str, *arguments: object, **more: Any) -> str:
    record = logging.LogRecord("grete.tasks", logging.ERROR, __file__, 1, message, arguments, **more)
    return JsonFormatter().format(record)


def test_a_record_is_one_line_whatever_it_holds() -> None:
    log_as(job="words", container="0")
    try:
        raise ValueError("two\nlines, and \ud800 is no text")
    except ValueError:
        line = line_of("a %s\x1b[2J", "\nforged line", exc_info=sys.exc_info())
    assert line.isprintable()
    found = json.loads(line)
    assert (found["level"], found["logger"]) == ("ERROR", "grete.tasks")
    assert found["message"] == "a \nforged line\x1b[2J"
    assert found["exception"].splitlines()[0] == "Traceback (most recent call last):"
    assert (found["job"], found["container"]) == ("words", "0")
    assert found["time"].endswith("Z")


def test_all_processes_of_a_job_say_whom_they_work_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRETE_LOG_FORMAT", "json")
    with running_visits(home, "a visit"):
        append(home, "odd")
        eventually(lambda: behind() == 0, "it is set aside")
    coordinator = [json.loads(line) for line in (home / "run.log").read_text().splitlines()]
    assert {one["job"] for one in coordinator[1:]} == {"visits"}
    [log] = home.rglob("container-0.log")
    container = [json.loads(line) for line in log.read_text().splitlines()]
    assert {one["container"] for one in container} == {"0"}
    assert {one.get("job") for one in container[-3:]} == {"visits"}
    assert container
