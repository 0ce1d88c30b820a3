"""Packed records on their way from a worker to the driver that commits them: few in the answer, many through a file.

An answer goes through Spark's JVM, several times over, and what does not fit its heap ends the container. The
embedded system is one machine, so a worker can leave records where the driver reads them, a piece at a time, inside
its transaction. Files are in a folder of one run of one batch, which goes when that run has ended.
"""

from __future__ import annotations

import errno
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import orjson

from grete.errors import LogError, StorageFull

IN_ANSWERS_BYTES = 32 << 20
"""What all shares of a batch answer with at most; a heap of 1 GB held five times as much."""
IN_FILE = "f"
"""The kind of a row whose records are in a file; its data says where."""

Row = tuple[str, int, str, int, int, bytes]


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """Records for one stream partition that are in a file until they are committed. See `systems.base.Segment`."""

    stream: str
    partition: int
    count: int
    path: str
    start: int
    size: int

    @property
    def data(self) -> bytes:
        """The records, read now.

        Raises:
            LogError: the file is not what was written; nothing was committed.
        """
        try:
            with Path(self.path).open("rb") as file:
                file.seek(self.start)
                data = file.read(self.size)
        except OSError as error:
            raise LogError(f"cannot read the outputs that a worker left in {self.path}: {error}") from error
        if len(data) != self.size:
            raise LogError(
                f"the outputs that a worker left in {self.path} end before {self.start + self.size}"
            )
        return data


class HandOver:
    """What one share hands over, from its first record to its last."""

    def __init__(self, directory: str, shares: int) -> None:
        """`shares` of the batch answer at once."""
        self._path = Path(directory) / f"{uuid.uuid4().hex}.records"
        self._left = IN_ANSWERS_BYTES // shares
        self._file: BinaryIO | None = None

    def placed(self, row: Row) -> Row:
        """The row as it is answered: as it is, or saying where its records are.

        Raises:
            StorageFull: the disk is full; nothing is committed.
        """
        kind, task, stream, partition, count, data = row
        if kind == "r" or len(data) <= self._left:
            self._left -= len(data) if kind != "r" else 0
            return row
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("xb")
            start = self._file.tell()
            self._file.write(data)
        except OSError as error:
            kind_of = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else LogError
            raise kind_of(f"cannot leave a batch's outputs in {self._path}: {error}; free space") from error
        where = {"path": str(self._path), "start": start, "size": len(data)}
        return IN_FILE, task, stream, partition, count, orjson.dumps(where)

    def __enter__(self) -> HandOver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is buffered any more. What a failed attempt has left goes with the folder."""
        if self._file is not None:
            self._file.close()


def stored(row: dict[str, Any]) -> StoredSegment:
    """The records of a row of kind `IN_FILE`."""
    return StoredSegment(row["stream"], row["partition"], row["count"], **orjson.loads(row["data"]))
