"""`grete init`: what it writes, what it asks, and what it refuses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.config.load import load
from grete.config.rules.validate import check
from grete.testing.waiting import patient

SAMZA = """
job.name=page-views
job.factory.class=org.apache.samza.job.yarn.YarnJobFactory
task.class=com.example.PageViews
task.inputs=kafka.views
systems.kafka.samza.factory=org.apache.samza.system.kafka.KafkaSystemFactory
systems.kafka.consumer.zookeeper.connect=localhost:2181
systems.kafka.producer.bootstrap.servers=localhost:9092
serializers.registry.json.class=org.apache.samza.serializers.JsonSerdeFactory
systems.kafka.samza.msg.serde=json
sensitive.systems.kafka.consumer.ssl.key.password=geheim
"""


def own_tests(folder: Path) -> str:
    """pytest in the project, as its author runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=patient(100),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("system", ["local", "kafka"])
@pytest.mark.parametrize("kind", ["task", "pipeline"])
def test_a_project_is_whole_and_its_configuration_is_right(kind: str, system: str, tmp_path: Path) -> None:
    folder = tmp_path / "hot-rooms"
    assert main(["init", str(folder), "--kind", kind, "--system", system]) == 0
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        ".gitignore",
        "README.md",
        "hot-rooms.properties",
        "hot_rooms.py",
        "pyproject.toml",
        "readings.jsonl",
        "tests/test_hot_rooms.py",
    }
    config = load([str(folder / "hot-rooms.properties")], {})
    assert check(config).errors == ()
    assert config["task.inputs"] == f"{system}.readings"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "hot-rooms"
    assert all(json.loads(line) for line in (folder / "readings.jsonl").read_text().splitlines())
    assert "$" not in "".join((folder / file).read_text() for file in files)


@pytest.mark.parametrize("system", ["local", "kafka"])
def test_the_test_of_a_task_passes(system: str, tmp_path: Path) -> None:
    folder = tmp_path / "rooms"
    assert main(["init", str(folder), "--kind", "task", "--system", system]) == 0
    assert "1 passed" in own_tests(folder)


def test_a_job_of_samzas_begins_with_what_carries_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = tmp_path / "views.properties"
    origin.write_text(SAMZA)
    folder = tmp_path / "views"
    assert main(["init", str(folder), "--kind", "samza", "--from-file", str(origin)]) == 0
    assert "README.md" in capsys.readouterr().out
    written = (folder / "page-views.properties").read_text()
    assert "task.class=page_views:PageViews" in written
    assert (folder / "page-views.properties").stat().st_mode & 0o777 == 0o600
    assert "port com.example.PageViews" in (folder / "page_views.py").read_text()
    assert check(load([str(folder / "page-views.properties")], {})).errors == ()
    assert "1 passed" in own_tests(folder)


def test_nothing_that_is_there_is_replaced_and_nothing_is_left_half_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert main(["init", str(tmp_path), "--name", "rooms"]) == 2
    assert "README.md already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--name", "json"], "'json' is a module of Python's"),
        (["--name", "grete"], "name the job otherwise"),
        (["--name", "9 lives"], "no name for a job"),
        (["--name", "class"], "name the job otherwise"),
        (["--kind", "samza"], "--from-file FILE"),
        (["--kind", "task", "--from-file", "x"], "is for --kind samza"),
        (["--kind", "samza", "--from-file", "x", "--name", "y"], "the configuration says it"),
        (["--kind", "samza", "--from-file", "not/there"], "not/there"),
        (["--kind", "taks"], "did you mean task?"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["init", str(tmp_path / "new"), *words])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_at_a_terminal_it_asks_what_was_not_said(tmp_path: Path) -> None:
    """An answer may be the beginning of a word; one that is none is asked again; none is the first."""
    here, there = pty.openpty()
    asking = subprocess.Popen(
        [sys.executable, "-m", "grete.cli.main", "init", str(tmp_path / "rooms")],
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
    )
    os.close(there)
    os.write(here, b"what\nta\n\n")
    assert asking.wait(patient(30)) == 0
    os.close(here)
    assert "StreamTask" in (tmp_path / "rooms" / "rooms.py").read_text()
    assert "local.readings" in (tmp_path / "rooms" / "rooms.properties").read_text()


def test_a_program_gets_the_files_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "rooms"), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["job"] == "rooms"
    assert "rooms.py" in document["files"]
    assert document["blocks"] == []
