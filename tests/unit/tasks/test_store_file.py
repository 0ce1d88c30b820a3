from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from grete.errors import LogError, LogUnreachable
from grete.tasks.stores.file import StoreFile

LOG: list[tuple[bytes, bytes | None]] = [
    (b"a", b"1"),
    (b"b", b"1"),
    (b"a", b"2"),
    (b"b", None),
    (b"c", b"3"),
    (b"d", b""),
]
COMMITTED = {b"a": b"2", b"c": b"3", b"d": b""}


def changes(start: int, end: int) -> Iterable[tuple[bytes, bytes | None]]:
    return LOG[start:end]


def unpack(data: bytes) -> Iterable[tuple[bytes, bytes | None]]:
    start, end = map(int, data.split(b"-"))
    return LOG[start:end]


def settled(file: StoreFile, position: int, token: str = "") -> dict[bytes, bytes]:
    file.settle(position, token, changes, unpack)
    return dict(file.scan(None, None))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_a_new_file_is_filled_from_the_changelog(path: Path) -> None:
    assert settled(StoreFile(path, "log"), len(LOG)) == COMMITTED


def test_a_file_that_is_behind_catches_up(path: Path) -> None:
    file = StoreFile(path, "log")
    settled(file, 2)
    assert settled(file, len(LOG)) == COMMITTED


def test_pending_changes_are_applied_when_their_token_was_committed(path: Path) -> None:
    file = StoreFile(path, "log")
    settled(file, 2)
    file.set_pending("attempt", 6, b"2-6")

    def no_changes(start: int, end: int) -> Iterable[tuple[bytes, bytes | None]]:
        raise AssertionError("the changelog is not needed")

    file.settle(6, "attempt", no_changes, unpack)
    assert dict(file.scan(None, None)) == COMMITTED


def test_pending_changes_of_another_attempt_are_dropped_even_at_the_same_position(path: Path) -> None:
    file = StoreFile(path, "log")
    settled(file, 5)
    file.set_pending("failed attempt", 6, b"0-1")  # would set a back to 1
    assert settled(file, 6, "committed attempt") == COMMITTED


def test_pending_changes_are_dropped_when_nothing_was_committed(path: Path) -> None:
    file = StoreFile(path, "log")
    settled(file, 6)
    file.set_pending("failed attempt", 7, b"0-1")
    assert settled(file, 6, "older attempt") == COMMITTED


def test_a_file_ahead_of_the_changelog_is_rebuilt(path: Path) -> None:
    file = StoreFile(path, "log")
    settled(file, 6)
    assert settled(file, 3) == {b"a": b"2", b"b": b"1"}


def test_a_file_filled_from_another_changelog_is_rebuilt(path: Path) -> None:
    foreign = StoreFile(path, "a deleted stream of the same name")
    foreign.settle(4, "", lambda start, end: [(b"x", b"foreign")] * (end - start), unpack)
    foreign.close()
    assert settled(StoreFile(path, "log"), 6) == COMMITTED


@pytest.mark.parametrize("junk", [b"", b"not a database at all", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_rebuilt(path: Path, junk: bytes) -> None:
    path.write_bytes(junk)
    assert settled(StoreFile(path, "log"), 6) == COMMITTED


def test_a_flipped_bit_anywhere_never_shows_as_a_wrong_value(path: Path) -> None:
    file = StoreFile(path, "log")
    settled(file, 6)
    file.close()
    whole = path.read_bytes()
    for position in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(bytes(damaged))
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        reopened = StoreFile(path, "log")
        assert settled(reopened, 6) == COMMITTED, f"byte {position}"
        reopened.close()


def test_damage_found_while_settling_leads_to_a_rebuild(path: Path) -> None:
    file = StoreFile(path, "log")
    settled(file, 5)
    file.set_pending("attempt", 6, b"5-6")
    with apsw.Connection(str(path)) as other:
        other.execute("UPDATE pending SET changes = x'00'")
    assert settled(file, 6, "attempt") == COMMITTED


def test_a_worker_that_was_replaced_while_it_waited_for_the_file_takes_nothing_back(path: Path) -> None:
    """It has read that its own changes are to be applied; its successor settles further before it may write."""
    successor, replaced = StoreFile(path, "log"), StoreFile(path, "log")
    settled(replaced, 2)
    replaced.set_pending("attempt", 4, b"2-4")
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")

    def successor_goes_first(tries: int) -> bool:
        if tries == 0:
            holder.execute("COMMIT")
            assert settled(successor, len(LOG), "attempt") == COMMITTED
        return True

    replaced._connection.set_busy_handler(successor_goes_first)
    replaced.settle(4, "attempt", changes, unpack)
    assert dict(successor.scan(None, None)) == COMMITTED
    assert successor.get(b"a") == b"2"


@pytest.fixture
def healthy(path: Path) -> Path:
    """A store whose changelog is unreadable, so that it cannot be rebuilt."""
    file = StoreFile(path, "log")
    settled(file, len(LOG))
    file.close()
    return path


@contextmanager
def limit(which: int, soft: int) -> Iterator[None]:
    """A limit of this process, for a moment."""
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


def kept(path: Path) -> dict[bytes, bytes]:
    def gone(start: int, end: int) -> Iterable[tuple[bytes, bytes | None]]:
        raise AssertionError("the store was thrown away, and is rebuilt")

    file = StoreFile(path, "log")
    file.settle(len(LOG), "", gone, unpack)
    return dict(file.scan(None, None))


def test_too_many_open_files_do_not_cost_a_healthy_store(healthy: Path) -> None:
    with Path(os.devnull).open("rb") as file:
        lowest_free = file.fileno()
    with (
        limit(resource.RLIMIT_NOFILE, lowest_free),
        pytest.raises(LogError) as error,
    ):
        StoreFile(healthy, "log")
    assert f"cannot open {healthy}" in str(error.value)
    assert kept(healthy) == COMMITTED


def test_an_io_error_does_not_cost_a_healthy_store(healthy: Path) -> None:
    with limit(resource.RLIMIT_FSIZE, 0), pytest.raises(LogError):
        StoreFile(healthy, "log").set_pending("attempt", len(LOG), b"0" * 100_000)
    assert kept(healthy) == COMMITTED


def test_a_store_that_another_process_keeps_is_an_error_to_try_again_after(healthy: Path) -> None:
    holder = apsw.Connection(str(healthy))
    holder.execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; BEGIN IMMEDIATE").fetchall()
    with pytest.raises(LogUnreachable) as error:
        StoreFile(healthy, "log", busy_timeout_ms=10)
    assert error.value.may_pass
    holder.close(True)
    assert kept(healthy) == COMMITTED


def test_what_can_be_had_again_from_the_changelog_is_not_synced_to_disk_each_time(path: Path) -> None:
    assert StoreFile(path, "log")._connection.execute("PRAGMA synchronous").get == 1


def test_changes_that_are_too_large_for_a_file_are_said_in_words(path: Path) -> None:
    file = StoreFile(path, "log")
    file._connection.limit(apsw.SQLITE_LIMIT_LENGTH, 1_000)
    with pytest.raises(LogError, match=r"larger than SQLite takes.*lower task.max.records.per.batch"):
        file.set_pending("attempt", 1, b"0" * 2_000)
