"""What is in the checkpoint log of a slot's tasks since its container read its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from grete.checkpoint.task_commit import TaskCommit, companion_of, companion_owner
from grete.errors import CheckpointsMoved, WireError
from grete.keyed_log.base import Record
from grete.tasks.results import Processed
from grete.tasks.spec import RunnerSpec, TaskReport


class EarlierCommits:
    """Tells commits of this run's earlier attempts at a share from those of other runs."""

    def __init__(self, spec: RunnerSpec, slot: int, lineage: str) -> None:
        self._spec = spec
        self._commit = spec.commit
        self._slot = slot
        self._lineage = lineage
        self._tasks = {task.name: task.index for task in spec.tasks}
        self._ssps = {ssp: index for index, ssp in enumerate(spec.ssps)}

    def in_records(self, records: Iterable[Record]) -> dict[int, TaskReport]:
        """The last commit of each task of this container, by its index.

        Raises:
            CheckpointsMoved: another run of the container has made one.
        """
        found: dict[int, TaskReport] = {}
        for record in records:
            index = self._index_of(record)
            commit = None if index is None else _commit_in(record)
            if index is None or commit is None or not commit.lineage:
                continue
            task = self._spec.tasks[index].name
            if commit.lineage != self._lineage:
                raise CheckpointsMoved(
                    f"another run of {self._commit.fence.scope} has committed {task} at offset {record.offset} of "
                    f"{self._commit.checkpoint_log} since this one read its checkpoints; nothing was written, and "
                    f"the container reads them again"
                )
            found[index] = self._report(index, commit, record.offset)
        return found

    def _index_of(self, record: Record) -> int | None:
        """The task of this container whose companion it is: most of a log is other containers', and not decoded."""
        task = companion_owner(record.key)
        return None if task is None else self._tasks.get(task)

    def _report(self, index: int, commit: TaskCommit, offset: int) -> TaskReport:
        return TaskReport(
            task=index,
            token=commit.token,
            records=0,
            last_offsets={
                self._ssps[ssp]: int(last) for ssp, last in commit.offsets.items() if ssp in self._ssps
            },
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


def _commit_in(companion: Record) -> TaskCommit | None:
    try:
        return companion_of(companion)[1]
    except WireError:
        return None  # another program's
