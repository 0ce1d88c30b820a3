"""Coordination cells in a table of Azure Storage: a row a cell, compared and set by its ETag.

Tables notify nobody, so a wait polls: one request a look for as many as a thousand cells.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from grete.azure.names import escaped
from grete.azure.tables import Row, RowChanged, Table
from grete.coordination.cells import Cell, Cells, below
from grete.errors import CellChanged, CoordinationUnreachable, LogUnreachable

_SEPARATES, _ESCAPES = "+", "="
_AFTER_SEPARATOR = ","
"""The character after `+`: keys of what is below a prefix come before the prefix with it."""
_VALUE, _WRITE = "Value", "Write"


class AzureCells(Cells):
    """The cells of one scope: a partition of the table."""

    def __init__(self, table: Table, scope: str) -> None:
        self._table = table
        self._partition = escaped(scope)

    def read(self, name: str) -> Cell | None:
        """See Cells."""
        with _answered():
            found = self._table.read(self._partition, _key(name))
        return None if found is None else _cell(*found)

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """See Cells."""
        first = _key(below(prefix))
        before = _key(prefix) + _AFTER_SEPARATOR if prefix else ""
        with _answered():
            rows = self._table.read_partition(self._partition, first=first, before=before)
        return {_name(row["RowKey"]): _cell(row, etag) for row, etag in rows}

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """See Cells."""
        write = uuid.uuid4().hex
        row = {"PartitionKey": self._partition, "RowKey": _key(name), _VALUE: value, _WRITE: write}
        with _answered(), _changed(name):
            etag = self._table.write(row, etag=None if expected is None else _etag(expected))
        return Cell(value, f"{write} {etag}")

    def delete(self, name: str, expected: str) -> None:
        """See Cells."""
        with _answered(), _changed(name):
            self._table.delete(self._partition, _key(name), etag=_etag(expected))

    def close(self) -> None:
        """See Cells. The connections are those of the coordination that opened it."""


def _key(name: str) -> str:
    """Names are ASCII letters, digits and `._~-%/` (`cell_name`), of which keys may have no slash."""
    return name.replace("%", _ESCAPES).replace("/", _SEPARATES)


def _name(key: str) -> str:
    return key.replace(_ESCAPES, "%").replace(_SEPARATES, "/")


def _cell(row: Row, etag: str) -> Cell:
    return Cell(bytes(row[_VALUE]), f"{row[_WRITE]} {etag}")


def _etag(version: str) -> str:
    return version.partition(" ")[2]


@contextmanager
def _answered() -> Iterator[None]:
    try:
        yield
    except LogUnreachable as error:
        raise CoordinationUnreachable(str(error)) from error


@contextmanager
def _changed(name: str) -> Iterator[None]:
    try:
        yield
    except RowChanged as error:
        raise CellChanged(name) from error
