"""The file: transactions, reading, closing, and SQLite's errors in our words."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from grete.errors import IllegalStateError, InDoubt, LogCorrupted, LogError, LogUnreachable, StorageFull
from grete.failpoints import failpoint
from grete.private_files import sync_directory
from grete.sqlite_file import fences
from grete.sqlite_file.connection import Connection, FileChanges
from grete.sqlite_file.errors import translated
from grete.sqlite_file.machine import check_file, make_directory
from grete.sqlite_file.mark import Commit, MarkFile, MarkWatch
from grete.sqlite_file.reserve import Reserve
from grete.sqlite_file.turnstile import Turnstile

T = TypeVar("T")
DEFAULT_BUSY_TIMEOUT_S = 30.0
_CHECKPOINT_PAGES = 1_000
_IDLE_CONNECTIONS = 4
_SCHEMA = """
CREATE TABLE IF NOT EXISTS file_commits (
  id INTEGER PRIMARY KEY CHECK (id = 0), lineage BLOB NOT NULL, number INTEGER NOT NULL);
INSERT OR IGNORE INTO file_commits VALUES (0, randomblob(16), 0);
"""


class SqliteFile:
    """One file, for all threads of the process that opened it. A connection is held while it is used only.

    Never open the file's path by other means in the same process: closing such a descriptor gives up the locks
    that SQLite holds.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float, library: str) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._library = library
        self._pid = os.getpid()
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._writer: int | None = None
        self._unusable: str | None = None
        self._reserve = Reserve(path)
        self._mark = MarkFile(path)
        self._turnstile = Turnstile(path)
        is_new = not path.exists()
        make_directory(path.parent)
        check_file(path)
        try:
            self._last = self._check_mark()
            self.ensure_schema("file_commits", fences.SCHEMA + _SCHEMA)
        except BaseException:
            self.close()
            raise
        if is_new:
            sync_directory(path.parent)
        self._reserve.keep()

    # --- opening ---

    def _check_mark(self) -> int:
        """Refuse a file that lost commits which were acknowledged; returns the number of its last commit.

        Raises:
            LogCorrupted: with the way out.
        """
        mark = (
            self._mark.read()
        )  # before the file: it is written after the commit, so it can not be ahead of it
        with self.reading() as connection:
            known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'file_commits'").get
            row = connection.execute("SELECT lineage, number FROM file_commits").fetchone() if known else None
        commit = Commit(b"", 0) if row is None else Commit(*row)
        if mark is None or (mark.lineage == commit.lineage and mark.number <= commit.number):
            return commit.number
        what = "is another file than" if mark.lineage != commit.lineage and row is not None else "ends before"
        raise LogCorrupted(
            f"{self.path} (commit {commit.number}) {what} the one whose commit {mark.number} was acknowledged: its "
            f"end is damaged, or an older copy was put in its place. Restore the newest copy; to go on with what is "
            f"there and lose the rest, remove {self._mark.path}"
        )

    def ensure_schema(self, table: str, statements: str) -> None:
        """Create a schema that is complete when `table` exists. Any number of processes may do so at once.

        A file that has it is only read: it can be opened while another process holds the write lock.
        """
        with self.reading() as connection:
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).get is not None:
                return
        self.urgently(lambda connection: connection.execute(statements).fetchall())

    # --- connections ---

    @contextmanager
    def _connection(self, busy_timeout_s: float) -> Iterator[Connection]:
        """A connection for the time of one transaction."""
        self._check_usable()
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            with self._translated("open"):
                connection = Connection(self.path, busy_timeout_s=busy_timeout_s, library=self._library)
        connection.deadline_s = time.monotonic() + busy_timeout_s
        try:
            yield connection
        finally:
            self._put_back(connection)

    def _put_back(self, connection: Connection) -> None:
        if self._unusable is None:
            connection.roll_back()
            with self._lock:
                if self._unusable is None and len(self._idle) < _IDLE_CONNECTIONS:
                    self._idle.append(connection)
                    return
        connection.close(keep_wal=self._unusable is not None)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise LogError(
                f"{self.path} was opened by process {self._pid}; a forked child must open it again"
            )
        if self._unusable is not None:
            raise LogError(f"{self.path} cannot be used any more ({self._unusable}); open it again")

    def close(self) -> None:
        """Close every connection; those in use are closed when they are given back. Calling it twice is fine."""
        self._end("closed", keep_wal=False)
        self._mark.close()
        self._turnstile.close()

    def _end(self, reason: str, *, keep_wal: bool) -> None:
        with self._lock:
            self._unusable = self._unusable or reason
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close(keep_wal=keep_wal)

    def changes(self) -> FileChanges:
        """To look whether anything was committed, by whomever; closed by the caller."""
        self._check_usable()
        with self._translated("open"):
            connection = Connection(self.path, busy_timeout_s=self._busy_timeout_s, library=self._library)
        return FileChanges(connection, lambda: self._translated("read"), self.signal())

    def signal(self) -> MarkWatch:
        """Tells that something was committed, by whomever; closed by the caller."""
        return MarkWatch(self._mark.path)

    # --- reading and writing ---

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A read transaction: everything read inside it is one snapshot. Writers do not wait for it."""
        with self._connection(self._busy_timeout_s) as connection, self._translated("read"):
            connection.db.execute("BEGIN")
            yield connection.db

    @contextmanager
    def transaction(self, *, busy_timeout_s: float | None = None) -> Iterator[apsw.Connection]:
        """A write transaction: BEGIN IMMEDIATE, then COMMIT, or ROLLBACK on any exception.

        Keep it short and free of user code and I/O: no other process can write meanwhile, not even take over.

        Raises:
            StorageFull: nothing was written.
            InDoubt: the commit failed with an I/O error; the file must be opened again and read.
            LogUnreachable: the file stayed locked by others for the whole busy timeout.
        """
        timeout_s = self._busy_timeout_s if busy_timeout_s is None else busy_timeout_s
        with self._turn(timeout_s), self._connection(timeout_s) as connection:
            with self._turnstile.passing(timeout_s), self._translated("begin"):
                connection.db.execute("BEGIN IMMEDIATE")
            with self._translated("write"):
                changes = connection.db.total_changes()
                yield connection.db
                commit = self._number(connection.db) if connection.db.total_changes() > changes else None
            failpoint("file.before-commit")
            self._commit(connection)
            failpoint("file.committed")
            if commit is not None:
                self._last = commit.number
                self._mark.write(commit)
            failpoint("file.marked")
            self._after_commit(connection)

    @contextmanager
    def _turn(self, timeout_s: float) -> Iterator[None]:
        """The threads of this process take turns here; other processes wait in SQLite."""
        if self._writer == threading.get_ident():
            raise IllegalStateError(f"a write transaction on {self.path} inside another one")
        if not self._write_lock.acquire(timeout=timeout_s):
            raise LogUnreachable(
                f"{self.path} was kept by another thread of this process for {timeout_s:g} s"
            )
        try:
            self._writer = threading.get_ident()
            yield
        finally:
            self._writer = None
            self._write_lock.release()

    def _number(self, connection: apsw.Connection) -> Commit:
        """Number this commit.

        Raises:
            LogCorrupted: the file has gone back while we had it open.
        """
        row = connection.execute(
            "UPDATE file_commits SET number = number + 1 RETURNING lineage, number"
        ).fetchall()
        if len(row) != 1 or row[0][1] <= self._last:
            raise LogCorrupted(
                f"{self.path} went back behind commit {self._last} while it was open: it was replaced or damaged"
            )
        return Commit(*row[0])

    def _commit(self, connection: Connection) -> None:
        self._check_usable()
        try:
            with self._translated("commit"):
                connection.db.execute("COMMIT")
        except LogError as error:
            if isinstance(error.__cause__, apsw.IOError):
                raise InDoubt("commit", f"{self.path}: {error.__cause__}") from error
            raise

    def _after_commit(self, connection: Connection) -> None:
        if connection.wal_pages >= _CHECKPOINT_PAGES:
            self._checkpoint(connection)
            self._reserve.keep()

    def _checkpoint(self, connection: Connection) -> None:
        """Fold the write-ahead log into the file. What was committed is durable whatever happens here."""
        try:
            connection.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.BusyError, apsw.FullError, apsw.LockedError):
            return  # another process does it, or there is no space: the log keeps everything
        except apsw.IOError as error:
            self._end(f"I/O error: {error}", keep_wal=True)

    def urgently(self, work: Callable[[apsw.Connection], T], *, busy_timeout_s: float | None = None) -> T:
        """A write transaction that must succeed on a full disk too: leadership, fences, ends. It has the reserve.

        `work` runs again as long as the disk is full and the reserve lasts. Raises what `transaction` raises.
        """
        while True:
            try:
                with self.transaction(busy_timeout_s=busy_timeout_s) as connection:
                    return work(connection)
            except StorageFull:
                if not self._reserve.free():
                    raise

    def settle(self) -> None:
        """Make what can be read now durable beyond doubt, and what can not be read never come back.

        After an I/O error a commit can stand complete in the write-ahead log without being valid: a later crash
        would bring it back. Another commit writes over it. And what was read may only be in memory, since a failed
        sync drops dirty pages: folding the log into the file writes and syncs it again.

        Raises:
            LogError: readers or writers were in the way for the whole busy timeout.
        """
        with self.transaction() as connection:
            connection.execute("UPDATE file_commits SET number = number")
        with self._connection(self._busy_timeout_s) as connection_, self._translated("settle"):
            connection_.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """SQLite's errors as errors of the tree."""
        try:
            yield
        except apsw.Error as error:
            ours = translated(error, self.path, what)
            if ours is None:
                raise
            if isinstance(error, apsw.IOError) and not isinstance(ours, StorageFull):
                self._end(f"I/O error: {error}", keep_wal=True)
            raise ours from error


def open_file(
    path: Path, *, busy_timeout_s: float = DEFAULT_BUSY_TIMEOUT_S, library: str | None = None
) -> SqliteFile:
    """Open or create the file. `library` is the SQLite version to assume, this build's own by default.

    Raises:
        UnsafeStorage: the SQLite build or the file system cannot keep the promises.
        LogCorrupted: it is not a SQLite database, or it lost commits that were acknowledged.
    """
    return SqliteFile(path, busy_timeout_s=busy_timeout_s, library=library or apsw.sqlite_lib_version())
