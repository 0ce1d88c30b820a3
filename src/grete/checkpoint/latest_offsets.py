"""The last processed offsets of every task, kept up with a checkpoint log by reading only what is new."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from grete.errors import WireError
from grete.keyed_log.base import KeyedLog
from grete.model.ids import SystemStreamPartition, TaskName
from grete.wire import checkpoint_json

Offsets = Mapping[SystemStreamPartition, str]


class LatestOffsets:
    """For those who look again and again, such as monitors: a job writes three records a task and batch.

    Memory is bounded by the log's live keys. Thread-safe.
    """

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._offset = -1
        self._tasks: dict[bytes, TaskName | None] = {}
        self._found: dict[TaskName, Offsets] = {}

    def read(self) -> dict[TaskName, Offsets]:
        """Last processed offsets by task, as of now. Undecodable records are skipped, as `read_commits` does."""
        with self._lock:
            for record in self._log.read(self._offset):
                task = self._task_of(record.key)
                if task is not None:
                    self._take(task, record.value)
                self._offset = record.offset
            return dict(self._found)

    def _task_of(self, key: bytes) -> TaskName | None:
        """The task of a checkpoint's key, None for every other key."""
        if key not in self._tasks:
            try:
                _, task, kind = checkpoint_json.decode_log_key(key)
                self._tasks[key] = task if kind == "checkpoint" else None
            except WireError:
                self._tasks[key] = None
        return self._tasks[key]

    def _take(self, task: TaskName, value: bytes | None) -> None:
        if value is None:
            self._found.pop(task, None)
            return
        try:
            self._found[task] = checkpoint_json.read_v1(value).offsets
        except WireError:
            return  # damaged or foreign: what was there before counts
