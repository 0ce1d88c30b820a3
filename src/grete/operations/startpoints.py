"""Asking a job to start elsewhere: startpoints written, listed and taken back, whether it runs or not.

A running job gets Samza's own record, and takes it up at the next batch boundary. For a job that is stopped
the coordinator's work is done here too, while the job is kept from being started: its startpoints are fanned out to
the tasks at once. So they do not expire after twelve hours, and wait for the next start however late it comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from grete.clock import SystemClock
from grete.metadata.history import History
from grete.metadata.startpoint_hand_over import StartpointHandOver
from grete.metadata.startpoint_state import read_state_requests, state_entry
from grete.metadata.startpoints import (
    EXPIRES_MS,
    FAN_OUT_NAMESPACE,
    NAMESPACE,
    decoded_fan_outs,
    decoded_startpoints,
    fan_out_entry,
    startpoint_entry,
    startpoint_key,
)
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StateRequest
from grete.operations.job_handle import JobHandle

Where = tuple[SystemStreamPartition, TaskName | None]
"""The target of a startpoint: an SSP in every task that reads it, or in one task."""

LIVE = "stop it first, or say --live to have it done while it runs"


@dataclass(frozen=True, slots=True)
class KnownStartpoint:
    """A startpoint that is known of. `status`: waiting, expired, handed over to the task, or applied by it."""

    ssp: str
    task: str | None
    startpoint: Startpoint
    status: str
    expires_ms: int | None = None


def write_startpoints(
    handle: JobHandle,
    startpoints: Mapping[Where, Startpoint],
    states: Mapping[TaskName, StateRequest | None],
    *,
    live: bool,
    event: str,
    **details: str,
) -> None:
    """Ask for startpoints, with what becomes of the stores, in one append; then a row of history.

    They are created now, and later than any that is there: the newest wins. Durable on return.

    Raises:
        HeldByOther: the job runs and `live` is not set; nothing was written.
    """
    if live:
        _write(handle, startpoints, states)
        History(handle.stream).append(event, **details)
        return
    with handle.election.stopped(LIVE):
        _write(handle, startpoints, states)
        _hand_over(handle)
        History(handle.stream).append(event, **details)


def _write(
    handle: JobHandle,
    startpoints: Mapping[Where, Startpoint],
    states: Mapping[TaskName, StateRequest | None],
) -> None:
    created_ms = _next_creation_ms(handle)
    entries = [
        startpoint_entry(startpoint_key(ssp, task), replace(startpoint, created_ms=created_ms))
        for (ssp, task), startpoint in startpoints.items()
    ]
    known = read_state_requests(handle.stream)
    for task, request in states.items():
        if request is not None:
            entries.append(state_entry(handle.stream, task, replace(request, created_ms=created_ms)))
        elif task in known:
            entries.append(state_entry(handle.stream, task, None))
    handle.stream.append(entries)


def _next_creation_ms(handle: JobHandle) -> int:
    """Now, or later when this clock is behind the one of an earlier request."""
    asked = decoded_startpoints(handle.stream.raw(NAMESPACE)).values()
    fan_outs = decoded_fan_outs(handle.stream.raw(FAN_OUT_NAMESPACE)).values()
    known = [*asked, *(startpoint for fan_out in fan_outs for startpoint in fan_out.values())]
    return max([SystemClock().wall_ms(), *(startpoint.created_ms + 1 for startpoint in known)])


def _hand_over(handle: JobHandle) -> None:
    applied = {task: one.created_ms for task, one in handle.checkpoints.applied_startpoints().items()}
    StartpointHandOver(handle.stream, SystemClock(), lambda: applied).pending(handle.task_inputs())


def list_startpoints(handle: JobHandle) -> list[KnownStartpoint]:
    """Every startpoint in the coordinator stream, and the ones that were applied last, sorted by SSP and task."""
    now_ms = SystemClock().wall_ms()
    found = []
    for key, startpoint in decoded_startpoints(handle.stream.raw(NAMESPACE)).items():
        expires_ms = startpoint.created_ms + EXPIRES_MS
        status = "waiting" if now_ms < expires_ms else "expired"
        ssp, task = _split(key, handle)
        found.append(KnownStartpoint(ssp, task, startpoint, status, expires_ms))
    applied = handle.checkpoints.applied_startpoints()
    for task_name, startpoints in decoded_fan_outs(handle.stream.raw(FAN_OUT_NAMESPACE)).items():
        done = applied[task_name].created_ms if task_name in applied else {}
        for one, startpoint in startpoints.items():
            is_done = done.get(one) == startpoint.created_ms
            found.append(
                KnownStartpoint(str(one), task_name, startpoint, "applied" if is_done else "handed over")
            )
    return sorted(found, key=lambda asked: (asked.ssp, asked.task or ""))


def _split(key: str, handle: JobHandle) -> tuple[str, str | None]:
    """(SSP, task) of a startpoint's key. Both may hold dots, so only the job's own tasks show where one ends."""
    for task, ssps in handle.task_inputs().items():
        for ssp in ssps:
            if key == startpoint_key(ssp, task):
                return str(ssp), task
    return key, None


def delete_startpoints(handle: JobHandle, where: Where | None, *, reason: str) -> int:
    """Take startpoints back, all or those of one SSP (in one task); returns how many. Durable on return.

    One that a container has applied already is not undone.
    """
    asked = decoded_startpoints(handle.stream.raw(NAMESPACE))
    fan_outs = decoded_fan_outs(handle.stream.raw(FAN_OUT_NAMESPACE))
    keys = sorted(asked) if where is None else [k for k in (startpoint_key(*where),) if k in asked]
    entries = [startpoint_entry(key, None) for key in keys]
    gone = len(keys)
    for task, startpoints in fan_outs.items():
        left = {ssp: one for ssp, one in startpoints.items() if not _is_meant(ssp, task, where)}
        if len(left) < len(startpoints):
            entries.append(fan_out_entry(task, left, SystemClock().wall_ms()))
            gone += len(startpoints) - len(left)
    if entries:
        handle.stream.append(entries)
        what = "all" if where is None else startpoint_key(*where)
        History(handle.stream).append("startpoint-deleted", what=what, reason=reason)
    return gone


def _is_meant(ssp: SystemStreamPartition, task: TaskName, where: Where | None) -> bool:
    return where is None or (ssp == where[0] and where[1] in (None, task))
