"""Commits on the driver: outputs, changelog records and checkpoints of a whole batch in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grete.checkpoint.task_commit import TaskCommit
from grete.errors import LogCorrupted
from grete.model.ids import TaskName
from grete.tasks.commit.base import BatchCommits
from grete.tasks.results import TaskResult
from grete.tasks.spec import TaskProgress


class DriverCommits(BatchCommits):
    """Commits what workers handed over."""

    def _make_durable(
        self,
        results: Sequence[TaskResult],
        progress: Mapping[int, TaskProgress],
        commits: Mapping[TaskName, TaskCommit],
    ) -> float:
        segments = [segment for result in results for segment in result.segments]
        self._check_changelogs(progress, self._target.commit(segments, commits))
        return 0.0

    def _check_changelogs(
        self, progress: Mapping[int, TaskProgress], ends: Mapping[tuple[str, int], int]
    ) -> None:
        """We are the only writer of our changelogs; an end that is not ours means that another program wrote."""
        for index, after in progress.items():
            partition = self.spec.tasks[index].changelog_partition
            for store in self.spec.stores:
                end = ends.get((store.changelog_stream, partition))
                if end is not None and end != after.store_positions[store.name]:
                    raise LogCorrupted(
                        f"changelog {store.changelog_stream} partition {partition} ends at {end}, expected "
                        f"{after.store_positions[store.name]}: another program writes to it"
                    )
