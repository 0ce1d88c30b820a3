"""The treatment of stores at a startpoint, as a record of grete's own beside Samza's startpoints.

Samza's reader refuses a startpoint with a field that it does not know, so the choice cannot travel inside. It is a
record a task, of a type that Samza skips, and belongs to the startpoints of the task that were created in the same
millisecond. One that belongs to no startpoint means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from grete.keyed_log.base import Entry
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import TaskName
from grete.model.startpoint import StateChoice, StateRequest

STATE = "grete-startpoint-state"


def state_entry(stream: CoordinatorStream, task: TaskName, request: StateRequest | None) -> Entry:
    """The record of a request; None deletes it."""
    if request is None:
        return stream.entry(STATE, task, None)
    values = {
        "state": request.choice.value,
        "created": str(request.created_ms),
        "positions": json.dumps(dict(sorted(request.positions.items()))),
    }
    return stream.entry(STATE, task, values)


def read_state_requests(stream: CoordinatorStream) -> dict[TaskName, StateRequest]:
    """Every task's request; one that is not understood is left out."""
    found = {}
    for task, message in stream.messages(STATE).items():
        request = _request(message.values or {})
        if request is not None:
            found[TaskName(task)] = request
    return found


def _request(values: Mapping[str, str]) -> StateRequest | None:
    try:
        positions = {str(name): int(end) for name, end in json.loads(values["positions"]).items()}
        return StateRequest(StateChoice(values["state"]), int(values["created"]), positions)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # a foreign record under our name is ignored
