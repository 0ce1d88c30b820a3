"""Coordination cells in a table of Azure Storage: a row a cell, compared and set by its ETag.

Tables notify nobody, so a wait polls: one request a look for as many as a thousand cells. A property holds 64 KiB.
The value of a larger cell is a blob, written before the row that names it, and removed with the row's next write; so
a value is whole or was not written, whatever its size (S3-17: Samza cuts off what is too long, silently).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from grete.azure.blobs import BlobChanged, Blobs
from grete.azure.names import escaped
from grete.azure.tables import Row, RowChanged, Table
from grete.coordination.cells import Cell, Cells, below
from grete.errors import CellChanged, CoordinationUnreachable, LogError, LogUnreachable

_SEPARATES, _ESCAPES = "+", "="
_AFTER_SEPARATOR = ","
"""The character after `+`: keys of what is below a prefix come before the prefix with it."""
_VALUE, _WRITE = "Value", "Write"
_LARGE = "large-"
"""How the ids of writes begin whose value is a blob."""
_LARGEST_PROPERTY = 65_536


class AzureCells(Cells):
    """The cells of one scope: a partition of the table."""

    def __init__(self, table: Table, blobs: Blobs, scope: str) -> None:
        self._table = table
        self._blobs = blobs
        self._partition = escaped(scope)

    def read(self, name: str) -> Cell | None:
        """See Cells."""
        with _answered():
            while found := self._table.read(self._partition, _key(name)):
                if cell := self._cell(*found):
                    return cell
        return None

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """See Cells."""
        first = _key(below(prefix))
        before = _key(prefix) + _AFTER_SEPARATOR if prefix else ""
        with _answered():
            rows = self._table.read_partition(self._partition, first=first, before=before)
            cells = {_name(row["RowKey"]): self._cell(row, etag) for row, etag in rows}
            changed = [name for name, cell in cells.items() if cell is None]  # since the rows were read
            cells |= {name: self.read(name) for name in changed}
        return {name: cell for name, cell in cells.items() if cell is not None}

    def _cell(self, row: Row, etag: str) -> Cell | None:
        """The cell of a row; None when it was written again before its blob was read."""
        value, version = row[_VALUE], f"{row[_WRITE]} {etag}"
        if not row[_WRITE].startswith(_LARGE):
            return Cell(bytes(value), version)
        found = self._blobs.read(self._blob(row[_WRITE]))
        return None if found is None else Cell(found.data, version)

    def _blob(self, write: str) -> str:
        return f"cells/{self._partition}/{write}"

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """See Cells."""
        is_large = len(value) > _LARGEST_PROPERTY
        write = (_LARGE if is_large else "") + uuid.uuid4().hex
        row: dict[str, str | bytes] = {"PartitionKey": self._partition, "RowKey": _key(name), _WRITE: write}
        row[_VALUE] = b"" if is_large else value
        with _answered():
            if is_large:
                self._blobs.write(self._blob(write), value, etag=None)
            try:
                with _changed(name):
                    etag = self._table.write(row, etag=None if expected is None else _etag(expected))
            except CellChanged:
                self._forget_blob(write)
                raise
            self._forget_blob(expected)
        return Cell(value, f"{write} {etag}")

    def delete(self, name: str, expected: str) -> None:
        """See Cells."""
        with _answered(), _changed(name):
            self._table.delete(self._partition, _key(name), etag=_etag(expected))
            self._forget_blob(expected)

    def _forget_blob(self, version: str | None) -> None:
        """The blob of a write that is over, where it had one; a failure leaves a blob that nothing names."""
        if version is None or not version.startswith(_LARGE):
            return
        with suppress(LogError, BlobChanged):
            name = self._blob(version.partition(" ")[0])
            found = self._blobs.read(name)
            if found is not None:
                self._blobs.delete(name, etag=found.etag)

    def close(self) -> None:
        """See Cells. The connections are those of the coordination that opened it."""


def _key(name: str) -> str:
    """Names are ASCII letters, digits and `._~-%/` (`cell_name`), of which keys may have no slash."""
    return name.replace("%", _ESCAPES).replace("/", _SEPARATES)


def _name(key: str) -> str:
    return key.replace(_ESCAPES, "%").replace(_SEPARATES, "/")


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
