from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import apsw
import pytest

from grete.spark.store_file import StoreFile

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
