"""Samza's StartpointManager over one log, step by step; the product hands startpoints over with a job model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grete.keyed_log.base import Entry, Fence, KeyedLog
from grete.metadata.startpoints import (
    FAN_OUT_NAMESPACE,
    NAMESPACE,
    FanOuts,
    by_task,
    fan_out_entry,
    live_startpoints,
    startpoint_entry,
    startpoint_key,
)
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint
from grete.wire import startpoint_json
from grete.wire.coordinator_message import encode_key
from grete_workbench.samza.namespaced_store import NamespacedStore


class StartpointManager:
    """Reads, writes and fans out startpoints over one log."""

    def __init__(self, log: KeyedLog, *, fence: Fence | None = None) -> None:
        self._log = log
        self._fence = fence
        self._store = NamespacedStore(log, NAMESPACE, fence=fence)
        self._fan_outs = NamespacedStore(log, FAN_OUT_NAMESPACE, fence=fence)

    def write(self, ssp: SystemStreamPartition, task: TaskName | None, startpoint: Startpoint) -> None:
        """Ask for a startpoint."""
        self._store.put(startpoint_key(ssp, task), startpoint_json.encode(startpoint))

    def fan_out(self, tasks: Mapping[TaskName, Iterable[SystemStreamPartition]], now_ms: int) -> FanOuts:
        """Turn startpoints into one record per task and delete those that were turned, in one append."""
        fan_outs, used = by_task(live_startpoints(self._store.all(), now_ms), tasks)
        entries = [fan_out_entry(task, startpoints, now_ms) for task, startpoints in fan_outs.items()]
        entries += [startpoint_entry(key, None) for key in sorted(used)]
        if entries:
            self._log.append(entries, fence=self._fence)
        return fan_outs

    def remove_fan_out(self, task: TaskName, ssps: Iterable[SystemStreamPartition]) -> None:
        """Some SSPs of a task have used their startpoints."""
        data = self._fan_outs.get(task)
        if data is None:
            return
        timestamp_ms, startpoints = startpoint_json.decode_fan_out(data)
        done = {str(ssp) for ssp in ssps}
        left = {ssp: startpoint for ssp, startpoint in startpoints.items() if str(ssp) not in done}
        if left:
            self._fan_outs.put(task, startpoint_json.encode_fan_out(timestamp_ms, left))
        else:
            self._fan_outs.delete(task)

    def remove_all_fan_outs(self) -> None:
        """Forget every fan-out, in one append."""
        entries = [Entry(encode_key(FAN_OUT_NAMESPACE, task), None) for task in sorted(self._fan_outs.all())]
        if entries:
            self._log.append(entries, fence=self._fence)
