"""Mistakes around shares and their epochs: attempts that follow each other, slots, reports, connections."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from grete.clock import Deadline
from grete.container.epochs import Epoch
from grete.errors import ContainerGone
from grete.model.fence import Fence, epoch_scope
from grete.sqlite_file.fences import check_fences
from grete.systems.collected import CollectedTransactions
from grete.systems.local import segment_rows
from grete.systems.local.system import LocalSystem
from grete.tasks.commit.base import CommittedTasks
from grete.tasks.commit.executor import SlotCommits
from grete.tasks.results import Processed
from grete.tasks.spec import TaskReport
from grete_workbench.simulator import share
from grete_workbench.simulator.plants import Plant, Replaced

_LOST = ("lose-share", "pause-share")


def _ends_unchecked(replaced: Replaced) -> None:
    """Changelogs may end anywhere, as on brokers, which would else refuse most of what these mistakes write."""
    replaced(segment_rows, "check_first", lambda segment, end: None)


def _written_without_looking(replaced: Replaced) -> None:
    def unseen(self: SlotCommits, made: Sequence[Processed], deadline: Deadline) -> list[TaskReport]:
        self._transactions.open(deadline.at_s)
        return []

    replaced(SlotCommits, "_found", unseen)
    _ends_unchecked(replaced)


def _begun_where_the_container_did(replaced: Replaced) -> None:
    resume = SlotCommits.resume

    def anew(self: SlotCommits, tasks: Collection[int]) -> list[TaskReport]:
        resume(self, tasks)
        return []

    replaced(SlotCommits, "resume", anew)
    _ends_unchecked(replaced)


def _slot_shared(replaced: Replaced) -> None:
    take_slot = LocalSystem.take_slot

    def same(self: LocalSystem, fences: Sequence[Fence], scope: str) -> Fence:
        if scope == epoch_scope(fences[0]):
            return take_slot(self, fences, scope)
        right = Fence(scope, 1)
        with self._file.transaction() as connection:
            check_fences(connection, [*fences, right])
        return right

    replaced(LocalSystem, "take_slot", same)
    _ends_unchecked(replaced)


def _late_reports_taken(replaced: Replaced) -> None:
    take = CommittedTasks.take

    def taken(self: CommittedTasks, reports: Any, batch_id: int) -> Any:
        self._batches.clear()
        return take(self, reports, batch_id)

    replaced(CommittedTasks, "take", taken)
    _ends_unchecked(replaced)


def _cut_off_and_well(replaced: Replaced) -> None:
    work = share.work

    def well(loop: Any, channel: Any, clock: Any, *, waits_s: tuple[float, float]) -> Iterator[Sequence[int]]:
        try:
            yield from work(loop, channel, clock, waits_s=waits_s)
        except ContainerGone:
            return

    replaced(share, "work", well)


def _stale_state(replaced: Replaced) -> None:
    """The state of the epoch's beginning, with the end of the log as it is now."""
    start_of = Epoch.start_of

    def stale(self: Epoch, slot: int) -> Any:
        kept: dict[int, Any] = self.__dict__.setdefault("kept", {})
        now = start_of(self, slot)
        before = kept.setdefault(slot, now)
        return replace(now, progress=before.progress)

    replaced(Epoch, "start_of", stale)
    _ends_unchecked(replaced)


def _epoch_not_checked(replaced: Replaced) -> None:
    """The container's fence and the slot's are, which is enough unless a slot is not taken any more."""

    def unchecked(
        self: LocalSystem, fences: Sequence[Fence], slot: int, streams: Any
    ) -> CollectedTransactions:
        return CollectedTransactions(self, fences[:1], slot)

    replaced(LocalSystem, "transactions", unchecked)
    _ends_unchecked(replaced)


PLANTS = {
    "epoch-not-checked": Plant(
        "a share of an epoch that was given up commits while the next one goes on with fewer slots",
        _epoch_not_checked,
        ("lose-share", "config"),
    ),
    "lost-slot-not-noticed": Plant(
        "an attempt that has lost its slot takes it again and writes without looking",
        _written_without_looking,
        _LOST,
    ),
    "attempt-begins-anew": Plant(
        "an attempt starts where its container did, not after what was committed since",
        _begun_where_the_container_did,
        ("kill-share", "cut-share"),
    ),
    "slot-shared": Plant("taking a slot leaves it to its holder, too", _slot_shared, _LOST),
    "late-report-taken": Plant(
        "a report that comes after those of the next attempt takes the container's state back",
        _late_reports_taken,
        ("lose-share", "late-message", "killed-at-a-late-report"),
    ),
    "cut-off-and-well": Plant(
        "a share that has lost its container ends as if it had been asked to",
        _cut_off_and_well,
        ("cut-share",),
    ),
    "begun-with-stale-state": Plant(
        "an attempt is given the state of the epoch's beginning and the log's end of now",
        _stale_state,
        ("kill-share", "lose-share"),
    ),
}
