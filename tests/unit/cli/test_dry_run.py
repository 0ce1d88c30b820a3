"""`grete run --dry-run` of StreamTasks, and of what is refused before any process is started for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.model.streams import StreamSpec
from grete.spark.session.defaults import ALWAYS
from grete.systems.local.system import LocalSystem

APPLICATION = """
import pathlib

import grete

assert pathlib.Path("prices.csv").is_file(), "containers work in the folder of the application"

class Priced(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        pass
"""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def config(home: Path, system: LocalSystem) -> Path:
    system.create_stream(StreamSpec("in", 3))
    folder = home / "application"
    folder.mkdir()
    (folder / "prices.csv").touch()
    (folder / "priced.py").write_text(APPLICATION)
    path = folder / "job.properties"
    path.write_text(
        "job.name=priced\njob.application.path=.\ntask.class=priced:Priced\ntask.inputs=local.in\n"
        "task.outputs=local.out\njob.container.count=2\n"
    )
    return path


def test_a_stream_task_is_loaded_as_its_container_would_and_nothing_is_written(
    config: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--dry-run", "--config", str(config), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    own = found.pop("settings")
    assert own["spark.ui.enabled"] == {"value": "false", "reason": ALWAYS["spark.ui.enabled"].reason}
    assert "spark.sql.session.timeZone" not in own, "tasks have no session"
    assert found == {
        "job": "priced",
        "application": "priced:Priced",
        "inputs": {"local.in": 3},
        "outputs": {"local.out": 0},
        "containers": 2,
        "tasks": 3,
        "output_mode": None,
        "plan": None,
    }
    assert not (home / "jobs").exists()
    assert not (home / "local" / "coordinator.db").exists()
    config.write_text(config.read_text() + f"{JAVA_OPTIONS}=-Djavax.net.ssl.keyStorePassword=hunter2\n")
    assert main(["run", "--dry-run", "--config", str(config)]) == 0
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    assert ALWAYS["spark.ui.enabled"].reason in shown
    assert "priced runs priced:Priced; nothing was started or written" in shown
    assert "to be created" in shown


@pytest.mark.parametrize(
    ("key", "code", "words"),
    [
        ("task.class=priced:Prized", 2, "module 'priced' has no 'Prized'"),
        ("task.class=absent:Priced", 2, "no module 'absent'"),
        ("task.inputs=local.in,local.gone", 1, "local.gone"),
        ("job.container.count=4", 2, "container count (4) is larger than your task count (3)"),
    ],
)
def test_what_would_fail_a_start_is_said_with_the_exit_code_of_a_start(
    config: Path, capsys: pytest.CaptureFixture[str], key: str, code: int, words: str
) -> None:
    assert main(["run", "--dry-run", "--config", str(config), "--set", key]) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert not captured.out


def test_an_application_whose_module_fails_is_shown_with_its_error(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.parent / "priced.py").write_text("1 / 0")
    assert main(["run", "--dry-run", "--config", str(config)]) == 1
    assert "'priced' cannot be imported: ZeroDivisionError" in capsys.readouterr().err


def test_it_needs_a_configuration(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--job", "priced"]) == 2
    assert "--dry-run goes with --config FILE" in capsys.readouterr().err
