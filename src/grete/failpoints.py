"""Named points at which a test can make the process die, stop, fail or wait. Off, a point costs a dict look-up.

`GRETE_FAILPOINT=name:action[:nth]` arms one point: the nth pass (1 by default) performs the action: `kill` (SIGKILL
to ourselves), `stop` (SIGSTOP), `raise` (LogError), `delay` (one second). With `GRETE_FAILPOINT_ONCE=file` it acts
in one process only, the one that creates the file, so that whoever is started instead gets past it. `POINTS` lists
every name, so that a campaign can go through all of them and a misspelt one is an error.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from grete.errors import ConfigError, LogError

POINTS: dict[str, str] = {
    "submit.config-loaded": "the configuration is validated, nothing is written",
    "submit.elected": "we lead, nothing is written",
    "submit.config-written": "the generation is in the stream",
    "coordinator.bootstrapped": "the stream is read",
    "coordinator.model-calculated": "the job model exists in memory",
    "coordinator.model-persisted": "assignments and changelog mapping are written",
    "coordinator.streams-created": "changelog and output streams exist",
    "coordinator.metadata-written": "JobCoordinatorMetadata is written",
    "coordinator.serving": "the HTTP server answers, no container runs",
    "coordinator.launched": "containers were launched",
    "coordinator.finishing": "all containers have ended, the terminal state is not written",
    "coordinator.finished": "the terminal state is written, leadership not released",
    "container.locality-written": "the container has its assignment and wrote its locality",
    "container.fence-raised": "older incarnations are fenced",
    "startpoint.resolved": "a container knows its new offsets, nothing of them is written",
    "startpoint.applied": "new offsets and their acknowledgement are committed, no query runs",
    "container.lineage-decided": "the lineage is chosen, the query not started",
    "container.session-started": "Spark runs",
    "batch.before-run": "Spark has planned the batch, no task has run",
    "batch.after-run": "tasks have run, nothing is committed",
    "commit.before": "the commit group is built, its transaction not begun",
    "commit.in-transaction": "everything is written inside the transaction, not committed",
    "commit.after": "the transaction is committed, Spark does not know",
    "batch.after-commit": "the batch callback is about to return to Spark",
    "task.before-init": "executor: the task's stores are settled, init() not called",
    "task.after-process": "executor: all messages are processed, nothing is handed back",
    "store.before-pending": "executor: the pending changes are not in the store's file",
    "store.after-pending": "executor: the pending changes are in the store's file, the report is not sent",
    "store.settling": "executor: inside the transaction that applies proven changes",
    "store.rebuilding": "executor: the damaged file is gone, the changelog not replayed",
}


@dataclass(slots=True)
class _Armed:
    name: str
    action: str
    left: int


def _parse(text: str) -> _Armed | None:
    if not text:
        return None
    name, _, rest = text.partition(":")
    action, _, nth = rest.partition(":")
    if name not in POINTS or action not in ("kill", "stop", "raise", "delay"):
        raise ConfigError(f"GRETE_FAILPOINT={text!r}: write name:kill|stop|raise|delay[:nth], see POINTS")
    return _Armed(name, action, int(nth or 1))


_armed = _parse(os.environ.get("GRETE_FAILPOINT", ""))


def failpoint(name: str) -> None:
    """Pass the point `name`."""
    if _armed is None or _armed.name != name:
        return
    _armed.left -= 1
    if _armed.left == 0 and _first_process():
        _act(_armed)


def _first_process() -> bool:
    once = os.environ.get("GRETE_FAILPOINT_ONCE")
    if once is None:
        return True
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
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
