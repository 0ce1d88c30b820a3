"""Checkpoints in the coordinator stream, as `set-checkpoint` records (`SetCheckpoint` of SAMZA-465).

Key: the task's name. Values: an entry per SSP, `system.stream.partition` -> offset. Samza gave this up again since a
stream that every process reads at its start grows with every commit (SAMZA-798); it is here for jobs that have it.
Beside each of them, in the same append, `grete-checkpoint-copy` says which commit it is a copy of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from grete.checkpoint.store import CheckpointStore, StoreContext, StoredCheckpoint, digest
from grete.errors import WireError
from grete.keyed_log.base import Entry
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.messages import SET_CHECKPOINT
from grete.wire import coordinator_message as codec

COPY = "grete-checkpoint-copy"


class CoordinatorStreamCheckpointStore(CheckpointStore):
    """In the job's coordinator stream, wherever that is. Appends carry the container's fence."""

    def __init__(self, context: StoreContext) -> None:
        log = context.coordinator_log
        self._opened = None
        if log is None:
            log = self._opened = open_coordinator_log(
                context.settings, stream_name(context.job), context.home, context.clock
            )
        source = "SamzaContainer" if context.fence is not None else "checkpoint-tool"  # S2-101
        self._stream = CoordinatorStream(log, context.clock, source=source, fence=context.fence)

    def read(self, tasks: Collection[TaskName]) -> dict[TaskName, StoredCheckpoint]:
        """See CheckpointStore."""
        live = self._live()
        return {
            task: _read(live[SET_CHECKPOINT, task], live.get((COPY, task)))
            for task in sorted(tasks)
            if (SET_CHECKPOINT, task) in live
        }

    def _live(self) -> dict[tuple[str, str], bytes]:
        """The raw values of our two types. `CoordinatorStream` would leave out those that cannot be decoded."""
        live: dict[tuple[str, str], bytes] = {}
        for record in self._stream.log.read():
            try:
                _, kind, task = codec.decode_key(record.key)
            except WireError:
                continue
            if kind.lower() not in (SET_CHECKPOINT, COPY):
                continue
            if record.value is None:
                live.pop((kind.lower(), task), None)
            else:
                live[kind.lower(), task] = record.value
        return live

    def write(self, checkpoints: Mapping[TaskName, StoredCheckpoint]) -> None:
        """See CheckpointStore: all tasks in one append."""
        entries = [entry for task, one in sorted(checkpoints.items()) for entry in self._entries(task, one)]
        if entries:
            self._stream.append(entries)

    def _entries(self, task: TaskName, checkpoint: StoredCheckpoint) -> list[Entry]:
        assert checkpoint.offsets is not None, "damage is read, never written"
        offsets = {str(ssp): offset for ssp, offset in checkpoint.offsets.items()}
        copy = None
        if checkpoint.commit is not None:
            copy = {"commit": checkpoint.commit, "digest": digest(checkpoint.offsets)}
        return [self._stream.entry(SET_CHECKPOINT, task, offsets), self._stream.entry(COPY, task, copy)]

    def close(self) -> None:
        """See CheckpointStore."""
        if self._opened is not None:
            self._opened.close()


def _read(value: bytes, copy: bytes | None) -> StoredCheckpoint:
    try:
        values, _ = codec.decode_value(value)
        offsets = {
            SystemStreamPartition.parse(ssp): offset
            for ssp, offset in (values or {}).items()
            if offset is not None
        }
    except WireError as error:
        return StoredCheckpoint(None, problem=f"its set-checkpoint record in the coordinator stream: {error}")
    try:
        proof, _ = codec.decode_value(copy)
    except WireError:
        proof = None
    is_copy = proof is not None and proof.get("digest") == digest(offsets)
    return StoredCheckpoint(offsets, proof.get("commit") if proof is not None and is_copy else None)
