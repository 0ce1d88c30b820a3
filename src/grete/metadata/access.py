"""Opening a job's coordinator stream from the minimal coordinator-system configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from grete.clock import SystemClock
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.model.ids import JobId
from grete.sqlite_file import open_file

FILE_NAME = "coordinator.db"


def coordinator_file(coordinator_config: Mapping[str, str], home: Path) -> Path:
    """The file that holds coordinator streams: beside the streams of the coordinator system."""
    system = coordinator_config.get("job.coordinator.system", "local")
    return Path(coordinator_config.get(f"systems.{system}.path", str(home / "local"))) / FILE_NAME


@contextmanager
def open_coordinator_stream(
    coordinator_config: Mapping[str, str], job: JobId, home: Path, *, source: str = "SamzaContainer"
) -> Iterator[CoordinatorStream]:
    """The job's stream, without a fence: for containers' locality and for tools."""
    clock = SystemClock()
    file = open_file(coordinator_file(coordinator_config, home))
    try:
        yield CoordinatorStream(SqliteKeyedLog(file, stream_name(job), clock), clock, source=source)
    finally:
        file.close()
