"""Changes that an autosizer or an operator wrote into the coordinator stream, when the file is submitted again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.assembly.submission import RunOptions, Submission
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings

FILE = "job.name=sized\ntask.class=sized:Sized\ntask.inputs=local.in\n"
RESULT = "job.autosizing.container.count"


def submit(home: Path, text: str, *, found: dict[str, str] | None = None) -> dict[str, str]:
    """Submit the file; then another program writes what it `found`. The configuration in force."""
    file = home / "sized.properties"
    file.write_text(text)
    with ExitStack() as stack:
        submission = Submission(RunOptions(config_paths=[str(file)]), home, SystemClock(), stack)
        submission.open()
        leadership = submission.campaign(None)
        submission.asked().write(submission.stream, lambda config: None)
        if found:
            submission.stream.put("set-config", found)
        submission.stream.catch_up()
        submission.coordination.release(leadership)
        return submission.stream.config()


def test_results_of_an_autosizer_survive_a_submit_while_it_is_on(home: Path) -> None:
    on = FILE + "job.autosizing.enabled=true\n"
    submit(home, on, found={RESULT: "3"})
    again = submit(home, on)
    assert again[RESULT] == "3"
    assert Settings.of(again).job.container_count == 3
    assert submit(home, on + f"{RESULT}=2\n")[RESULT] == "2"  # what the file says wins


def test_they_go_with_a_submit_that_has_it_off(home: Path) -> None:
    submit(home, FILE + "job.autosizing.enabled=true\n", found={RESULT: "3"})
    off = submit(home, FILE)
    assert RESULT not in off
    assert Settings.of(off).job.container_count == 1


def test_what_a_submit_takes_back_is_said_by_name(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    submit(home, FILE)
    assert main(["config", "set", "--job", "sized", "task.max.records.per.batch=77", "task.commit.ms=1"]) == 0
    assert "task.max.records.per.batch" not in submit(home, FILE + "task.commit.ms=2\n")
    (said,) = [one.getMessage() for one in caplog.records if "go back" in one.getMessage()]
    assert "go back to what is submitted: task.max.records.per.batch (" in said
    caplog.clear()
    submit(home, FILE + "task.commit.ms=3\n")
    assert not [one for one in caplog.records if "go back" in one.getMessage()]
