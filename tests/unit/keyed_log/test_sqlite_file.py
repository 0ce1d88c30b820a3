"""How a SQLite file is opened, shared, refused and reported."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from grete.errors import Fenced, IllegalStateError, LogCorrupted, LogError, LogUnreachable, UnsafeStorage
from grete.model.fence import Fence
from grete.sqlite_file import SqliteFile, check_fences, open_file, seen_epoch
from grete.sqlite_file.machine import network_file_system

TABLE = "CREATE TABLE IF NOT EXISTS things (id INTEGER PRIMARY KEY)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "file.db"


def add(file: SqliteFile, number: int) -> None:
    with file.transaction() as connection:
        connection.execute(TABLE)
        connection.execute("INSERT INTO things VALUES (?)", (number,))


def things(file: SqliteFile) -> list[int]:
    with file.reading() as connection:
        return [number for (number,) in connection.execute("SELECT id FROM things ORDER BY id")]


def pragma(file: SqliteFile, name: str) -> object:
    with file.reading() as connection:
        return connection.pragma(name)


def test_the_pragmas_that_durability_needs_hold(path: Path) -> None:
    with closing(open_file(path)) as file:
        assert [pragma(file, name) for name in ("journal_mode", "synchronous", "mmap_size")] == ["wal", 2, 0]


def test_an_old_sqlite_gets_a_rollback_journal_and_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), closing(open_file(path, library="3.51.2")) as file:
        add(file, 1)
        assert [pragma(file, name) for name in ("journal_mode", "synchronous")] == ["delete", 3]
        assert things(file) == [1]
    assert "can corrupt a write-ahead log" in caplog.text


def test_what_is_raised_inside_a_transaction_rolls_it_back(path: Path) -> None:
    def fail_after_adding(file: SqliteFile) -> None:
        with file.transaction() as connection:
            connection.execute("INSERT INTO things VALUES (2)")
            raise KeyError("mine")

    with closing(open_file(path)) as file:
        add(file, 1)
        with pytest.raises(KeyError):
            fail_after_adding(file)
        add(file, 3)
        assert things(file) == [1, 3]


def test_a_transaction_inside_another_is_our_mistake_and_said_at_once(path: Path) -> None:
    with (
        closing(open_file(path)) as file,
        file.transaction(),
        pytest.raises(IllegalStateError, match="inside"),
    ):
        add(file, 1)


def test_reading_inside_a_transaction_shows_what_is_committed(path: Path) -> None:
    with closing(open_file(path)) as file:
        add(file, 1)
        with file.transaction() as connection:
            connection.execute("INSERT INTO things VALUES (2)")
            assert things(file) == [1]


def test_threads_share_a_file(path: Path) -> None:
    with closing(open_file(path)) as file:
        threads = [threading.Thread(target=add, args=(file, number)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert things(file) == list(range(20))


def test_a_file_can_be_opened_and_read_while_another_writes(path: Path) -> None:
    with closing(open_file(path)) as file:
        add(file, 1)
        with file.transaction(), closing(open_file(path, busy_timeout_s=0.01)) as other:
            assert things(other) == [1]


def test_a_file_that_stays_locked_is_an_error_that_names_the_process(path: Path) -> None:
    with closing(open_file(path)) as file, closing(open_file(path, busy_timeout_s=0.01)) as other:
        add(file, 1)
        with file.transaction(), pytest.raises(LogError, match=f"process {os.getpid()} holds it"):
            add(other, 2)
        add(other, 3)
        assert things(file) == [1, 3]


def test_a_closed_file_says_that_it_is_closed(path: Path) -> None:
    file = open_file(path)
    file.close()
    file.close()
    with pytest.raises(LogError, match="closed"):
        add(file, 1)


def test_something_that_is_no_database_is_corrupt_and_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(LogCorrupted, match=r"file\.db is damaged"):
        open_file(path)


def test_a_place_where_no_file_can_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file.db").mkdir()
    with pytest.raises(LogError, match="check path and permissions"):
        open_file(tmp_path / "file.db")


def test_a_file_with_a_second_name_is_refused(path: Path) -> None:
    open_file(path).close()
    os.link(path, path.with_name("second.db"))
    with pytest.raises(UnsafeStorage, match="hard link"):
        open_file(path.with_name("second.db"))


def test_a_symbolic_link_is_the_same_file(path: Path) -> None:
    with closing(open_file(path)) as file:
        path.with_name("second.db").symlink_to(path)
        with closing(open_file(path.with_name("second.db"))) as other:
            add(file, 1)
            add(other, 2)
            assert things(file) == things(other) == [1, 2]


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("/data/jobs", "nfs4"),
        ("/data", "nfs4"),
        ("/database", None),
        ("/with space/x", "fuse.sshfs"),
        ("/overlay", None),
        ("/home/me", None),
    ],
)
def test_network_file_systems_are_found_in_the_mounts(directory: str, expected: str | None) -> None:
    mounts = (
        "/dev/sda1 / ext4 rw 0 0\nserver:/export /data nfs4 rw 0 0\n"
        "me@host: /with\\040space fuse.sshfs rw 0 0\noverlay /overlay fuse.fuse-overlayfs rw 0 0\n"
    )
    assert network_file_system(Path(directory), mounts) == expected


def test_an_older_copy_is_refused_until_its_mark_is_removed(path: Path) -> None:
    with closing(open_file(path)) as file:
        add(file, 1)
    older = path.read_bytes()
    with closing(open_file(path)) as file:
        add(file, 2)
    path.write_bytes(older)
    with pytest.raises(LogCorrupted, match=r"ends before.*remove .*file\.db\.mark"):
        open_file(path)
    path.with_name("file.db.mark").unlink()
    with closing(open_file(path)) as file:
        assert things(file) == [1]


def test_an_emptied_file_is_refused(path: Path) -> None:
    with closing(open_file(path)) as file:
        add(file, 1)
    path.write_bytes(b"")
    with pytest.raises(LogCorrupted, match="ends before"):
        open_file(path)


def test_another_file_in_its_place_is_refused_even_with_more_commits(path: Path) -> None:
    other = path.with_name("other.db")
    with closing(open_file(path)) as file:
        add(file, 1)
    with closing(open_file(other)) as file:
        for number in range(10):
            add(file, number)
    path.write_bytes(other.read_bytes())
    with pytest.raises(LogCorrupted, match="is another file"):
        open_file(path)


def test_a_file_that_goes_back_while_it_is_open_is_noticed_before_the_next_commit(path: Path) -> None:
    with closing(open_file(path)) as file:
        add(file, 1)
        add(file, 2)
        with closing(apsw.Connection(str(path))) as intruder:
            intruder.execute("UPDATE file_commits SET number = 1")
        with pytest.raises(LogCorrupted, match="went back behind commit"):
            add(file, 3)


def test_a_damaged_mark_claims_nothing(path: Path) -> None:
    with closing(open_file(path)) as file:
        add(file, 1)
    mark = path.with_name("file.db.mark")
    for damage in (b"", b"\xff" * 40, mark.read_bytes()[:-1]):
        mark.write_bytes(damage)
        with closing(open_file(path)) as file:
            assert things(file) == [1]


def test_a_mark_that_cannot_be_written_does_not_fail_the_commit(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.with_name("file.db.mark").symlink_to(path.parent / "nowhere" / "file.db.mark")
    with caplog.at_level(logging.WARNING), closing(open_file(path)) as file:
        add(file, 1)
        assert things(file) == [1]
    assert "was not written" in caplog.text


def test_a_fence_that_was_tampered_with_is_corrupt_not_lower(path: Path) -> None:
    with closing(open_file(path)) as file:
        file.urgently(lambda connection: check_fences(connection, [Fence("job", 7)]))
        with file.transaction() as connection:
            connection.execute("UPDATE fenced_scopes SET epoch = 6")
        with pytest.raises(LogCorrupted, match="the fence of 'job' is damaged"):
            file.urgently(lambda connection: check_fences(connection, [Fence("job", 6)]))


def test_fences_are_all_checked_or_none_is_raised(path: Path) -> None:
    with closing(open_file(path)) as file:
        file.urgently(lambda connection: check_fences(connection, [Fence("b", 5)]))
        with pytest.raises(Fenced):
            file.urgently(lambda connection: check_fences(connection, [Fence("a", 9), Fence("b", 4)]))
        with file.reading() as connection:
            assert [seen_epoch(connection, scope) for scope in "ab"] == [None, 5]


def test_a_schema_is_created_once(path: Path) -> None:
    with closing(open_file(path)) as file, closing(open_file(path)) as other:
        for each in (file, other, file):
            each.ensure_schema("things", TABLE)
        add(other, 1)
        assert things(file) == [1]


def test_a_file_that_another_thread_keeps_too_long_may_be_tried_again(tmp_path: Path) -> None:
    with closing(open_file(tmp_path / "x.db")) as file:
        kept, ended = threading.Event(), threading.Event()

        def keep() -> None:
            with file.transaction():
                kept.set()
                ended.wait(60)

        thread = threading.Thread(target=keep)
        thread.start()
        kept.wait(60)
        with (
            pytest.raises(LogUnreachable, match="kept by another thread") as error,
            file.transaction(busy_timeout_s=0.01),
        ):
            pass
        assert error.value.may_pass
        ended.set()
        thread.join()
