"""Samza's scripts and their flags as they stand in runbooks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.finished_job import Output, config_file

from grete.cli.main import main
from grete.cli.samza_scripts import in_our_words

FACTORY = "--config-factory=org.apache.samza.config.factories.PropertiesConfigFactory"
LOADER = "job.config.loader.properties.path=/etc/job.properties"
FILE = "--config-path=file:///etc/job.properties"


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (["run-app.sh", FACTORY, FILE], ["run", FILE]),
        (["run-app.sh", "--operation=kill", FILE], ["stop", FILE]),
        (["run-app.sh", FILE, "--operation", "status"], ["status", FILE]),
        (
            ["run-app.sh", "--config", LOADER, "--config", "task.window.ms=5", "--config=job.id=2"],
            ["run", "--config", LOADER, "--set", "task.window.ms=5", "--set", "job.id=2"],
        ),
        (["run-job.sh", "--config-factory", FACTORY.partition("=")[2], FILE], ["run", FILE]),
        (["run-job", "--config", "jobs/a=b.properties"], ["run", "--config", "jobs/a=b.properties"]),
        (["checkpoint-tool.sh", FILE], ["checkpoint", "show", FILE]),
        (
            ["checkpoint-tool.sh", FILE, "--new-offsets=file:///tmp/offsets"],
            ["checkpoint", "overwrite", FILE, "--new-offsets=file:///tmp/offsets"],
        ),
        (
            ["run-coordinator-stream-writer.sh", FILE, "--type", "set-config", "--key", "a", "--value", "b"],
            ["stream", "write", FILE, "--type", "set-config", "--key", "a", "--value", "b"],
        ),
        (["run", FILE], ["run", FILE]),
        ([], []),
    ],
)
def test_a_script_is_the_command_that_does_the_same(given: list[str], ours: list[str]) -> None:
    assert in_our_words(given) == ours


def test_checkpoints_are_shown_by_the_name_of_samzas_tool(job: Path, capsys: Output) -> None:
    assert main(["checkpoint", "show", "--config", str(config_file(job))]) == 0
    shown = capsys.readouterr().out
    assert shown
    assert main(["checkpoint-tool.sh", FACTORY, f"--config-path=file://{config_file(job)}"]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            ["kill-yarn-job.sh", "application_1_2"],
            "grete stop ends a job in order, grete deploy kill at once",
        ),
        (
            ["run-app.sh", "--operation=kill", FILE, "--config", "job.id=2"],
            "--config job.id=...: a key is overridden by run alone",
        ),
        (["checkpoint-tool.sh", FILE, "--config=job.id=2"], "name a job that ran before by --job NAME:ID"),
        (["run-app.sh", "--operation=pause"], "--operation=pause: it can be run, kill, status"),
        (
            ["checkpoint-tool.sh", "--config-factory=my.Factory"],
            "--config-factory=my.Factory: files of properties",
        ),
    ],
)
def test_what_has_no_counterpart_says_what_to_do(given: list[str], says: str, capsys: Output) -> None:
    assert main(given) == 2
    assert says in capsys.readouterr().err
