"""One batch's commit of a task: Samza's checkpoint records plus a companion that only grete reads.

In the checkpoint log a task has these keys (`grete.checkpoint.applied_startpoints` adds one):

- Samza's own: `{"systemstreampartition-grouper-factory":..,"taskName":..,"type":"checkpoint"}` -> CheckpointV1 and,
  with type `checkpoint-v2`, CheckpointV2. They are the truth for offsets: a checkpoint tool may overwrite them. The
  one that was written last counts.
- Ours, type `grete-commit` (`grete.checkpoint.own_keys`) -> lineage, batch id, attempt token, store positions,
  and the offsets they belong to. It is believed only while its offsets equal the checkpoint's; after a tool has moved
  the checkpoint, the task has offsets and nothing else, and the data plane starts a new lineage from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from grete.checkpoint.own_keys import own_key, type_and_task
from grete.errors import WireError
from grete.keyed_log.base import Entry, KeyedLog, Record
from grete.model.ids import SystemStreamPartition, TaskName
from grete.wire import checkpoint_json, compact_json
from grete.wire.job_model_json import survives_map_key

_COMPANION = "grete-commit"
STORES_MOVED = "stores-moved"
"""The token of a commit since which a task has other partitions of changelogs: positions before it are of others."""
_FOREIGN = "has_foreign_sources"
"""Only where there are such, as commits of every batch are written."""


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """A task's committed state. `offsets` are the last processed ones; the rest is empty when a tool wrote it.

    `store_positions` is, per store, the end of its changelog partition after this commit. `changelog_marks` are there
    when Samza wrote it: its changelogs may be ahead of the checkpoint, and no commit of grete's has any.
    `has_foreign_sources`: the batch was of a pipeline with sources of Spark's own, whose offsets Spark's files of the
    lineage alone have.
    """

    offsets: Mapping[SystemStreamPartition, str]
    lineage: str = ""
    batch_id: int = -1
    token: str = ""
    store_positions: Mapping[str, int] = field(default_factory=dict)
    changelog_marks: checkpoint_json.ChangelogMarks = field(default_factory=dict)
    has_foreign_sources: bool = False


Commits = Mapping[TaskName, TaskCommit]
"""Those of a job's tasks, or of some."""


def commit_entries(
    commits: Commits,
    *,
    grouper: str,
    write_versions: Sequence[int] = (1, 2),
    checkpoint_id: str = "0-0",
) -> list[Entry]:
    """The records to append, atomically, for these tasks.

    Samza cannot read a CheckpointV2 of a stream with a dot in its name, its own neither, and fails on it where
    `task.checkpoint.read.versions` has 2; beside a CheckpointV1 there is none then.
    """
    entries = []
    for task, commit in sorted(commits.items()):
        assert not commit.changelog_marks, f"{task}: the stores are to be brought to the marks first"
        if 1 in write_versions:
            value = checkpoint_json.encode_v1(commit.offsets)
            entries.append(Entry(checkpoint_json.encode_log_key(grouper, task, "checkpoint"), value))
        if 2 in write_versions and (1 not in write_versions or all(map(survives_map_key, commit.offsets))):
            value = checkpoint_json.encode_v2(checkpoint_id, commit.offsets, {})
            entries.append(Entry(checkpoint_json.encode_log_key(grouper, task, "checkpoint-v2"), value))
        entries.append(Entry(own_key(_COMPANION, task, grouper), _companion(commit)))
    return entries


def moved_entries(commits: Commits, *, grouper: str) -> list[Entry]:
    """The records of a tool that moves checkpoints. Samza's changelog marks stay with them.

    Without the marks the next start would take whole changelogs for the tasks' state, and they may be ahead of it.
    """
    entries = commit_entries({t: c for t, c in commits.items() if not c.changelog_marks}, grouper=grouper)
    for task, commit in sorted(commits.items()):
        if commit.changelog_marks:
            value = checkpoint_json.encode_v1({**commit.offsets, **_marked(commit.changelog_marks)})
            entries.append(Entry(checkpoint_json.encode_log_key(grouper, task, "checkpoint"), value))
    return entries


def _marked(marks: checkpoint_json.ChangelogMarks) -> dict[SystemStreamPartition, str]:
    """As Samza writes them into a CheckpointV1: `checkpoint id:offset`, and the text `null` for none."""
    return {ssp: f"0-0:{'null' if offset is None else offset}" for ssp, offset in marks.items()}


def _companion(commit: TaskCommit) -> bytes:
    return compact_json.dumps(
        {
            "offsets": {str(ssp): offset for ssp, offset in commit.offsets.items()},
            "lineage": commit.lineage,
            "batch_id": commit.batch_id,
            "token": commit.token,
            "store_positions": dict(commit.store_positions),
        }
        | ({_FOREIGN: True} if commit.has_foreign_sources else {})
    )


def read_commits(records: Iterable[Record]) -> dict[TaskName, TaskCommit]:
    """Fold a checkpoint log into the last commit of each task. Undecodable records are skipped."""
    tasks: dict[TaskName, _Task] = {}
    for record in records:
        try:
            _fold(record, tasks)
        except WireError:
            continue  # a foreign or damaged record must not keep the job from starting (fault 28)
    return _found(tasks)


def last_commits(log: KeyedLog, after: int = -1) -> dict[TaskName, TaskCommit]:
    """As `read_commits` of the log's records above `after`, without decoding those that later ones shadow.

    A log has ten minutes' worth of commits before it is compacted, and tasks that change hands wait for its reader.
    """
    last: dict[bytes, Record] = {record.key: record for record in log.read(after)}
    tasks: dict[TaskName, _Task] = {}
    try:
        for record in sorted(last.values(), key=lambda one: one.offset):
            _fold(record, tasks)
    except WireError:  # one before it may count then
        return read_commits(log.read(after))
    return _found(tasks)


def _found(tasks: Mapping[TaskName, _Task]) -> dict[TaskName, TaskCommit]:
    return {task: commit for task, found in tasks.items() if (commit := found.last()) is not None}


@dataclass(slots=True)
class _Task:
    """The records that the log has of a task, each with its offset in the log."""

    first: tuple[int, TaskCommit | None] = (-1, None)
    """Its CheckpointV1; None when it was deleted."""
    second: tuple[int, bytes] | None = None
    """Its CheckpointV2, read only when it is asked for: of grete's own commits it never is."""
    companion: tuple[int, TaskCommit] | None = None

    def last(self) -> TaskCommit | None:
        """The checkpoint that was written last, of either version: Samza may have written one of them alone."""
        at, commit = self.first
        if commit is not None and self.companion is not None and self._agrees(commit, self.companion[1]):
            at, commit = max(at, self.companion[0]), self.companion[1]
        if self.second is not None and self.second[0] > at:
            try:
                read = checkpoint_json.decode_v2(self.second[1])
                return TaskCommit(read.offsets, changelog_marks=checkpoint_json.marks_of(read))
            except WireError:
                return commit
        return commit

    @staticmethod
    def _agrees(commit: TaskCommit, companion: TaskCommit) -> bool:
        return not commit.changelog_marks and dict(commit.offsets) == dict(companion.offsets)


def _fold(record: Record, tasks: dict[TaskName, _Task]) -> None:
    kind, owner = type_and_task(record.key)
    if owner is None or kind not in (_COMPANION, "checkpoint", "checkpoint-v2"):
        return
    at, value = record.offset, record.value
    if kind == _COMPANION:
        commit = companion_of(record)[1]
        tasks.setdefault(owner, _Task()).companion = None if commit is None else (at, commit)
    elif kind == "checkpoint-v2":
        tasks.setdefault(owner, _Task()).second = None if value is None else (at, value)
    elif value is None:
        tasks.setdefault(owner, _Task()).first = (at, None)
    else:
        read = checkpoint_json.read_v1(value)
        commit = TaskCommit(read.offsets, changelog_marks=read.marks)
        tasks.setdefault(owner, _Task()).first = (at, commit)


def companion_owner(key: bytes) -> TaskName | None:
    """The task whose companion has this key; None of a key of any other record."""
    try:
        kind, task = type_and_task(key)
    except WireError:
        return None
    return task if kind == _COMPANION else None


def companion_of(record: Record) -> tuple[TaskName, TaskCommit | None]:
    """(task, commit) of a companion; None deletes.

    Raises:
        WireError: it is another kind of record, or damaged.
    """
    try:
        kind, task = type_and_task(record.key)
        if kind != _COMPANION or task is None:
            raise WireError(f"offset {record.offset}: no companion but {kind!r}")
        if record.value is None:
            return task, None
        document = orjson.loads(record.value)
        return task, TaskCommit(
            offsets={SystemStreamPartition.parse(ssp): o for ssp, o in document["offsets"].items()},
            lineage=document["lineage"],
            batch_id=int(document["batch_id"]),
            token=document["token"],
            store_positions={name: int(p) for name, p in document["store_positions"].items()},
            has_foreign_sources=_FOREIGN in document,
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"offset {record.offset}: not a commit record: {error!r}") from error
