"""Named points at which a test can make the process die, stop, fail or wait. Off, a point costs a dict look-up.

`GRETE_FAILPOINT=name:action[:nth]` arms a point: the nth pass of a process (1 by default) performs the action:
`kill` (SIGKILL to ourselves), `stop` (SIGSTOP), `raise` (LogError), `delay` (one second). Several, separated by
commas, are armed side by side, the same point more than once too. With `GRETE_FAILPOINT_ONCE=folder` each of them
acts in one process only, the one that creates a file for it in that folder, so that a process started instead gets
past it; the file's name is its place in the list and the point's name. With `GRETE_FAILPOINT_CONTAINER=id` only the
processes of that container are armed, its coordinator is not. `POINTS` lists every name, so that a campaign
can go through all of them and a misspelt one is an error.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from grete.environment import CONTAINER_ID
from grete.errors import ConfigError, LogError

POINTS: dict[str, str] = {
    "submit.config-loaded": "the configuration is validated, nothing is written",
    "submit.claiming": "inside the transaction that registers the job as its stream's owner",
    "submit.claimed": "the job is registered, its stream is empty",
    "leader.locked": "our lock file is held, no epoch is minted",
    "leader.elected": "inside the transaction that mints the epoch",
    "azure.leased": "Azure: the lease of the blob is ours, the blob names the holder before",
    "azure.elected": "Azure: the blob names us, the campaign has not returned",
    "submit.elected": "we lead, nothing is written",
    "submit.config-written": "the generation is in the stream",
    "coordinator.bootstrapped": "the stream is read",
    "coordinator.model-calculated": "the job model exists in memory",
    "model.mapping-written": "the changelog mapping is written, the assignments are not",
    "coordinator.model-persisted": "assignments and changelog mapping are written",
    "coordinator.streams-created": "changelog and output streams exist",
    "coordinator.metadata-written": "JobCoordinatorMetadata is written",
    "history.written": "a row of the history is written",
    "coordinator.token-created": "a new token is written, beside the one before",
    "coordinator.serving": "the HTTP server answers, no container runs",
    "state.written": "running or the terminal state is written",
    "launch.started": "a container's process runs, the launcher does not know it yet",
    "coordinator.launched": "containers were launched",
    "change.adopted": "some containers of an earlier coordinator are taken over, others not",
    "change.fence-raised": "the containers that give tasks away are fenced, the tasks are unassigned",
    "change.fenced-off": "a container's fence is raised, it is not killed",
    "change.replanned": "a changed model is remembered, no container was commanded anything",
    "change.granted": "a changed model is served, no container was commanded to run it",
    "change.recorded": "a container's record has the command that it gets next",
    "coordinator.finishing": "all containers have ended, the terminal state is not written",
    "coordinator.finished": "the terminal state is written, leadership not released",
    "leader.released": "leadership is released, our lock file still held",
    "log.row-written": "inside a transaction: some records of an append are written, others not",
    "log.rows-written": "inside a transaction: every record is written, the append's id is not",
    "file.before-commit": "a transaction is complete and numbered, COMMIT not begun",
    "file.committed": "COMMIT has returned, the file's mark does not know",
    "file.marked": "the mark is written, the commit was not returned",
    "container.locality-written": "the container has its assignment and wrote its locality",
    "container.fence-raised": "older incarnations are fenced",
    "change.startpoints-deleted": "startpoints were deleted, what came meanwhile is not written again",
    "startpoint.resolved": "a container knows its new offsets, nothing of them is written",
    "startpoint.applied": "new offsets and their acknowledgement are committed, no query runs",
    "container.outputs-checked": "output streams exist, Spark does not run",
    "lineage.locked": "DataFrame pipeline: a new lineage's folder exists and is locked, nothing names it",
    "lineage.described": "its description is synced under a temporary name",
    "lineage.current": "it is the current one, its predecessors not pruned",
    "lineage.changed": "a copy of Spark's checkpoint, with inputs that came or other partitions, is whole, not named",
    "lineage.planned": "its next batch is planned in Spark's place, up to where its inputs end, and does not run",
    "container.lineage-decided": "DataFrame pipeline: the lineage is chosen, the query not started",
    "container.session-started": "Spark runs",
    "batch.before-run": "DataFrame pipeline: the batch is planned, nothing has run",
    "batch.after-run": "DataFrame pipeline: it has run, nothing is committed",
    "sink.staged": "DataFrame pipeline: a sink has a batch's rows beside its stream, table or files",
    "sink.moved": "inside a database's transaction, everything is written",
    "sink.committed": "a sink has the batch, the checkpoint does not know",
    "commit.before": "the commit group is built, its transaction not begun",
    "commit.begun": "inside the transaction, the fences not checked",
    "commit.fences-checked": "inside the transaction, nothing written",
    "commit.segment-written": "a segment is inserted, its partition's end not moved",
    "commit.outputs-written": "outputs and changelog are written, no checkpoint",
    "commit.in-transaction": "everything is written inside the transaction, not committed",
    "commit.after-transaction": "outputs, changelog and checkpoints are there, the checkpoint store has no copy",
    "checkpoint.file-written": "a task's checkpoint file is written, what proves it a copy is not",
    "azure.rows-written": "Azure: a transaction of rows of a task's checkpoint is written, maybe not the last",
    "commit.after": "the transaction is committed, who asked for it does not know",
    "batch.after-commit": "DataFrame pipeline: Spark is about to go on",
    "epoch.reported": "a share's commits are reported, the container has not noted them",
    "epoch.noted": "the container has noted a share's commits and copied their checkpoints",
    "container.drained": "the query has ended, the container has not said so",
    "executor.before-produce": "its tasks have run, no transaction is begun",
    "executor.flushed": "outputs and changelog are with the store, no checkpoint",
    "executor.before-commit": "everything is with the store, the commit not sent",
    "executor.committed": "the transaction is committed, nothing is reported",
    "executor.reported": "the share goes on, its container knows nothing of the commit",
    "task.before-init": "executor: the task's stores are settled, init() not called",
    "task.after-init": "executor: init() has returned, no message is processed",
    "task.after-process": "executor: all messages are processed, nothing is handed back",
    "store.before-pending": "executor: the pending changes are not in the store's file",
    "store.pending-written": "executor: inside the transaction that keeps the pending changes",
    "store.after-pending": "executor: the pending changes are in the store's file, the report is not sent",
    "store.settling": "executor: inside the transaction that applies proven changes",
    "store.applied": "executor: proven changes are applied inside the transaction, the position is not moved",
    "store.settled": "executor: the proven changes are part of the file",
    "store.created": "executor: a new file has its tables, nothing says which changelog it is of",
    "store.rebuilding": "executor: the damaged file is gone, the changelog not replayed",
    "transfer.exported": "a task's entries are in their file, the export is not described",
    "transfer.imported": "a task's entries are in its changelog, those of others are not",
    "clone.made": "a clone has its configuration and its tasks, and no state",
    "clone.store-copied": "and a store of its original, in its changelogs",
    "clone.lineage-copied": "of a pipeline: and the lineage of a container, of which no checkpoint says anything",
    "clone.checkpoints-written": "and its checkpoints, and nothing says that it is made",
    "elasticity.store-written": "a task of another factor has its entries, others have not, the factor is as it was",
    "elasticity.stores-moved": "all of them have theirs, and no checkpoint",
    "elasticity.checkpoints-written": "and their checkpoints, and the factor is as it was",
    "snapshot.blocks-written": "executor: the blocks of a snapshot are in its folder, no manifest names them",
    "snapshot.written": "executor: a snapshot is there, older ones are not removed",
    "store.refilled": "executor: inside the transaction that replays it, everything applied",
}


@dataclass(slots=True)
class _Armed:
    place: int
    name: str
    action: str
    left: int


def _parse(text: str) -> dict[str, list[_Armed]]:
    armed: dict[str, list[_Armed]] = {}
    for place, one in enumerate(filter(None, text.split(","))):
        name, _, rest = one.partition(":")
        action, _, nth = rest.partition(":")
        if name not in POINTS or action not in ("kill", "stop", "raise", "delay"):
            raise ConfigError(f"GRETE_FAILPOINT={one!r}: write name:kill|stop|raise|delay[:nth], see POINTS")
        armed.setdefault(name, []).append(_Armed(place, name, action, int(nth or 1)))
    return armed


def _is_meant() -> bool:
    container = os.environ.get("GRETE_FAILPOINT_CONTAINER")
    return container is None or container == os.environ.get(CONTAINER_ID)


_armed = _parse(os.environ.get("GRETE_FAILPOINT", "")) if _is_meant() else {}


def failpoint(name: str) -> None:
    """Pass the point `name`."""
    if not _armed:
        return
    for armed in _armed.get(name, ()):
        armed.left -= 1
        if armed.left == 0 and _first_process(armed):
            _act(armed)


def _first_process(armed: _Armed) -> bool:
    once = os.environ.get("GRETE_FAILPOINT_ONCE")
    if once is None:
        return True
    Path(once).mkdir(parents=True, exist_ok=True)
    try:
        path = Path(once) / f"{armed.place}-{armed.name}"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _act(armed: _Armed) -> None:
    if armed.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif armed.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif armed.action == "delay":
        time.sleep(1)
    else:
        raise LogError(f"failpoint {armed.name}")
