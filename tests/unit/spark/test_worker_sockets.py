"""Where Spark's JVM and Python processes of this machine talk over Unix sockets, and that nobody else can."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grete.config.settings import Settings
from grete.spark.session import worker_sockets
from grete.spark.session.settings import context_settings, session_settings
from grete.spark.session.worker_sockets import make_folder, remove_folder, socket_settings

ENABLED, FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    worker_sockets._folder.cache_clear()
    yield
    worker_sockets._folder.cache_clear()


class Jvm:
    """Takes note of the folders that it shall remove."""

    def __init__(self) -> None:
        self.org = self.apache = self.spark = self.util = self.java = self.io = self
        self.removed: list[str] = []
        self.ShutdownHookManager = self

    def File(self, path: str) -> str:
        return path

    def registerShutdownDeleteDir(self, path: str) -> None:
        self.removed.append(path)


@pytest.mark.parametrize("settings", [session_settings, context_settings])
def test_on_this_machine_they_are_on_unless_the_job_says_how(settings: Any) -> None:
    found = settings("job", Settings.of({"spark.master": "local[2]"}))
    assert found[ENABLED] == "true"
    assert len(found[FOLDER]) <= 60
    assert ENABLED not in settings("job", Settings.of({"spark.master": "spark://host:7077"}))
    assert settings("job", Settings.of({"spark.master": "local", ENABLED: "false"}))[ENABLED] == "false"
    assert ENABLED not in settings("job", Settings.of({"spark.master": "local", FOLDER: "/mine"}))


def test_the_folder_is_ours_alone_and_the_jvm_removes_it(tmp_path: Path) -> None:
    settings, jvm = socket_settings({}), Jvm()
    make_folder(settings, jvm)
    make_folder(settings, jvm)  # of the next context
    folder = Path(settings[FOLDER])
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == os.getuid()
        assert {*jvm.removed} == {str(folder)}
    finally:
        (folder / ".socket").touch()
        remove_folder()
    assert not folder.exists()
    remove_folder()
    make_folder({FOLDER: str(tmp_path / "theirs")}, jvm)
    make_folder({}, jvm)
    assert not list(tmp_path.iterdir())


def test_a_long_path_of_temporary_files_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert Path(socket_settings({})[FOLDER]).parent == Path(worker_sockets._EVERYWHERE).resolve()
    worker_sockets._folder.cache_clear()
    monkeypatch.setattr(worker_sockets, "_EVERYWHERE", str(tmp_path / "nowhere"))
    assert socket_settings({}) == {}
