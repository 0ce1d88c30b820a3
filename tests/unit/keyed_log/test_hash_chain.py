"""The chain of a log in a file: whatever is changed in it shows, compacted or not, and is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.errors import LogCorrupted, LogError
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.hash_chain import genesis, link
from grete.keyed_log.sqlite import SqliteKeyedLog, append_in
from grete.sqlite_file import SqliteFile, open_file
from grete.testing.clock import ManualClock


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SqliteFile]:
    opened = open_file(tmp_path / "log.db")
    yield opened
    opened.close()


@pytest.fixture
def log(file: SqliteFile) -> SqliteKeyedLog:
    """Offsets 0 to 9: k0 k1 k2 k0 k1 k2 ... k0."""
    opened = SqliteKeyedLog(file, "log", ManualClock())
    for i in range(10):
        opened.append([Entry(b"k%d" % (i % 3), b"value %d" % i)], fence=Fence("job", 1))
    return opened


def in_full(statement: str) -> str:
    """RECORDS and OFFSET are how this file's statements call the table and a record's offset."""
    return statement.replace("RECORDS", "keyed_log_records").replace("OFFSET", "(id & ((1 << 40) - 1))")


def tamper(file: SqliteFile, statement: str) -> None:
    with file.transaction() as connection:
        connection.execute(in_full(statement)).fetchall()


def test_parts_of_a_record_cannot_move_into_each_other() -> None:
    start = genesis("log", "lineage")
    chains = {
        link(start, 0, b"ab", b"c", 1, 1, None),
        link(start, 0, b"a", b"bc", 1, 1, None),
        link(start, 0, b"a", b"c", 1, 1, b"b"),
        link(start, 0, b"abc", b"", 1, 1, None),
        link(start, 0, b"abc", None, 1, 1, None),
        link(start, 0, b"abc", None, 1, None, None),
        link(start, 1, b"abc", None, 1, None, None),
        link(genesis("log", "other"), 0, b"abc", None, 1, None, None),
        link(genesis("gol", "lineage"), 0, b"abc", None, 1, None, None),
    }
    assert len(chains) == 9


@pytest.mark.parametrize(
    "change",
    [
        "v = x'00'",
        "v = NULL",
        "k = x'00'",
        "k = 'text'",
        "timestamp_ms = timestamp_ms + 1",
        "epoch = 2",
        "epoch = NULL",
        "append_id = x'00'",
        "append_id = NULL",
        "chain = x'00'",
        "v = 1.5",
    ],
)
def test_any_change_to_a_record_is_found_and_named(
    file: SqliteFile, log: SqliteKeyedLog, change: str
) -> None:
    tamper(file, f"UPDATE RECORDS SET {change} WHERE OFFSET = 4")  # noqa: S608 # our own text
    reading, seen = log.read(), []
    with pytest.raises(LogCorrupted, match=r"log\.db: log 'log', offset 4"):
        seen.extend(record.offset for record in iter(lambda: next(reading), None))
    assert list(log_offsets(log, limit=4)) == [0, 1, 2, 3]


def log_offsets(log: SqliteKeyedLog, *, limit: int) -> Iterator[int]:
    reading = log.read()
    for _ in range(limit):
        yield next(reading).offset


@pytest.mark.parametrize("offset", [0, 3, 8])
def test_a_missing_record_is_found_and_named(file: SqliteFile, log: SqliteKeyedLog, offset: int) -> None:
    tamper(file, f"DELETE FROM RECORDS WHERE OFFSET = {offset}")  # noqa: S608 # our own text
    with pytest.raises(LogCorrupted, match=f"offset {offset} fails"):
        list(log.read())


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM RECORDS WHERE OFFSET = 7",
        "DELETE FROM RECORDS WHERE OFFSET = 6",
        "UPDATE RECORDS SET timestamp_ms = timestamp_ms + 1 WHERE OFFSET = 6",
        "UPDATE RECORDS SET chain = randomblob(32) WHERE OFFSET = 6",
        "UPDATE RECORDS SET v = randomblob(32) WHERE OFFSET = 6",
        "UPDATE RECORDS SET k = NULL WHERE OFFSET = 8",
        "UPDATE RECORDS SET id = id - 1 WHERE OFFSET = 6",
    ],
)
def test_a_compacted_log_is_proven_as_well(file: SqliteFile, log: SqliteKeyedLog, change: str) -> None:
    assert log.compact() == 7
    assert [record.offset for record in log.read()] == [7, 8, 9]
    tamper(file, change)
    with pytest.raises(LogCorrupted):
        list(log.read())


def test_a_record_cannot_vanish_between_two_stubs(file: SqliteFile) -> None:
    log = SqliteKeyedLog(file, "log", ManualClock())
    log.append([Entry(key, b"") for key in (b"a", b"a", b"lonely", b"b", b"b", b"a", b"b")])
    assert log.compact() == 4
    assert [record.offset for record in log.read()] == [2, 5, 6]
    tamper(file, "DELETE FROM RECORDS WHERE OFFSET = 2")
    with pytest.raises(LogCorrupted, match="offset 2"):
        list(log.read())


def test_a_damaged_log_is_not_compacted(file: SqliteFile, log: SqliteKeyedLog) -> None:
    tamper(file, "UPDATE RECORDS SET k = x'00' WHERE OFFSET = 4")
    with pytest.raises(LogCorrupted):
        log.compact()
    assert list(log_offsets(log, limit=4)) == [0, 1, 2, 3]


def test_compaction_in_steps_leaves_one_stub_for_a_long_run(file: SqliteFile) -> None:
    log = SqliteKeyedLog(file, "log", ManualClock())
    log.append([Entry(b"first", b""), *(Entry(b"k", b"%d" % i) for i in range(5_000))])
    assert log.compact() == 4_999
    with file.reading() as connection:
        rows = connection.execute(in_full("SELECT OFFSET, k FROM RECORDS ORDER BY id")).fetchall()
    assert rows == [(0, b"first"), (4_999, None), (5_000, b"k")]
    assert [record.offset for record in log.read()] == [0, 5_000]


def test_a_log_of_nothing_but_old_tombstones_keeps_its_end(file: SqliteFile) -> None:
    clock = ManualClock()
    log = SqliteKeyedLog(file, "log", clock)
    log.append([Entry(b"a", b"1"), Entry(b"a", None)])
    assert log.compact() == 1
    clock.advance(24 * 60 * 60)
    assert log.compact() == 1
    assert (log.end(), list(log.read())) == (1, [])
    assert log.append([Entry(b"a", b"2")]) == 2
    assert [record.offset for record in log.read()] == [2]


def test_logs_of_one_file_have_chains_of_their_own(file: SqliteFile, log: SqliteKeyedLog) -> None:
    other = SqliteKeyedLog(file, "other", ManualClock())
    other.append([Entry(b"k", b"v")])
    assert [record.offset for record in other.read()] == [0]
    tamper(file, "UPDATE keyed_logs SET name = name || '2'")
    with pytest.raises(LogCorrupted):
        list(SqliteKeyedLog(file, "log2", ManualClock()).read())


def test_appending_in_a_callers_transaction_goes_with_it(file: SqliteFile, log: SqliteKeyedLog) -> None:
    def append_and_fail() -> None:
        with file.transaction() as connection:
            assert append_in(connection, "log", [Entry(b"k", b"v")], now_ms=1) == 10
            raise KeyError("mine")

    with pytest.raises(KeyError):
        append_and_fail()
    assert log.end() == 9
    with file.transaction() as connection:
        assert append_in(connection, "log", [Entry(b"k", b"v")], now_ms=1, epoch=3) == 10
    assert [(record.offset, record.epoch) for record in log.read(9)] == [(10, 3)]


def test_a_log_of_a_newer_format_is_left_alone(file: SqliteFile, log: SqliteKeyedLog) -> None:
    tamper(file, "UPDATE keyed_logs SET format = 2")
    with pytest.raises(LogError, match="upgrade grete"):
        log.append([Entry(b"k", b"v")])


def test_append_ids_are_forgotten_after_ten_thousand_offsets_not_before(file: SqliteFile) -> None:
    log = SqliteKeyedLog(file, "log", ManualClock())
    first = log.append([Entry(b"k", b"v")], append_id="x")
    log.append([Entry(b"k", b"")] * 9_999)
    assert log.append([Entry(b"k", b"v")], append_id="x") == first
    log.append([Entry(b"k", b"")] * 2_000)
    assert log.resolve("x") is None
