"""A standby container: keeps warm copies of stores by following their changelogs (Samza's standby tasks).

It reads changelogs and writes its own folder; it has no Spark, raises no fence, and never writes an output, a
changelog or a checkpoint. All it has is a prefix of what was committed, so it can be stopped, killed or late without
harm: the task that takes over catches up from where the copy is (`warm_copy`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import apsw

from grete.clock import Clock, SystemClock
from grete.container.assignment import AssignedTask, Assignment
from grete.container.control import Control, Ended
from grete.container.specs import stores
from grete.errors import GreteError
from grete.grouping.standby import replica_of, task_of_standby
from grete.model.ids import TaskName
from grete.systems.factory import open_system
from grete.tasks.spec import StoreSpec
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.paths import store_identity, store_path

_log = logging.getLogger("grete.standby")
_INTERVAL_S = 0.5


class StandbyRun:
    """Follows the changelogs of the tasks that a standby container was given, until stopped or reassigned."""

    def __init__(self, assignment: Assignment, home: Path, clock: Clock | None = None) -> None:
        clock = SystemClock() if clock is None else clock
        settings, name = assignment.settings, assignment.settings.task.commit_system
        self._assignment = assignment
        self._directory = assignment.standby_directory(home, replica_of(assignment.container_id))
        self._clock = clock
        self._system = open_system(settings, name, home, clock)
        self._files: dict[tuple[TaskName, str], StoreFile] = {}

    def execute(self, control: Control) -> Ended:
        """Catch up again and again, a last time at the end.

        A job that drains asks its standby containers to end when its others have: so the copies are at the end, too.
        What fails is tried again: a standby that is late does no harm, a job that ends because of it would.
        """
        while True:
            is_last_time = control.is_set()
            try:
                self.catch_up()
            except (GreteError, apsw.Error, OSError) as error:
                _log.warning("standby container %s will try again: %s", self._assignment.container_id, error)
                self._close_files()
            if is_last_time:
                return Ended.INTERRUPTED
            control.wait(_INTERVAL_S)

    def catch_up(self) -> Mapping[tuple[TaskName, str], int]:
        """Bring every copy to the end of its changelog; returns the offset up to which each is, by task and store.

        Raises:
            StreamNotFound: a changelog is not there yet.
        """
        return {
            (task_of_standby(task.name), store.name): self._follow(task, store)
            for store in stores(self._assignment, self._system)
            for task in self._assignment.tasks
        }

    def _follow(self, task: AssignedTask, store: StoreSpec) -> int:
        active = task_of_standby(task.name)
        file = self._files.get((active, store.name))
        if file is None:
            path = store_path(self._directory, active, store.name)
            identity = store_identity(store, task.changelog_partition)
            file = StoreFile(path, identity, now_ms=self._clock.wall_ms, ttl_ms=store.ttl_ms)
            self._files[active, store.name] = file
        end = int(self._system.offsets(store.changelog_stream)[task.changelog_partition].upcoming)
        file.follow(self._system, store.changelog_stream, task.changelog_partition, end)
        return end

    def _close_files(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def close(self) -> None:
        """Close the files."""
        self._close_files()
        self._system.close()


def follow(assignment: Assignment, home: Path, control: Control) -> Ended:
    """Run a standby container from its assignment to its end."""
    run = StandbyRun(assignment, home)
    try:
        return run.execute(control)
    finally:
        run.close()
