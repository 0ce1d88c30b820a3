"""A journal in a folder: a line of JSON for each transaction, under a lock of the operating system.

A line without its end was never written, so a transaction is there as a whole or not at all. Each process folds the
lines that it has not seen into its own copy of the state.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grete.errors import Fenced
from grete.keyed_log.base import Record
from grete.model.fence import Fence

Line = dict[str, Any]


@dataclass(slots=True)
class Stream:
    """A stream and its records, (key, value, timestamp_ms), by partition."""

    uid: str
    compacted: bool
    partitions: list[list[tuple[bytes | None, bytes | None, int]]]


@dataclass(slots=True)
class State:
    """The sum of all transactions."""

    epochs: dict[str, int] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    logs: dict[str, list[Record]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    appends: dict[tuple[str, str], int] = field(default_factory=dict)
    leaders: dict[str, tuple[int, dict[str, Any] | None, int]] = field(default_factory=dict)
    cells: dict[tuple[str, str], tuple[bytes, int]] = field(default_factory=dict)
    cell_writes: int = 0

    def fenced(self, fences: Iterable[Fence]) -> dict[str, int]:
        """The scopes with their epochs, for the line of a transaction under these fences.

        Raises:
            Fenced: a scope has seen a higher epoch.
        """
        for fence in fences:
            seen = self.epochs.get(fence.scope, -1)
            if seen > fence.epoch:
                raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)
        return {fence.scope: fence.epoch for fence in fences}

    def end(self, log: str) -> int:
        """The offset of the last record of a log."""
        return self.ends.get(log, -1)

    def fold(self, line: Line) -> None:
        """Take in a transaction."""
        self.epochs |= line.get("epochs", {})
        for name, uid, partitions, compacted in line.get("streams", ()):
            known = self.streams.setdefault(name, Stream(uid, compacted, []))
            known.partitions += [[] for _ in range(partitions - len(known.partitions))]
        for name, partition, key, value, time_ms in line.get("records", ()):
            self.streams[name].partitions[partition].append((decoded(key), decoded(value), time_ms))
        for log, key, value, time_ms, epoch, append_id in line.get("entries", ()):
            self.ends[log] = self.end(log) + 1
            record = Record(self.ends[log], decoded(key) or b"", decoded(value), time_ms, epoch)
            self.logs.setdefault(log, []).append(record)
            if append_id is not None:
                self.appends[log, append_id] = record.offset
        for log, gone in line.get("compacted", {}).items():
            self.logs[log] = [record for record in self.logs[log] if record.offset not in set(gone)]
        for scope, name, value in line.get("cells", ()):
            self.cell_writes += 1
            self.cells.pop((scope, name), None)
            if value is not None:
                self.cells[scope, name] = (decoded(value) or b"", self.cell_writes)
        self.leaders.pop(line.get("forgotten", ""), None)
        self.leaders |= {scope: tuple(leader) for scope, leader in line.get("leaders", {}).items()}


class Journal:
    """The journal of a folder. Safe to use from several threads and processes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / "journal.jsonl").open("a+b")
        self._lock = threading.RLock()
        self._read = 0
        self._state = State()

    def look(self) -> State:
        """The state as it is now; not to be changed."""
        return self.write(lambda state: {})

    def write(self, transaction: Callable[[State], Line]) -> State:
        """Append the line that `transaction` makes of the state, durable on return; an empty line changes nothing."""
        with self._lock:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._catch_up()
                line = transaction(self._state)
                if line:
                    self._file.write(json.dumps(line).encode() + b"\n")
                    self._file.flush()
                    os.fsync(self._file.fileno())
                    self._catch_up()
                return self._state
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        self._file.seek(self._read)
        for line in self._file.readlines():
            if not line.endswith(b"\n"):
                self._file.truncate(self._read)  # its writer was killed
                return
            self._state.fold(json.loads(line))
            self._read += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def encoded(data: bytes | None) -> str | None:
    """Bytes as JSON can hold them."""
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    """The bytes again."""
    return None if text is None else base64.b64decode(text)
