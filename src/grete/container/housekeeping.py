"""The upkeep of a container's streams and fence, done between its batches."""

from __future__ import annotations

from collections.abc import Callable

from grete.clock import Clock
from grete.config.settings import Settings
from grete.config.settings.streams import StreamSettings
from grete.container.assignment import Assignment
from grete.container.specs import single_system
from grete.model.ids import SystemStream
from grete.systems.base import System
from grete.systems.local.housekeeping import Housekeeper, StreamPolicy
from grete.systems.local.system import LocalSystem


def housekeeping(assignment: Assignment, system: System, clock: Clock) -> Callable[[], object]:
    """What is done between a container's batches, under its fence."""
    if isinstance(system, LocalSystem):
        return housekeeper(assignment, system, clock).step
    return lambda: system.keep_fence(assignment.fence)


def housekeeper(assignment: Assignment, system: LocalSystem, clock: Clock) -> Housekeeper:
    """Who keeps the container's streams small; brokers do so by themselves."""
    config, name = assignment.config, single_system(assignment)
    settings = Settings.of(config)
    changelogs = [
        StreamPolicy(
            settings.store(store).changelog_stream(assignment.job),
            partitions=frozenset(task.changelog_partition for task in assignment.tasks),
            min_compaction_lag_ms=settings.store(store).compaction_lag_ms,
        )
        for store in settings.store_names
    ]
    read = {ssp.stream for ssp in assignment.ssps}
    written = {stream.stream for stream in settings.task.written_streams}
    others = [
        StreamPolicy(
            stream,
            retention_ms=StreamSettings(config, SystemStream(name, stream)).retention_ms,
            retention_bytes=StreamSettings(config, SystemStream(name, stream)).retention_bytes,
        )
        for stream in sorted(read | written)
    ]
    return Housekeeper(system, [*changelogs, *others], [assignment.fence], clock)
