"""The last commit of each task, for who asks again and again: of the checkpoint log only what is new is read."""

from __future__ import annotations

from grete.checkpoint.own_keys import type_and_task
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.errors import WireError
from grete.keyed_log.base import KeyedLog, Record
from grete.model.ids import TaskName


class LatestCommits:
    """Holds the last record of each key: three for a task. Used by one thread."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._offset = -1
        self._of_tasks: dict[TaskName, dict[bytes, Record]] = {}

    def refresh(self) -> None:
        """Take in what was committed since. Raises LogError: the log does not answer."""
        for record in self._log.read(self._offset):
            self._offset = record.offset
            try:
                _, task = type_and_task(record.key)
            except WireError:
                continue
            if task is not None:
                self._of_tasks.setdefault(task, {})[record.key] = record

    def of(self, task: TaskName) -> TaskCommit | None:
        """Its last commit, as of `refresh`; None of a task that has none."""
        records = sorted(self._of_tasks.get(task, {}).values(), key=lambda one: one.offset)
        return read_commits(records).get(task)
