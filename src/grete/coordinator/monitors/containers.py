"""Monitors of the containers: is it alive, and does its Spark query make progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.coordinator.monitors.findings import QueryStuck, SilentContainer
from grete.model.ids import ContainerId

_RUNNING = "running"


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """The facts of a container that should be running.

    `launch` distinguishes incarnations. `heartbeat_s` is when the last heartbeat of this one came, on the clock whose
    `now_s` the monitors get; None before the first. `state`, `batch_id` and `message`, for what it waits, are what it
    said. `lag` is what its tasks have left, None when unknown.
    """

    launch: int
    heartbeat_s: float | None = None
    state: str = ""
    batch_id: int = -1
    lag: int | None = None
    message: str = ""
    is_awaited: bool = False
    """Whether its cluster manager has not begun it yet; `message` says why, as far as that is known."""


Facts = Mapping[ContainerId, ContainerFacts]


@dataclass(slots=True)
class _Watch:
    """Since when something has not changed, and whether that was reported."""

    key: tuple[object, ...]
    since_s: float
    reported: bool = False


class _Watches:
    """One watch a container; a container that is gone is forgotten."""

    def __init__(self) -> None:
        self._watches: dict[ContainerId, _Watch] = {}

    def update(
        self, keys: Mapping[ContainerId, tuple[object, ...]], now_s: float
    ) -> dict[ContainerId, _Watch]:
        """The watch of each container; it starts over with another key."""
        self._watches = {
            id_: known if (known := self._watches.get(id_)) and known.key == key else _Watch(key, now_s)
            for id_, key in keys.items()
        }
        return self._watches


class ContainerLivenessMonitor:
    """No heartbeat for too long, counted from the launch (when it was seen first) or the last heartbeat.

    Of one that a cluster manager runs, from when it has begun: in a full queue it may wait for hours, and whoever
    takes it for dead and asks anew is the last in the queue each time.
    """

    def __init__(self) -> None:
        self._watches = _Watches()

    def observe(self, facts: Facts, now_s: float, *, silent_after_s: float) -> tuple[SilentContainer, ...]:
        """Judge every container."""
        watches = self._watches.update(
            {id_: (seen.launch, seen.heartbeat_s, seen.is_awaited) for id_, seen in facts.items()}, now_s
        )
        found = []
        for id_, watch in watches.items():
            heartbeat_s = facts[id_].heartbeat_s
            silent_s = now_s - (watch.since_s if heartbeat_s is None else heartbeat_s)
            if silent_s >= silent_after_s and not (watch.reported or facts[id_].is_awaited):
                watch.reported = True
                found.append(SilentContainer(id_, facts[id_].launch, silent_s))
        return tuple(found)


class QueryProgressMonitor:
    """Alive but stuck: heartbeats come, there is lag, and the batch id stays the same.

    The time begins with the last change of batch, and again whenever there was no lag or no knowledge of it: a query
    without input has no batches. A batch that takes longer than the limit is found as well, so the limit must be
    longer than the longest batch. Alive is one whose heartbeat came in the later half of that time.
    """

    def __init__(self) -> None:
        self._watches = _Watches()

    def observe(self, facts: Facts, now_s: float, *, stuck_after_s: float) -> tuple[QueryStuck, ...]:
        """Judge every container that says it is running."""
        waiting = {
            id_: (seen.launch, seen.batch_id)
            for id_, seen in facts.items()
            if seen.state == _RUNNING and seen.heartbeat_s is not None and (seen.lag or 0) > 0
        }
        found = []
        for id_, watch in self._watches.update(waiting, now_s).items():
            seen, stuck_s = facts[id_], now_s - watch.since_s
            is_alive = seen.heartbeat_s is not None and now_s - seen.heartbeat_s < stuck_after_s / 2
            if stuck_s >= stuck_after_s and is_alive and not watch.reported:
                watch.reported = True
                found.append(QueryStuck(id_, seen.launch, stuck_s, seen.batch_id, seen.lag or 0))
        return tuple(found)
