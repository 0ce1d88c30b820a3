"""Hands startpoints to a container with its assignment.

Startpoints are fanned out to the tasks of the whole job model, merged with what earlier fan-outs still ask for.
What a task has applied (noted in the transaction of the checkpoint that holds the new offsets) is taken out
of its fan-out here, the next time it is read: late, but never before it is durable where it counts, which is
what went wrong in SAMZA-2749.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from grete.clock import Clock
from grete.keyed_log.base import Entry
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.shadowed import append_over, restore_shadowed
from grete.metadata.startpoint_state import read_state_requests, state_entry
from grete.metadata.startpoints import (
    FAN_OUT_NAMESPACE,
    NAMESPACE,
    FanOuts,
    by_task,
    decoded_fan_outs,
    decoded_startpoints,
    fan_out_entry,
    live_startpoints,
    startpoint_entry,
)
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import PendingStart, Startpoint

_log = logging.getLogger(__name__)

Tasks = Mapping[TaskName, Sequence[SystemStreamPartition]]
DELIVERED_FOR_S = 30.0
"""How long a task that was sent a startpoint is believed to have received it."""
AppliedTimes = Mapping[TaskName, Mapping[SystemStreamPartition, int]]
"""Per task and SSP, when the startpoint that was applied last was created."""


class StartpointHandOver:
    """Fans out and hands over. Thread-safe; writes under the stream's fence."""

    def __init__(
        self, stream: CoordinatorStream, clock: Clock, read_applied: Callable[[], AppliedTimes]
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._read_applied = read_applied
        self._lock = threading.Lock()
        self._handed: dict[TaskName, tuple[float, dict[SystemStreamPartition, int]]] = {}

    def pending(self, tasks: Tasks, to: Iterable[TaskName] | None = None) -> dict[TaskName, PendingStart]:
        """The startpoints that each task of the job model has to apply when it starts. Durable on return.

        Of the tasks in `to`, all by default, it is remembered that they were sent theirs.

        Raises:
            Fenced: another coordinator has taken over.
        """
        with self._lock:
            found = self._pending(tasks)
            now_s = self._clock.monotonic_s()
            for task in tasks if to is None else to:
                self._handed[task] = now_s, _times(found[task].startpoints if task in found else {})
            return found

    def undelivered(self, tasks: Tasks) -> set[TaskName]:
        """Tasks with a startpoint that this coordinator has not sent them and they have not applied.

        A task that has not applied it half a minute later may never have got the answer, and is sent it again.
        Startpoints of all tasks are fanned out with the first container's assignment, so what still waits to be
        fanned out would not say it.
        """
        with self._lock:
            restore_shadowed(self._stream)
            asked, before = self._stream.raw(NAMESPACE), decoded_fan_outs(self._stream.raw(FAN_OUT_NAMESPACE))
            if not asked and not before:
                return set()
            new, _ = by_task(live_startpoints(asked, self._clock.wall_ms()), tasks)
            wanted = _merged(_left(before, tasks, self._read_applied()), new)
            return {
                task
                for task, startpoints in wanted.items()
                if not _times(startpoints).items() <= self._delivered(task).items()
            }

    def _delivered(self, task: TaskName) -> dict[SystemStreamPartition, int]:
        delivered_s, times = self._handed.get(task, (0.0, {}))
        return times if self._clock.monotonic_s() - delivered_s < DELIVERED_FOR_S else {}

    def _pending(self, tasks: Tasks) -> dict[TaskName, PendingStart]:
        restore_shadowed(self._stream)
        since = self._stream.catch_up()
        asked, before = self._stream.raw(NAMESPACE), decoded_fan_outs(self._stream.raw(FAN_OUT_NAMESPACE))
        if not asked and not before:
            return {}
        now_ms = self._clock.wall_ms()
        live = live_startpoints(asked, now_ms)
        for key in sorted(set(decoded_startpoints(asked)) - set(live)):
            _log.warning("the startpoint of %s is older than twelve hours and is ignored", key)
        new, used = by_task(live, tasks)
        after = _merged(_left(before, tasks, self._read_applied()), new)
        entries = [
            fan_out_entry(task, after.get(task, {}), now_ms)
            for task in sorted({*before, *after})
            if before.get(task, {}) != after.get(task, {})
        ]
        entries += [startpoint_entry(key, None) for key in sorted(used)]
        states = read_state_requests(self._stream)
        asked_ms = {startpoint.created_ms for startpoint in live.values()}
        entries += self._finished_states(after, asked_ms)
        if entries:
            append_over(self._stream, entries, since=since)  # what is asked for meanwhile is asked for still
        return {task: PendingStart(startpoints, states.get(task)) for task, startpoints in after.items()}

    def _finished_states(self, after: FanOuts, asked_ms: set[int]) -> list[Entry]:
        """Deletions of requests that belong to no startpoint any more."""
        entries = []
        for task, request in read_state_requests(self._stream).items():
            pending_ms = {startpoint.created_ms for startpoint in after.get(task, {}).values()}
            if request.created_ms not in pending_ms | asked_ms:
                entries.append(state_entry(self._stream, task, None))
        return entries


def _left(fan_outs: FanOuts, tasks: Tasks, applied: AppliedTimes) -> FanOuts:
    """Fan-outs without what was applied, and without SSPs that their tasks do not read any more."""
    left: FanOuts = {}
    for task, startpoints in fan_outs.items():
        read, done = set(tasks.get(task, ())), applied.get(task, {})
        for ssp, startpoint in startpoints.items():
            if ssp not in read:
                _log.warning("task %s does not read %s any more; its startpoint is dropped", task, ssp)
            elif done.get(ssp) != startpoint.created_ms:
                left.setdefault(task, {})[ssp] = startpoint
    return left


def _times(startpoints: Mapping[SystemStreamPartition, Startpoint]) -> dict[SystemStreamPartition, int]:
    return {ssp: startpoint.created_ms for ssp, startpoint in startpoints.items()}


def _merged(before: FanOuts, new: FanOuts) -> FanOuts:
    return {task: {**before.get(task, {}), **new.get(task, {})} for task in {*before, *new}}
