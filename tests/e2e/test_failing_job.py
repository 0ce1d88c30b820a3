"""Jobs that cannot go on end at once, with the cause, where one looks: everything real but Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from grete.launch.processes import parse_name
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import eventually, patient

TASKS = """
import grete

class Views(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.pages", envelope.message["page"])
"""


class Failing:
    """A job in a home, run without Spark."""

    def __init__(self, home: Path, system: LocalSystem) -> None:
        self.home, self.system = home, system
        system.create_stream(StreamSpec("views", 1))
        system.create_stream(StreamSpec("pages", 1))
        (home / "views_task.py").write_text(TASKS)

    def command(self, *more: str, **changes: str) -> list[str]:
        config = {
            "job.name": "views",
            "job.application.path": str(self.home),
            "task.class": "views_task:Views",
            "task.inputs": "local.views",
            "systems.local.samza.msg.serde": "json",
            "systems.local.samza.offset.default": "oldest",
            **changes,
        }
        path = self.home / "views.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return [sys.executable, "-m", "grete.testing.sparkless", "--config", str(path), *more]

    def run(self, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("--until-drained", **changes),
            env=_environment(self.home),
            capture_output=True,
            text=True,
        )

    def exits(self) -> list[Mapping[str, str]]:
        with open_job(JobId("views")) as handle:
            return [row.details for row in handle.history() if row.event == "container-exited"]

    def standing(self) -> str:
        with open_job(JobId("views"), must_exist=False) as handle:
            state = handle.state()
            return "" if state is None else state.standing

    def container_pid(self) -> int:
        with open_job(JobId("views")) as handle:
            (launch,) = handle.launches().values()
        name = parse_name(launch.handle)
        assert name is not None
        return name.pid


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "GRETE_HOME": str(home), "GRETE_LOG_LEVEL": "WARNING"}


@pytest.fixture
def job(home: Path, system: LocalSystem) -> Failing:
    return Failing(home, system)


def test_a_poison_record_is_tried_once_more_and_named(job: Failing) -> None:
    messages = [b'{"page": "a"}'] * 4 + [b"{}"]
    job.system.append("views", [Message(None, text, 1, 0) for text in messages])
    result = job.run()
    assert result.returncode == 3
    why = "KeyError 'page' (views_task.py:6) at local.views.0 offset 4, task 'Partition 0'"
    assert f"container 0 ended with code 3: {why}" in result.stderr
    assert [(row["exit_code"], row["meaning"], row["reason"]) for row in job.exits()] == [
        ("3", "poison message", why)
    ] * 2


@pytest.mark.parametrize(
    ("changes", "source", "run", "code", "says"),
    [
        ({"task.class": "nowhere:Views"}, TASKS, 2, "2", "no module 'nowhere'"),
        ({"task.class": "views_task:Other"}, TASKS, 2, "2", "has no 'Other'"),
        ({}, "class Views(\n", 1, "8", "SyntaxError"),
    ],
)
def test_an_application_that_cannot_be_loaded_ends_the_job_at_once_though_nothing_is_to_be_read(
    job: Failing, changes: dict[str, str], source: str, run: int, code: str, says: str
) -> None:
    (job.home / "views_task.py").write_text(source)
    result = job.run(**changes)
    assert (result.returncode, [row["exit_code"] for row in job.exits()]) == (run, [code])
    assert says in result.stderr
    assert says in job.exits()[0]["reason"]


def test_a_job_that_is_to_be_quiet_says_at_the_third_restart_why_how_often_and_when_it_is_tried_again(
    job: Failing,
) -> None:
    (job.home / "views_task.py").write_text("import os\nos._exit(9)\n")
    retries = "cluster-manager.container.retry"
    [*_, option, config] = job.command(**{f"{retries}.count": "3"})
    command = [sys.executable, "-m", "grete.cli.main", "run", "--until-drained", "--quiet", option, config]
    result = subprocess.run(command, env=_environment(job.home), capture_output=True, text=True)
    said = re.findall(r"views: restarting (\d)/4, next try at \d\d:\d\d:\d\d UTC: (.+)", result.stderr)
    assert [number for number, _ in said] == ["3"], result.stderr
    assert len(job.exits()) == 4


def test_a_job_that_is_stopped_has_a_cause_and_no_reason(job: Failing) -> None:
    """Whatever its container logged, in this life or in an earlier one."""
    logs = job.home / "jobs" / "views-1" / "logs"
    logs.mkdir(parents=True)
    (logs / "container-0.log").write_text("2026-01-01 ERROR grete.container an old story\n")
    with subprocess.Popen(job.command(), env=_environment(job.home), stderr=subprocess.DEVNULL) as running:
        try:
            eventually(lambda: job.standing() == "running", "its query to run", within_s=60)
            running.send_signal(signal.SIGTERM)
            assert running.wait(patient(60)) == 0
        finally:
            running.kill()
    (row,) = job.exits()
    assert (row["exit_code"], row["meaning"], row["reason"]) == ("6", "stopped", "")
    assert row["cause"]


def test_a_container_that_is_killed_is_said_to_be(job: Failing) -> None:
    with subprocess.Popen(job.command(), env=_environment(job.home), stderr=subprocess.DEVNULL) as running:
        try:
            eventually(lambda: job.standing() == "running", "its query to run", within_s=60)
            with open_job(JobId("views")) as handle:
                os.kill(
                    int(handle.launches()[next(iter(handle.launches()))].handle.split("/")[1]), signal.SIGKILL
                )
            eventually(lambda: len(job.exits()) == 1, "its exit", within_s=60)
            running.send_signal(signal.SIGTERM)
            assert running.wait(patient(60)) == 0
        finally:
            running.kill()
    row = job.exits()[0]
    assert (row["exit_code"], row["meaning"]) == ("-9", "killed")
    assert row["reason"] == "killed by signal 9 (SIGKILL)"
