"""Checkpoint stores: where checkpoints are kept for others to read and move, besides the job's own checkpoint log.

The log is always written, in the transaction of outputs and changelog, and is the truth: a changelog record must
never become visible without the checkpoint that it belongs to, and no other place can be part of that transaction. A
store gets a copy after the commit, before the next batch. It is read when a container starts: an offset that another
program wrote there counts (`resolve`), as it would have in Samza.

To distinguish the two a store keeps, beside the offsets in Samza's form, the id of the commit that they are a copy of
and a digest of them. A copy proves itself by the digest; what cannot was written by another program.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from grete.checkpoint.task_commit import TaskCommit
from grete.clock import Clock
from grete.config.settings import Settings
from grete.errors import LogCorrupted
from grete.keyed_log.base import KeyedLog
from grete.model.fence import Fence
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.wire.checkpoint_json import ChangelogMarks

Offsets = Mapping[SystemStreamPartition, str]


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A task's checkpoint in a store. `offsets` None: it is there and cannot be read; `problem` says where and why.

    `commit` is the id of the commit it is a copy of, None when the store was written by another program. `marks` are
    Samza's changelog marks.
    """

    offsets: Offsets | None
    commit: str | None = None
    problem: str = ""
    marks: ChangelogMarks = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreContext:
    """Arguments with which a store is opened. `fence` is the writing container's, None for readers and tools.

    `coordinator_log` is the log of the job's coordinator stream, where the process holds it open already.
    """

    job: JobId
    settings: Settings
    home: Path
    clock: Clock
    fence: Fence | None = None
    coordinator_log: KeyedLog | None = None


class CheckpointStore(ABC):
    """The promise of a store, whatever the back end:

    - **A task's checkpoint is whole.** A reader gets an old one or a new one, never a mix. Several tasks are written
      one after the other where the back end has no transactions.
    - **Durable on return** of `write`.
    - **What is written with a commit's id is read back with it**, until another program writes the task's offsets:
      then without. The mistake an implementer will make: to keep the id in a second place and let a crash between
      the two writes pair an id with offsets that it does not belong to. Offsets first, then the id with a digest.
    - **Nothing stops on what it does not understand**: damage is a `StoredCheckpoint` without offsets.

    Used by one thread.
    """

    @abstractmethod
    def read(self, tasks: Collection[TaskName]) -> dict[TaskName, StoredCheckpoint]:
        """The checkpoints of those of `tasks` that have one.

        Raises:
            GreteError: the store cannot be reached.
        """

    @abstractmethod
    def write(self, checkpoints: Mapping[TaskName, StoredCheckpoint]) -> None:
        """Replace the checkpoints of these tasks. Without `commit` it is an operator's.

        Raises:
            Fenced: the store has fences and a later incarnation of the container has written.
            StorageFull: some tasks may have been written, each of them whole.
        """

    def places(self, tasks: Collection[TaskName]) -> list[str]:
        """Where what `delete` removes of these tasks is, for people; nothing that goes with the job's own streams."""
        return []

    def delete(self, tasks: Collection[TaskName]) -> None:
        """Remove the checkpoints of these tasks from `places`. What is not there is fine."""
        assert not self.places(tasks), "who has places removes what is there"

    @abstractmethod
    def close(self) -> None:
        """Release everything."""


def commit_id(commit: TaskCommit) -> str:
    """Names a commit: equal for equal commits, different for others."""
    positions = sorted(commit.store_positions.items())
    identity = [
        commit.lineage,
        commit.batch_id,
        commit.token,
        positions,
        digest(commit.offsets),
    ]
    return hashlib.sha256(orjson.dumps(identity)).hexdigest()[:32]


def digest(offsets: Offsets) -> str:
    """A digest of offsets, the same in whatever order they come."""
    ordered = sorted((str(ssp), offset) for ssp, offset in offsets.items())
    return hashlib.sha256(orjson.dumps(ordered)).hexdigest()[:32]


def copies(commits: Mapping[TaskName, TaskCommit]) -> dict[TaskName, StoredCheckpoint]:
    """Commits as a store keeps them."""
    return {task: StoredCheckpoint(commit.offsets, commit_id(commit)) for task, commit in commits.items()}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The commit that counts, by task. `stale`: its copy is missing, old or damaged. `moved`: the store counts."""

    commits: Mapping[TaskName, TaskCommit]
    stale: frozenset[TaskName] = frozenset()
    moved: frozenset[TaskName] = frozenset()


def resolve(log: Mapping[TaskName, TaskCommit], stored: Mapping[TaskName, StoredCheckpoint]) -> Resolved:
    """Decide what counts where log and store differ.

        store has               log has           counts
        nothing                 a commit          the log: killed before the copy, or the store is new to the job
        a copy of that commit   that commit       the log
        a copy of another one   a commit          the log: killed before the copy, or the log was written by a tool
        another program's       other offsets     the store, without state: the job was moved
        another program's       nothing           the store: the job comes from Samza
        damage                  a commit          the log

    Raises:
        LogCorrupted: damage, and the log has nothing to replace it with.
    """
    commits, stale, moved = dict(log), set[TaskName](), set[TaskName]()
    for task, commit in log.items():
        found = stored.get(task)
        if found is None or found.offsets is None or found.commit is not None:
            if found is None or found.commit != commit_id(commit):
                stale.add(task)
        elif found.marks or dict(found.offsets) != dict(commit.offsets):
            commits[task] = TaskCommit(found.offsets, changelog_marks=found.marks)
            moved.add(task)
        else:
            stale.add(task)
    for task in stored.keys() - log.keys():
        offsets, marks = stored[task].offsets, stored[task].marks
        if offsets is None:
            raise LogCorrupted(
                f"the checkpoint of task {task!r} cannot be read: {stored[task].problem}. Restore it; to start the "
                f"task where its inputs' offset defaults say, remove it"
            )
        commits[task] = TaskCommit(offsets, changelog_marks=marks)
        moved.add(task)
    return Resolved(commits, frozenset(stale), frozenset(moved))
