"""What a container goes on without, because retention has removed it: said before anything else is read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from grete.checkpoint.offset_manager import Skipped
from grete.container.assignment import Assignment
from grete.metadata.access import open_coordinator_stream
from grete.metadata.history import History

_log = logging.getLogger("grete.container")
_SHOWN = 20


def tell_skipped(assignment: Assignment, skipped: Sequence[Skipped], home: Path) -> None:
    """Log an error for each, and write one row `offsets-skipped` into the job's history. Durable on return.

    A container that dies before it has committed anything beyond tells it again.

    Raises:
        LogError: the row was not written.
    """
    if not skipped:
        return
    for one in skipped:
        _log.error("%s: retention has removed them, and task.lost-offsets.policy=skip", one)
    shown = "; ".join(map(str, skipped[:_SHOWN]))
    with open_coordinator_stream(assignment.config, assignment.job, home) as stream:
        History(stream).append(
            "offsets-skipped",
            container=str(assignment.container_id),
            partitions=str(len(skipped)),
            skipped=shown if len(skipped) <= _SHOWN else f"{shown}; and more, see the container's log",
        )
