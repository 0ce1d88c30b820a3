"""Opening a job's coordinator stream from the minimal coordinator-system configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.model.ids import JobId


@contextmanager
def open_coordinator_stream(
    settings: Settings, job: JobId, home: Path, *, source: str = "SamzaContainer"
) -> Iterator[CoordinatorStream]:
    """The job's stream, without a fence: for containers' locality and for tools."""
    clock = SystemClock()
    with closing(open_coordinator_log(settings, stream_name(job), home, clock)) as log:
        yield CoordinatorStream(log, clock, source=source)
