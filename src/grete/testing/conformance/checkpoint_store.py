"""Promises of every checkpoint store (`grete.checkpoint.store`).

Subclass with a fixture `back_end` that returns a `CheckpointStoreBackEnd`: how to open the store, and how a
program that knows nothing of grete writes and damages a checkpoint in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from grete.checkpoint.store import CheckpointStore, Offsets, Resolved, StoredCheckpoint, copies, resolve
from grete.checkpoint.task_commit import TaskCommit
from grete.model.ids import SystemStreamPartition, TaskName

TASK, OTHER = TaskName("Partition 0"), TaskName("SystemStreamPartition [local, a.b, 1] é")
SSP = SystemStreamPartition("local", "in", 0)
DOTTED = SystemStreamPartition("local", "a.b", 7)


class CheckpointStoreBackEnd(Protocol):
    """A store as the suite needs it."""

    def open(self) -> CheckpointStore:
        """The same store each time, as another process would open it."""

    def write_as_samza(self, task: TaskName, offsets: Offsets) -> None:
        """Write a task's checkpoint as Samza does."""

    def damage(self, task: TaskName) -> None:
        """Make a task's checkpoint unreadable."""


class CheckpointStoreConformance:
    """The suite."""

    @pytest.fixture
    def store(self, back_end: CheckpointStoreBackEnd) -> Iterator[CheckpointStore]:
        """The store, closed afterwards."""
        opened = back_end.open()
        yield opened
        opened.close()

    def test_a_task_that_was_never_written_has_no_checkpoint(self, store: CheckpointStore) -> None:
        """And that is no error."""
        assert store.read({TASK}) == {}

    def test_what_was_written_is_read(self, store: CheckpointStore) -> None:
        """Every task, every SSP, whatever their names look like; offsets are text."""
        written = {
            TASK: StoredCheckpoint({SSP: "45", DOTTED: "1:2-x"}, "c1"),
            OTHER: StoredCheckpoint({DOTTED: "0"}, "c2"),
        }
        store.write(written)
        assert store.read({TASK, OTHER}) == written
        assert store.read({OTHER, TaskName("nobody")}) == {OTHER: written[OTHER]}

    def test_another_process_reads_it(self, store: CheckpointStore, back_end: CheckpointStoreBackEnd) -> None:
        """A write is there once it has returned."""
        store.write({TASK: StoredCheckpoint({SSP: "45"}, "c1")})
        reader = back_end.open()
        assert reader.read({TASK}) == {TASK: StoredCheckpoint({SSP: "45"}, "c1")}
        reader.close()

    def test_a_checkpoint_is_replaced_as_a_whole(self, store: CheckpointStore) -> None:
        """An SSP that is no input any more goes (S2-98); other tasks stay."""
        store.write(
            {TASK: StoredCheckpoint({SSP: "1", DOTTED: "2"}, "c1"), OTHER: StoredCheckpoint({SSP: "3"}, "c1")}
        )
        store.write({TASK: StoredCheckpoint({SSP: "4"}, "c2")})
        assert store.read({TASK, OTHER}) == {
            TASK: StoredCheckpoint({SSP: "4"}, "c2"),
            OTHER: StoredCheckpoint({SSP: "3"}, "c1"),
        }

    def test_a_checkpoint_without_offsets_is_one(self, store: CheckpointStore) -> None:
        """A task that has read nothing yet is not an unknown task."""
        store.write({TASK: StoredCheckpoint({}, "c1")})
        assert store.read({TASK}) == {TASK: StoredCheckpoint({}, "c1")}

    def test_an_operators_checkpoint_is_no_copy(self, store: CheckpointStore) -> None:
        """Written without a commit, over a copy, it is read without one, even with the copy's offsets."""
        for offset in ("44", "45"):
            store.write({TASK: StoredCheckpoint({SSP: "45"}, "c1")})
            store.write({TASK: StoredCheckpoint({SSP: offset})})
            assert store.read({TASK}) == {TASK: StoredCheckpoint({SSP: offset})}

    def test_what_samza_wrote_is_read_and_is_no_copy(
        self, store: CheckpointStore, back_end: CheckpointStoreBackEnd
    ) -> None:
        """A job that comes from Samza, and one that went back for a while."""
        back_end.write_as_samza(TASK, {SSP: "7", DOTTED: "8"})
        assert store.read({TASK}) == {TASK: StoredCheckpoint({SSP: "7", DOTTED: "8"})}
        store.write({TASK: StoredCheckpoint({SSP: "9"}, "c1")})
        back_end.write_as_samza(TASK, {SSP: "8"})
        assert store.read({TASK}) == {TASK: StoredCheckpoint({SSP: "8"})}

    def test_damage_is_said_and_mended_by_the_next_copy(
        self, store: CheckpointStore, back_end: CheckpointStoreBackEnd
    ) -> None:
        """Never taken for a job that never ran."""
        store.write({TASK: StoredCheckpoint({SSP: "45"}, "c1"), OTHER: StoredCheckpoint({SSP: "3"}, "c1")})
        back_end.damage(TASK)
        found = store.read({TASK, OTHER})
        assert found[TASK].offsets is None
        assert found[TASK].problem
        assert found[OTHER] == StoredCheckpoint({SSP: "3"}, "c1")
        store.write({TASK: StoredCheckpoint({SSP: "46"}, "c2")})
        assert store.read({TASK}) == {TASK: StoredCheckpoint({SSP: "46"}, "c2")}

    def test_a_copy_is_known_for_what_it_is(self, store: CheckpointStore) -> None:
        """The round trip that a container makes: a copy of this commit, then a copy of the one before."""
        before = TaskCommit({SSP: "45"}, "lineage", 1, "token-1", {"store": 3})
        now = TaskCommit({SSP: "46"}, "lineage", 2, "token-2", {"store": 5})
        store.write(copies({TASK: now}))
        assert resolve({TASK: now}, store.read({TASK})) == Resolved({TASK: now})
        store.write(copies({TASK: before}))
        resolved = resolve({TASK: now}, store.read({TASK}))
        assert resolved.commits == {TASK: now}
        assert resolved.stale == {TASK}
