"""Mistakes around the commit of a batch: fences, atomicity, what is done twice and what is left out."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from grete.errors import InDoubt, LogError
from grete.model.fence import Fence, epoch_scope
from grete.systems.admin import OffsetAdmin
from grete.systems.collected import CollectedTransactions
from grete.systems.commit_group import CommitGroup
from grete.systems.inputs import Arrived
from grete.systems.local import segment_rows, system
from grete.systems.local.system import LocalSystem
from grete.tasks.runner import TaskRun
from grete.tasks.share_input import ShareInput
from grete_workbench.simulator.plants import Plant, Replaced
from grete_workbench.simulator.stores import ProcessSystem


def _fence_not_checked(replaced: Replaced) -> None:
    replaced(system, "check_fences", lambda connection, fences: None)


def _fence_not_raised(replaced: Replaced) -> None:
    replaced(LocalSystem, "raise_fence", lambda self, fences: None)
    replaced(LocalSystem, "begin_epoch", lambda self, fence: Fence(epoch_scope(fence), 1))


def _in_two(replaced: Replaced, first: str, second: str) -> None:
    """Commit a group in two transactions, the first without what `second` names and the other way round."""
    commit = ProcessSystem.commit

    def torn(self: ProcessSystem, group: CommitGroup) -> dict[tuple[str, int], int]:
        ends = commit(self, replace(group, **{second: ()}))
        return {**ends, **commit(self, replace(group, **{first: ()}))}

    replaced(ProcessSystem, "commit", torn)


def _changelog_first(replaced: Replaced) -> None:
    _in_two(replaced, "segments", "checkpoint_entries")


def _checkpoint_first(replaced: Replaced) -> None:
    _in_two(replaced, "checkpoint_entries", "segments")


def _retry_in_doubt(replaced: Replaced) -> None:
    commit = ProcessSystem.commit

    def again(self: ProcessSystem, group: CommitGroup) -> dict[tuple[str, int], int]:
        try:
            return commit(self, group)
        except InDoubt:
            anywhere = [replace(segment, first=None) for segment in group.segments]
            return commit(self, replace(group, segments=anywhere))

    replaced(ProcessSystem, "commit", again)


def _swallow(replaced: Replaced) -> None:
    commit = CollectedTransactions.commit

    def swallowed(self: CollectedTransactions, deadline_s: float) -> None:
        with contextlib.suppress(LogError):
            commit(self, deadline_s)

    replaced(CollectedTransactions, "commit", swallowed)
    replaced(segment_rows, "check_first", lambda segment, end: None)


def _read_again(replaced: Replaced) -> None:
    poll = ShareInput.poll

    def stays(self: ShareInput, records: int, wait_s: float) -> list[Arrived]:
        before = dict(self.next_offsets)
        arrived = poll(self, records, wait_s)
        self._positions.update(before)
        return arrived

    replaced(ShareInput, "poll", stays)
    replaced(TaskRun, "_above_checkpoint", lambda self, ssp_index, rows: rows)


def _skip_one(replaced: Replaced) -> None:
    replaced(
        OffsetAdmin,
        "offsets_after",
        lambda self, offsets: {ssp: str(int(offset) + 2) for ssp, offset in offsets.items()},
    )


def _repeat_one(replaced: Replaced) -> None:
    replaced(OffsetAdmin, "offsets_after", lambda self, offsets: dict(offsets))
    replaced(TaskRun, "_above_checkpoint", lambda self, ssp_index, rows: rows)


PLANTS = {
    "commit-fence-not-checked": Plant(
        "a fenced container's batch is committed",
        _fence_not_checked,
        ("pause-container", "kills-lost", "take-over"),
    ),
    "no-fence-raised": Plant(
        "a container starts, and the one before was not fenced off",
        _fence_not_raised,
        ("pause-container", "kills-lost", "take-over"),
    ),
    "outputs-before-checkpoint": Plant(
        "changelog and outputs are visible before their checkpoint", _changelog_first
    ),
    "checkpoint-before-outputs": Plant("a checkpoint is written before its outputs", _checkpoint_first),
    "commit-retried-in-doubt": Plant(
        "a commit in doubt is made again", _retry_in_doubt, ("in-doubt-written",)
    ),
    "commit-error-swallowed": Plant(
        "a batch that could not be committed counts as done", _swallow, ("refused", "disk-full")
    ),
    "batch-read-again": Plant("what is committed is read and processed again", _read_again),
    "starts-one-too-late": Plant("the offset after a checkpoint is one too high", _skip_one),
    "starts-one-too-early": Plant("a container starts at its checkpoint instead of after it", _repeat_one),
}
