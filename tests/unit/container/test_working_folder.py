"""Containers work in one folder, wherever and by any user their coordinator was started."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.config.load import load
from grete.config.rules.changes import refused_changes
from grete.config.settings import Settings
from grete.container.assignment import Assignment
from grete.container.main_loop import enter
from grete.errors import ConfigError
from grete.model.ids import ContainerId, JobId
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import patient

APPLICATION = """
import pathlib
import grete

class Priced(grete.StreamTask):
    def init(self, context):
        self.price = pathlib.Path("price.txt").read_text()

    def process(self, envelope, collector, coordinator):
        collector.send("local.out", self.price.encode())
"""
PROPERTIES = """
job.name=priced
job.application.path=application
job.state.dir=state
task.class=priced:Priced
cluster-manager.container.retry.count=0
task.inputs=local.in
task.outputs=local.out
systems.local.path=data
systems.local.samza.offset.default=oldest
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "application").mkdir()
    (tmp_path / "application" / "priced.py").write_text(APPLICATION)
    (tmp_path / "application" / "price.txt").write_text("4")
    (tmp_path / "job.properties").write_text(PROPERTIES)
    feed(tmp_path)
    return tmp_path


def local(folder: Path) -> LocalSystem:
    return LocalSystem(folder / "data", SystemClock())


def feed(folder: Path) -> None:
    with closing(local(folder)) as system:
        system.ensure_stream(StreamSpec("in", 1))
        system.append("in", [Message(b"k", b"v", 1)])


def run(folder: Path, home: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grete.testing.sparkless", "--until-drained", *arguments]
    source = os.path.relpath(Path(__file__).parents[3] / "src", folder)
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "GRETE_HOME": home, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=patient(60),
    )


def sent(folder: Path) -> list[bytes | None]:
    with closing(local(folder)) as system:
        return [value for _, rows in system.read("out", 0, 0) for value in rows.column("value").to_pylist()]


def test_what_an_application_opens_by_a_relative_path_is_found_from_wherever_the_job_is_started(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first = run(folder, "home", "--config", "job.properties")
    assert first.returncode == 0, first.stderr
    feed(folder)
    second = run(tmp_path_factory.mktemp("elsewhere"), str(folder / "home"), "--job", "priced")
    assert second.returncode == 0, second.stderr
    assert sent(folder) == [b"4", b"4"]
    assert not list(tmp_path_factory.getbasetemp().glob("elsewhere*/*"))


def test_relative_paths_are_absolute_from_where_they_were_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        "job.state.dir": "state",
        "systems.local.path": "/data",
        "systems.kafka.consumer.ssl.ca.location": "ca.pem",
        "systems.kafka.producer.ssl.ca.location": "probe",
        "systems.kafka.sasl.password": "${file:password} of ${env:SOMEONE}",
        "outputs.paid.path": "lake/paid",
        "outputs.there.path": "s3a://lake/there",
        "my.own": "relative",
    }
    monkeypatch.chdir(folder / "application")
    loaded = load(["../job.properties"], keys)
    assert {key: loaded[key] for key in (*keys, "job.application.path")} == {
        "job.state.dir": f"{folder}/application/state",
        "systems.local.path": "/data",
        "systems.kafka.consumer.ssl.ca.location": f"{folder}/application/ca.pem",
        "systems.kafka.producer.ssl.ca.location": "probe",
        "systems.kafka.sasl.password": f"${{file:{folder}/application/password}} of ${{env:SOMEONE}}",
        "outputs.paid.path": f"{folder}/application/lake/paid",
        "outputs.there.path": "s3a://lake/there",
        "my.own": "relative",
        "job.application.path": f"{folder}/application",
    }


def test_a_job_whose_stream_has_a_relative_path_yet_may_write_it_absolute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/srv")
    stateful = {"stores.s.factory": "grete.store.sqlite", "systems.local.path": "data"}
    assert not refused_changes(stateful, {**stateful, "systems.local.path": "/srv/data"})
    assert refused_changes(stateful, {**stateful, "systems.local.path": "/data"})


@pytest.mark.parametrize("named", ["", "modules.zip"])
def test_a_job_without_a_folder_of_modules_works_in_one_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (folder / "modules.zip").touch()
    monkeypatch.chdir(folder)  # and back at the end
    enter(assignment({"job.application.path": str(folder / named)} if named else {}), folder / "home")
    assert Path.cwd() == folder / "home" / "jobs" / "priced-1" / "work"


def test_a_folder_of_modules_that_is_not_there_is_said_before_anything_is_started(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"job\.application\.path: .*/gone"):
        enter(assignment({"job.application.path": str(folder / "gone")}), folder / "home")


def test_a_job_is_started_from_a_folder_that_was_removed_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    loaded = load([str(folder / "job.properties")], {"systems.local.path": "/data"})
    assert loaded["job.application.path"] == str(folder / "application")


def assignment(config: dict[str, str]) -> Assignment:
    return Assignment(JobId("priced"), ContainerId("0"), 1, Settings.of(config), ())
