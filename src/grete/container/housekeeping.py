"""The upkeep of a container's streams and fence, done between its batches."""

from __future__ import annotations

from collections.abc import Callable

from grete.config.settings import Settings
from grete.container.assignment import Assignment
from grete.container.specs import single_system
from grete.model.ids import SystemStream
from grete.model.streams import StreamPolicy
from grete.systems.base import System


def housekeeping(assignment: Assignment, system: System) -> Callable[[], object]:
    """A function to call between the container's batches."""
    return system.housekeeping(policies(assignment), assignment.fence)


def policies(assignment: Assignment) -> list[StreamPolicy]:
    """How long the records of each of the container's streams are kept."""
    name, settings = single_system(assignment), Settings.of(assignment.config)
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
            retention_ms=settings.stream(SystemStream(name, stream)).retention_ms,
            retention_bytes=settings.stream(SystemStream(name, stream)).retention_bytes,
        )
        for stream in sorted(read | written)
    ]
    return [*changelogs, *others]
