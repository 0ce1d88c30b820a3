"""Files of stores that one assignment leaves open to the next."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.left_open import FilesLeftOpen, StoreFileKey
from grete.testing.clock import ManualClock
from grete.testing.waiting import patient

_IDLE_S = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def left(clock: ManualClock) -> Iterator[FilesLeftOpen]:
    """Nothing is open afterwards."""
    left = FilesLeftOpen(_IDLE_S, clock)
    yield left
    clock.advance(_IDLE_S)
    left.close_idle()


def key_of(path: Path, changelog: str = "log", *, is_expiring: bool = False) -> StoreFileKey:
    return StoreFileKey(path, changelog, is_expiring)


def left_file(path: Path, left: FilesLeftOpen) -> apsw.Connection:
    file = StoreFile(path, "log", left_open=left)
    file.leave()
    return file._connection


def is_open(connection: apsw.Connection) -> bool:
    try:
        connection.execute("SELECT 1").fetchall()
    except apsw.ConnectionClosedError:
        return False
    return True


def test_what_was_left_is_taken_once(tmp_path: Path, left: FilesLeftOpen) -> None:
    connection = left_file(tmp_path / "a.db", left)
    assert left.take(key_of(tmp_path / "b.db")) is None
    assert left.take(key_of(tmp_path / "a.db", "another changelog")) is None
    assert left.take(key_of(tmp_path / "a.db", is_expiring=True)) is None, "its schema has an index"
    file = StoreFile(tmp_path / "a.db", "log", left_open=left)
    assert file._connection is connection
    assert left.take(key_of(tmp_path / "a.db")) is None
    file.close()
    assert not is_open(connection)


def test_a_file_that_another_process_has_changed_is_looked_at_anew(
    tmp_path: Path, left: FilesLeftOpen
) -> None:
    """Damage shows when a file is opened; one that is removed or replaced is not what its path says."""
    path = tmp_path / "store.db"
    connection = left_file(path, left)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"x")
    assert left.take(key_of(path)) is None
    assert not is_open(connection)
    path.unlink()
    connection = left_file(path, left)
    path.unlink()
    assert left.take(key_of(path)) is None
    assert not is_open(connection)


def test_what_nobody_takes_is_closed(tmp_path: Path, left: FilesLeftOpen, clock: ManualClock) -> None:
    early = left_file(tmp_path / "early.db", left)
    clock.advance(_IDLE_S / 2)
    late = left_file(tmp_path / "late.db", left)
    clock.advance(_IDLE_S / 2)
    left.close_idle()
    assert not is_open(early)
    assert is_open(late)
    assert left.take(key_of(tmp_path / "early.db")) is None


def test_an_unfinished_transaction_is_left_to_nobody(tmp_path: Path, left: FilesLeftOpen) -> None:
    path = tmp_path / "store.db"
    file = StoreFile(path, "log", left_open=left)
    file._connection.execute("BEGIN IMMEDIATE")
    file.leave()
    assert left.take(key_of(path)) is None
    assert not is_open(file._connection)


def test_a_second_one_of_the_same_file_takes_the_place_of_the_first(
    tmp_path: Path, left: FilesLeftOpen
) -> None:
    path = tmp_path / "store.db"
    first, second = (StoreFile(path, "log", left_open=left) for _ in range(2))
    first.leave()
    second.leave()
    assert not is_open(first._connection)
    assert left.take(key_of(path)) is second._connection
    second.close()


FORKING = """
import os, sys
from pathlib import Path
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.left_open import FilesLeftOpen, StoreFileKey

path, left = Path(sys.argv[1]), FilesLeftOpen(30.0)
key = StoreFileKey(path, "log", False)
StoreFile(path, "log", left_open=left).leave()
child = os.fork()
if not child:
    os._exit(0 if left.take(key) is None else 1)
status = os.waitpid(child, 0)[1]
print(os.waitstatus_to_exitcode(status), left.take(key) is not None)
"""


def test_a_fork_has_none_of_its_parents_files(tmp_path: Path) -> None:
    """SQLite's locks are the parent's: the file would be written by two that each believe to be alone."""
    forking = [sys.executable, "-c", FORKING, str(tmp_path / "store.db")]
    done = subprocess.run(forking, capture_output=True, text=True, timeout=patient(30), check=True)
    assert done.stdout == "0 True\n"
