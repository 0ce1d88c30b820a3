"""One SQLite file, opened the only way that keeps our promises (RELIABILITY rule 10).

Every embedded store (keyed log, leadership, streams) goes through here, so that version gate, file system check,
pragmas, transactions, fences and the translation of SQLite's errors exist once.

- WAL needs SQLite 3.51.3: from 3.7.0 to 3.51.2 two connections could corrupt the file while one of them resets
  the log. Older builds are refused.
- synchronous=FULL is set and read back: with NORMAL a power cut takes back commits that were acknowledged.
- An I/O error while committing leaves the outcome unknown and the file handle unusable (fsync is never tried
  again: the kernel may have dropped the dirty pages and would say ok). The caller gets InDoubt and reopens.
- SQLite drops the rest of a write-ahead log silently when one bit in it has flipped: 45 of 100 acknowledged commits
  were left, and integrity_check said ok. So every commit is numbered, and the number is kept beside the file after
  the commit: a file that has gone back behind its mark (or was restored from an old copy) is refused.
"""

from __future__ import annotations

import os
import sqlite3  # only for the interpreter's version in the message of the gate
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from grete.errors import Fenced, InDoubt, LogCorrupted, LogError, StorageFull, UnsafeStorage
from grete.model.fence import Fence

_FIRST_SAFE_WAL = (3, 51, 3)
_SQLITE_FULL_SYNC = 2
_DEFAULT_BUSY_TIMEOUT_S = 30.0
_RESERVE_BYTES = 256 * 1024
_MARK = struct.Struct(">q")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS fences (scope TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commits (id INTEGER PRIMARY KEY CHECK (id = 0), number INTEGER NOT NULL);
INSERT OR IGNORE INTO commits VALUES (0, 0);
"""


class SqliteFile:
    """One file, one connection per thread, used by the process that opened it only."""

    def __init__(self, path: Path, *, busy_timeout_s: float = _DEFAULT_BUSY_TIMEOUT_S) -> None:
        self.path = path
        self._busy_timeout_ms = int(busy_timeout_s * 1000)
        self._pid = os.getpid()
        self._local = threading.local()
        self._all: list[apsw.Connection] = []
        self._lock = threading.RLock()
        self._poisoned: str | None = None
        _check_version()
        is_new = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_file_system(path.parent)
        self._mark_path = path.with_name(f"{path.name}.mark")
        self._check_mark()
        self._mark = os.open(self._mark_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._create_schema()
        if is_new:
            _sync_directory(path.parent)
        self._reserve()

    def _create_schema(self) -> None:
        connection = self._connection()
        with self._translated("create"):
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(_SCHEMA)
            except apsw.Error:
                _roll_back(connection)
                raise
            connection.execute("COMMIT")

    def _check_mark(self) -> None:
        """Refuse a file that lost commits which were acknowledged.

        Raises:
            LogCorrupted: with the way out.
        """
        try:
            (acknowledged,) = _MARK.unpack(self._mark_path.read_bytes())
        except (OSError, struct.error):
            return  # a new file, or one whose mark was removed on purpose
        number = self._commit_number()
        if number < acknowledged:
            self.close()
            raise LogCorrupted(
                f"{self.path} ends at commit {number}, but commit {acknowledged} was acknowledged: its end is "
                f"damaged, or an older copy was put in its place. Restore the newest copy; to go on with what is "
                f"there and lose the rest, remove {self._mark_path}"
            )

    def _commit_number(self) -> int:
        connection = self._connection()
        with self._translated("open"):
            known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'commits'").fetchone()
            row = connection.execute("SELECT number FROM commits").fetchone() if known else None
        return 0 if row is None else int(row[0])

    def _connection(self) -> apsw.Connection:
        if os.getpid() != self._pid:
            raise LogError(
                f"{self.path} was opened by process {self._pid}; a forked child must open it again"
            )
        if self._poisoned is not None:
            raise LogError(f"{self.path} had an I/O error ({self._poisoned}); reopen it")
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            self._local.connection = connection
            with self._lock:
                self._all.append(connection)
        return connection

    def _connect(self) -> apsw.Connection:
        with self._translated("open"):
            connection = apsw.Connection(str(self.path))
            connection.set_busy_timeout(self._busy_timeout_ms)
            _pragma_until_free(connection, "PRAGMA journal_mode=WAL", self._busy_timeout_ms / 1000)
            connection.execute("PRAGMA synchronous=FULL; PRAGMA mmap_size=0; PRAGMA foreign_keys=ON")
            (level,) = connection.execute("PRAGMA synchronous").fetchone() or (None,)
            if level != _SQLITE_FULL_SYNC:
                raise UnsafeStorage(f"{self.path}: synchronous=FULL did not hold, got {level}")
            return connection

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """A write transaction: BEGIN IMMEDIATE, then COMMIT, or ROLLBACK on any exception.

        Keep it short and free of user code and I/O: nobody else can write meanwhile, not even take over.

        Raises:
            StorageFull: nothing was written.
            InDoubt: the commit failed with an I/O error; the file must be reopened and read.
            LogError: the file stayed locked by others for the whole busy timeout.
        """
        connection = self._connection()
        with self._translated("begin"):
            connection.execute("BEGIN IMMEDIATE")
        try:
            with self._translated("write"):
                yield connection
                row = connection.execute("UPDATE commits SET number = number + 1 RETURNING number").fetchone()
        except BaseException:
            _roll_back(connection)
            raise
        self._commit(connection)
        self._acknowledge(0 if row is None else int(row[0]))

    def _acknowledge(self, number: int) -> None:
        """Remember the commit beside the file. Not synced: after a power cut an older mark claims less, not more."""
        try:
            os.pwrite(self._mark, _MARK.pack(number), 0)
        except OSError as error:
            raise LogError(f"cannot write {self._mark_path}: {error}") from error

    def _commit(self, connection: apsw.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except apsw.FullError as error:
            _roll_back(connection)
            self._free_reserve()
            raise StorageFull(f"the disk of {self.path} is full; free space and try again") from error
        except apsw.IOError as error:
            self._poison(str(error))
            raise InDoubt("commit", f"{self.path}: {error}") from error
        except apsw.BusyError as error:
            _roll_back(connection)
            raise LogError(f"{self.path} stayed locked by another process: {error}") from error

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A read transaction: everything read inside it is one snapshot."""
        connection = self._connection()
        with self._translated("read"):
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """SQLite's errors in our words."""
        try:
            yield
        except apsw.FullError as error:
            self._free_reserve()
            raise StorageFull(
                f"the disk of {self.path} is full ({what}); free space and try again"
            ) from error
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise LogCorrupted(f"{self.path} is damaged ({what}): {error}") from error
        except apsw.IOError as error:
            self._poison(str(error))
            raise LogError(f"I/O error on {self.path} ({what}): {error}; reopen it") from error
        except apsw.BusyError as error:
            raise LogError(
                f"{self.path} stayed locked for {self._busy_timeout_ms / 1000:g} s ({what}); another process "
                f"holds a write transaction, perhaps a stopped one"
            ) from error
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError) as error:
            raise LogError(f"cannot {what} {self.path}: {error}; check path and permissions") from error

    def _poison(self, reason: str) -> None:
        self._poisoned = reason

    def _reserve(self) -> None:
        """Keep some bytes aside, so that on a full disk a leader can still step down and another take over."""
        reserve = self._reserve_path
        if reserve.exists():
            return
        try:
            with reserve.open("wb") as file:
                file.write(b"\0" * _RESERVE_BYTES)
        except OSError:
            reserve.unlink(missing_ok=True)  # no room for a reserve is no reason not to start

    @property
    def _reserve_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.reserve")

    def _free_reserve(self) -> None:
        self._reserve_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close every thread's connection. Calling it twice is fine."""
        with self._lock:
            connections, self._all = self._all, []
        for connection in connections:
            connection.close(True)
        if self._poisoned != "closed" and hasattr(self, "_mark"):
            os.close(self._mark)
        self._poisoned = "closed"


def open_file(path: Path, *, busy_timeout_s: float = _DEFAULT_BUSY_TIMEOUT_S) -> SqliteFile:
    """Open or create the file.

    Raises:
        UnsafeStorage: the SQLite build or the file system cannot keep the promises.
        LogCorrupted: it exists and is not a SQLite database.
    """
    return SqliteFile(path, busy_timeout_s=busy_timeout_s)


def check_fences(connection: apsw.Connection, fences: Iterable[Fence]) -> None:
    """Inside a write transaction: refuse every fence below what its scope has seen, raise the others.

    Raises:
        Fenced: the first scope that has seen a higher epoch.
    """
    for fence in fences:
        row = connection.execute("SELECT epoch FROM fences WHERE scope = ?", (fence.scope,)).fetchone()
        seen = -1 if row is None else int(row[0])
        if seen > fence.epoch:
            raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)
        if seen < fence.epoch:
            connection.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (fence.scope, fence.epoch))


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _pragma_until_free(connection: apsw.Connection, pragma: str, timeout_s: float) -> None:
    """Switching to WAL takes an exclusive lock for which SQLite does not wait by itself."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute(pragma)
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _check_version() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < _FIRST_SAFE_WAL:
        raise UnsafeStorage(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a WAL database; install apsw >= 3.54 "
            f"(the interpreter's own SQLite is {sqlite3.sqlite_version} and is not used)"
        )


def _check_file_system(directory: Path) -> None:
    kind = _file_system_of(directory)
    if kind is not None:
        raise UnsafeStorage(
            f"{directory} is on a network file system ({kind}), where SQLite's locks do not hold; "
            f"choose a local directory (GRETE_HOME or systems.<name>.path)"
        )


_NETWORK_NAMES = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph", "afs")


def _file_system_of(directory: Path) -> str | None:
    """The network file system that holds the directory, None when it is a local one (or not Linux)."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    target = str(directory.resolve())
    best, kind = "", ""
    for line in mounts:
        _, point, name, *_ = [*line.split(" "), "", "", ""]
        point = point.replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind if kind in _NETWORK_NAMES else None


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
