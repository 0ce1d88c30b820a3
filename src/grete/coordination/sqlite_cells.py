"""Coordination cells in a SQLite file, for processes of one machine."""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from grete.coordination.cells import Cell, Cells, below
from grete.errors import CellChanged
from grete.sqlite_file import SqliteFile

# AUTOINCREMENT: the number of a removed row is never given again, and the version of a write must not return
_SCHEMA = """
CREATE TABLE IF NOT EXISTS cells (
  version INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
  UNIQUE (scope, name));
"""


class SqliteCells(Cells):
    """The cells of one scope, in a table of a file. Writes wait `timeout_s` for their turn at it."""

    def __init__(self, file: SqliteFile, scope: str, *, timeout_s: float) -> None:
        """Closing it leaves the file open for its other users."""
        self._file = file
        self._scope = scope
        self._timeout_s = timeout_s
        file.ensure_schema("cells", _SCHEMA)

    def read(self, name: str) -> Cell | None:
        """See Cells."""
        with self._file.reading() as connection:
            row = _row(connection, self._scope, name)
        return None if row is None else Cell(row[1], str(row[0]))

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """See Cells."""
        begins = below(prefix)
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT name, value, version FROM cells WHERE scope = ? AND name >= ?", (self._scope, begins)
            ).fetchall()
        return {name: Cell(value, str(version)) for name, value, version in rows if name.startswith(begins)}

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """See Cells."""

        def replace(connection: apsw.Connection) -> int:
            _remove(connection, self._scope, name, expected)
            connection.execute(
                "INSERT INTO cells (scope, name, value) VALUES (?, ?, ?)", (self._scope, name, value)
            ).fetchall()
            return int(connection.last_insert_rowid())

        return Cell(value, str(self._file.urgently(replace, busy_timeout_s=self._timeout_s)))

    def delete(self, name: str, expected: str) -> None:
        """See Cells."""
        self._file.urgently(
            lambda connection: _remove(connection, self._scope, name, expected),
            busy_timeout_s=self._timeout_s,
        )

    def close(self) -> None:
        """See Cells."""


def _row(connection: apsw.Connection, scope: str, name: str) -> tuple[int, bytes] | None:
    row = connection.execute("SELECT version, value FROM cells WHERE scope = ? AND name = ?", (scope, name))
    found = row.fetchone()
    return None if found is None else (int(found[0]), bytes(found[1]))


def _remove(connection: apsw.Connection, scope: str, name: str, expected: str | None) -> None:
    """Remove the row of this version, which must be there; for None there must be no row."""
    row = _row(connection, scope, name)
    if (None if row is None else str(row[0])) != expected:
        raise CellChanged(name)
    connection.execute("DELETE FROM cells WHERE scope = ? AND name = ?", (scope, name)).fetchall()
