"""What is in the checkpoint log of a slot's tasks since its container read its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from grete.checkpoint.task_commit import TaskCommit, companion_of
from grete.errors import CheckpointsMoved, WireError
from grete.keyed_log.base import Record
from grete.model.ids import TaskName
from grete.tasks.results import Processed
from grete.tasks.spec import RunnerSpec, TaskReport


class EarlierCommits:
    """Tells commits of this run's earlier attempts at a share from those of other runs."""

    def __init__(self, spec: RunnerSpec, slot: int, lineage: str) -> None:
        self._spec = spec
        self._commit = spec.commit
        self._slot = slot
        self._lineage = lineage

    def in_records(self, records: Iterable[Record]) -> dict[int, TaskReport]:
        """The last commit of each task of this container, by its index.

        Raises:
            CheckpointsMoved: another run of the container has made one.
        """
        indexes = {task.name: task.index for task in self._spec.tasks}
        found: dict[int, TaskReport] = {}
        for record in records:
            task, commit = _companion(record)
            if commit is None or task not in indexes or not commit.lineage:
                continue
            if commit.lineage != self._lineage:
                raise CheckpointsMoved(
                    f"another run of {self._commit.fence.scope} has committed {task} at offset {record.offset} of "
                    f"{self._commit.checkpoint_log} since this one read its checkpoints; nothing was written, and "
                    f"the container reads them again"
                )
            found[indexes[task]] = self._report(indexes[task], commit, record.offset)
        return found

    def _report(self, index: int, commit: TaskCommit, offset: int) -> TaskReport:
        indexes = {ssp: number for number, ssp in enumerate(self._spec.ssps)}
        return TaskReport(
            task=index,
            token=commit.token,
            records=0,
            last_offsets={indexes[ssp]: int(last) for ssp, last in commit.offsets.items() if ssp in indexes},
            positions=commit.store_positions,
            committed_at=offset,
            batch_id=commit.batch_id,
        )

    def of_results(self, made: Sequence[Processed], committed: Mapping[int, TaskReport]) -> list[TaskReport]:
        """The reports of these results if they are among what is committed, else none: they are together or never.

        Raises:
            CheckpointsMoved: another attempt has committed other results of one of these tasks.
        """
        own = {result.report.task: result.report for result in made}
        known = {result.report.task: result.progress.token for result in made}
        found = {task: report for task, report in committed.items() if report.token != known[task]}
        moved = [task for task, report in found.items() if report.token != own[task].token]
        if moved:
            raise CheckpointsMoved(
                f"another attempt at slot {self._slot} of {self._commit.fence.scope} has committed "
                f"{self._spec.tasks[moved[0]].name} and goes on; nothing was written"
            )
        return [
            replace(
                own[task],
                positions=report.positions,
                committed_at=report.committed_at,
                batch_id=report.batch_id,
            )
            for task, report in found.items()
        ]


def _companion(record: Record) -> tuple[TaskName | None, TaskCommit | None]:
    try:
        return companion_of(record)
    except WireError:
        return None, None  # a checkpoint, or a record of another program
