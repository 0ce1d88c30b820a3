"""Mistakes in the stores that a task keeps on disk."""

from __future__ import annotations

from typing import Any

from grete.application.store import TaskStore
from grete.tasks.stores.file import StoreFile
from grete.tasks.task_worker import TaskWorker
from grete_workbench.simulator.plants import Plant, Replaced


def _pending_unproven(replaced: Replaced) -> None:
    settle = StoreFile._settle

    def unproven(self: StoreFile, position: int, token: str, read_changes: Any, unpack: Any) -> None:
        pending = self._connection.execute("SELECT changes FROM pending").fetchone()
        if pending is not None:
            with self._transaction():
                self._apply(unpack(pending[0]))
        settle(self, position, token, read_changes, unpack)

    replaced(StoreFile, "_settle", unproven)


def _catch_up_late(replaced: Replaced) -> None:
    settle = StoreFile.settle

    def late(self: StoreFile, position: int, token: str, read_changes: Any, unpack: Any) -> None:
        settle(self, position, token, lambda start, end: read_changes(min(start + 1, end), end), unpack)

    replaced(StoreFile, "settle", late)


def _no_catch_up(replaced: Replaced) -> None:
    def settle(self: StoreFile, position: int, token: str, read_changes: Any, unpack: Any) -> None:
        with self._transaction():
            self._connection.execute("DELETE FROM pending")
            self._connection.execute("UPDATE meta SET position = ?", (position,))

    replaced(StoreFile, "settle", settle)


def _trust_memory(replaced: Replaced) -> None:
    begin = TaskStore.begin_batch
    replaced(TaskStore, "begin_batch", lambda self, *, continues: begin(self, continues=True))
    drop = TaskWorker.begin_batch

    def keep_instance(self: TaskWorker, progress: Any) -> Any:
        self.token = progress.token
        return drop(self, progress)

    replaced(TaskWorker, "begin_batch", keep_instance)


def _write_through(replaced: Replaced) -> None:
    set_pending = StoreFile.set_pending

    def at_once(self: StoreFile, token: str, position: int, changes: bytes) -> None:
        from grete.systems.records import unpack_changes

        set_pending(self, token, position, changes)
        with self._transaction():
            self._apply(unpack_changes(changes))

    replaced(StoreFile, "set_pending", at_once)


PLANTS = {
    "pending-applied-unproven": Plant(
        "changes of an attempt that was not committed are applied",
        _pending_unproven,
        ("die-before", "kill-container"),
    ),
    "catch-up-misses-one": Plant(
        "a store that catches up leaves out the first record", _catch_up_late, ("kill-container",)
    ),
    "stale-store-used": Plant("a store file that is behind is used as it is", _no_catch_up),
    "written-before-proven": Plant(
        "a batch's changes go into the store before it is committed", _write_through
    ),
}
