"""Which startpoints a task has applied: a record beside its checkpoint, in the transaction of the new offsets.

Type `grete-startpoints` in the checkpoint log; value: per SSP when the startpoint that was applied last was
created, and what became of the stores. It is written once a startpoint, not once a batch, and a tool that moves the
checkpoint afterwards leaves it alone. A startpoint is recognised by its time of creation: one with the same time is
never applied again, whatever is still in the coordinator stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson

from grete.checkpoint.own_keys import own_key, type_and_task
from grete.errors import WireError
from grete.keyed_log.base import Entry, Record
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import StateChoice

_KIND = "grete-startpoints"


@dataclass(frozen=True, slots=True)
class Applied:
    """Creation times by SSP, and what became of the stores at the last one."""

    created_ms: Mapping[SystemStreamPartition, int]
    state: StateChoice = StateChoice.KEEP


def applied_entry(task: TaskName, applied: Applied, *, grouper: str) -> Entry:
    """The record to append with the checkpoint, under the grouper's name as that."""
    times = {str(ssp): time for ssp, time in sorted(applied.created_ms.items())}
    value = orjson.dumps({"created_ms": times, "state": applied.state.value})
    return Entry(own_key(_KIND, task, grouper), value)


def read_applied(records: Iterable[Record]) -> dict[TaskName, Applied]:
    """The last record of each task; what is not understood is skipped."""
    found: dict[TaskName, Applied] = {}
    for record in records:
        try:
            kind, task = type_and_task(record.key)
            if kind != _KIND or task is None:
                continue
            if record.value is None:
                found.pop(task, None)
            else:
                found[task] = _decoded(record.value)
        except (orjson.JSONDecodeError, WireError, KeyError, TypeError, ValueError, AttributeError):
            continue  # a damaged record must not keep the job from starting (fault 28)
    return found


def _decoded(value: bytes) -> Applied:
    document = orjson.loads(value)
    times = {SystemStreamPartition.parse(ssp): int(time) for ssp, time in document["created_ms"].items()}
    return Applied(times, StateChoice(document["state"]))
