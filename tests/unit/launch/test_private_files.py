"""Files of a job are for its owner only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.launch.base import ContainerStart
from grete.launch.process import ProcessLauncher
from grete.model.ids import ContainerId
from grete.model.streams import StreamSpec
from grete.private_files import replace_file, tighten, tighten_home
from grete.systems.local.system import LocalSystem
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.snapshot_places import FolderPlace
from grete.tasks.stores.snapshots import take
from grete.tasks.stores.warm_copy import standby_copies, take_over


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def open_to_others(path: Path) -> list[str]:
    """Folders, and files that hold anything: a reserve holds nothing but space."""
    found = [one for one in path.rglob("*") if mode(one) & 0o077 and one.stat().st_size]
    return [str(one) for one in found if one.suffix != ".reserve"]


@pytest.fixture(autouse=True)
def _lax() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def test_a_new_home_and_all_that_is_in_it_is_its_owners(tmp_path: Path) -> None:
    home = tmp_path / "home"
    tighten_home(home)
    system = LocalSystem(home / "local", SystemClock())
    system.create_stream(StreamSpec("in", 1))
    launcher = ProcessLauncher(["true"], home / "jobs" / "job-1" / "logs")
    launcher.start(ContainerStart(ContainerId("0"), 1, {}))
    launcher.close()
    assert mode(home) == 0o700
    assert open_to_others(home / "local") == []
    assert open_to_others(home / "jobs") == []
    system.close()


def test_stores_and_their_copies_are_their_owners(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "job-1"
    with closing(StoreFile(job / "stores" / "one.db", "log")) as store:
        store.settle(1, "", lambda start, end: [(b"k", b"v")], lambda data: [])
        take_over(job / "stores" / "two.db", standby_copies([job / "stores" / "one.db"], "log"))
        assert take(store.path, FolderPlace(tmp_path / "jobs" / "snapshots"), "log") > 0
        assert open_to_others(tmp_path / "jobs") == []
        assert sorted(one.name for one in job.rglob("*.db")) == ["one.db", "two.db"]


def test_a_store_of_an_earlier_version_is_tightened(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    with closing(StoreFile(path, "log")):
        path.chmod(0o644)
    with closing(StoreFile(path, "log")):
        assert mode(path) == 0o600


def test_a_home_of_an_earlier_version_is_tightened(tmp_path: Path) -> None:
    for folder in ("local", "jobs"):
        (tmp_path / folder).mkdir(mode=0o755)
    (tmp_path / "local" / "streams.db").touch(0o644)
    tighten_home(tmp_path)
    LocalSystem(tmp_path / "local", SystemClock()).close()
    assert [mode(tmp_path / folder) for folder in ("local", "jobs")] == [0o700, 0o700]
    assert mode(tmp_path / "local" / "streams.db") == 0o600


def test_a_shared_folder_stays_shared(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    tighten(tmp_path)
    assert mode(tmp_path) == 0o1777


def test_a_file_that_is_replaced_is_whole_for_each_reader_whoever_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    contents = [bytes([65 + number]) * 100_000 for number in range(4)]
    replace_file(path, contents[0])
    writers = [
        threading.Thread(target=lambda one=one: [replace_file(path, one) for _ in range(50)])
        for one in contents
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
    assert mode(path) == 0o600


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path: Path, is_durable: bool) -> None:
    path = tmp_path / "token"
    replace_file(path, b"before", is_durable=is_durable)

    def fail() -> None:
        assert path.read_bytes() == b"before"
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        replace_file(path, b"after", is_durable=is_durable, once_written=fail)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
