"""One connection with its pragmas, and a fair wait for locks."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import apsw

from grete.errors import UnsafeStorage
from grete.private_files import tighten_database
from grete.sqlite_file.machine import is_wal_safe
from grete.sqlite_file.mark import MarkWatch

_log = logging.getLogger("grete.sqlite_file")
_PAUSE_S = (0.0001, 0.002)
"""From eager to patient. SQLite's own handler backs off to 100 ms; at most one process waits here to write, see
`turnstile`, so it may look often."""
_SYNC_LEVELS = {"wal": ("FULL", 2), "delete": ("EXTRA", 3)}


class Connection:
    """An apsw connection (`db`) with a deadline for locks; used by one thread at a time."""

    def __init__(self, path: Path, *, busy_timeout_s: float, library: str) -> None:
        self.deadline_s = time.monotonic() + busy_timeout_s
        self.wal_pages = 0
        self.db = apsw.Connection(str(path))
        tighten_database(path)
        try:
            self.db.set_busy_handler(self._wait)
            self._set_pragmas(path, library)
        except BaseException:
            self.db.close(True)
            raise

    def _set_pragmas(self, path: Path, library: str) -> None:
        mode = "wal" if is_wal_safe(library) else "delete"
        if mode == "delete":
            _log.warning(
                "SQLite %s can corrupt a write-ahead log: %s gets a rollback journal, where readers and writers "
                "wait for each other; install apsw >= 3.54",
                library,
                path,
            )
        if self._pragma("journal_mode") != mode:
            self._switch(mode)
        name, level = _SYNC_LEVELS[mode]
        self._pragma(f"synchronous={name}")
        self._pragma("mmap_size=0")  # an I/O error in a mapped page is a signal, not an error
        self._pragma("foreign_keys=ON")
        if mode == "wal":
            # we checkpoint ourselves: SQLite's own checkpoint after a commit keeps I/O errors to itself
            self.db.set_wal_hook(self._remember_pages)
        found = (self._pragma("journal_mode"), self._pragma("synchronous"))
        if found != (mode, level):
            raise UnsafeStorage(
                f"{path}: journal_mode={mode} and synchronous={name} did not hold, SQLite has {found}"
            )

    def _pragma(self, text: str) -> object:
        return self.db.execute(f"PRAGMA {text}").get

    def _switch(self, mode: str) -> None:
        """Switching takes an exclusive lock, for which SQLite does not always ask the busy handler."""
        for attempt in itertools.count():
            try:
                self._pragma(f"journal_mode={mode}")
                return
            except apsw.BusyError:
                if not self._wait(attempt):
                    raise

    def _wait(self, attempts: int) -> bool:
        if time.monotonic() >= self.deadline_s:
            return False
        shortest, longest = _PAUSE_S
        time.sleep(min(longest, shortest * (1 + attempts / 8)))
        return True

    def _remember_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self.wal_pages = pages
        return 0  # SQLITE_OK

    def roll_back(self) -> None:
        """End an open transaction without a trace."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def close(self, *, keep_wal: bool = False) -> None:
        """Close. `keep_wal` leaves the write-ahead log as it is: after an I/O error nothing may sync it again."""
        if keep_wal:
            self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.db.close(True)


class FileChanges:
    """Says whether others have committed since it was asked last, for 10 µs. Used by one thread."""

    def __init__(
        self, connection: Connection, translated: Callable[[], AbstractContextManager[None]], mark: MarkWatch
    ) -> None:
        self._connection = connection
        self._translated = translated
        self._mark = mark

    def descriptor(self) -> int | None:
        """Readable once somebody has committed, until `version` is asked; None where nothing tells that."""
        return self._mark.descriptor()

    def version(self) -> object:
        """Another value after each commit of another connection.

        Raises:
            LogError: the file cannot be read.
        """
        self._mark.drain()
        with self._translated():
            return self._connection.db.execute("PRAGMA data_version").get

    def close(self) -> None:
        """Close the connection."""
        self._mark.close()
        self._connection.close()
