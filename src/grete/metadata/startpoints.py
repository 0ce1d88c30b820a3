"""Startpoints in the coordinator stream, as Samza's StartpointManager keeps them.

An operator's startpoint is for an SSP, or for an SSP in one task. Fanning out turns them into one record per task,
the newest of the two winning; what is older than twelve hours counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from grete.errors import WireError
from grete.keyed_log.base import Entry
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint
from grete.wire import startpoint_json
from grete.wire.coordinator_message import encode_key

NAMESPACE = "samza-startpoint-v1"
FAN_OUT_NAMESPACE = "samza-startpoint-v1-fan-out"
EXPIRES_MS = 12 * 3600 * 1000
"""A startpoint that was not fanned out by then counts for nothing; one that was, does not expire."""
FanOuts = dict[TaskName, dict[SystemStreamPartition, Startpoint]]


def startpoint_key(ssp: SystemStreamPartition, task: TaskName | None) -> str:
    """`system.stream.partition[.task]`; the key bucket does not count."""
    return str(ssp) if task is None else f"{ssp}.{task}"


def startpoint_entry(key: str, startpoint: Startpoint | None) -> Entry:
    """The record of a startpoint; None deletes it."""
    data = None if startpoint is None else startpoint_json.encode(startpoint)
    return Entry(encode_key(NAMESPACE, key), data)


def fan_out_entry(
    task: TaskName, startpoints: Mapping[SystemStreamPartition, Startpoint], now_ms: int
) -> Entry:
    """The record of a task's fan-out; without startpoints it deletes it."""
    data = startpoint_json.encode_fan_out(now_ms, startpoints) if startpoints else None
    return Entry(encode_key(FAN_OUT_NAMESPACE, task), data)


def decoded_startpoints(raw: Mapping[str, bytes]) -> dict[str, Startpoint]:
    """Startpoints by key, expired ones too; a foreign record is ignored."""
    found = {}
    for key, data in raw.items():
        try:
            found[key] = startpoint_json.decode(data)
        except WireError:
            continue
    return found


def live_startpoints(raw: Mapping[str, bytes], now_ms: int) -> dict[str, Startpoint]:
    """Startpoints by key without those that have expired."""
    found = decoded_startpoints(raw).items()
    return {key: startpoint for key, startpoint in found if now_ms - startpoint.created_ms < EXPIRES_MS}


def decoded_fan_outs(raw: Mapping[str, bytes]) -> FanOuts:
    """Fan-outs by task; a foreign record is ignored."""
    found = {}
    for task, data in raw.items():
        try:
            found[TaskName(task)] = startpoint_json.decode_fan_out(data)[1]
        except WireError:
            continue
    return found


def by_task(
    live: Mapping[str, Startpoint], tasks: Mapping[TaskName, Iterable[SystemStreamPartition]]
) -> tuple[FanOuts, set[str]]:
    """(each task's startpoints, the keys they came from). Of SSP and SSP with task the newer one wins."""
    used: set[str] = set()
    fan_outs: FanOuts = {}
    for task, ssps in tasks.items():
        for ssp in ssps:
            found = [(key, live[key]) for key in _keys(ssp, task) if key in live]
            used |= {key for key, _ in found}
            if found:
                newest = max(found, key=lambda entry: entry[1].created_ms)[1]
                fan_outs.setdefault(task, {})[ssp] = newest
    return fan_outs, used


def _keys(ssp: SystemStreamPartition, task: TaskName) -> Iterator[str]:
    """The task's own first: it wins when both were made in the same millisecond."""
    yield startpoint_key(ssp, task)
    yield startpoint_key(ssp, None)
