"""Which streams a configuration names for logs and diagnostics, and how a process writes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grete.config.redact import Redactor
from grete.config.secrets import references, resolve_secrets
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import JobId, SystemStream
from grete.systems.log_sink import LogStream

JOB_COORDINATOR = "samza-job-coordinator"


RETENTION_MS = 7 * 24 * 3_600_000
"""A week, as Kafka's topics have; `retention.ms` of the stream says otherwise, -1 keeps everything."""
_TRIM_EVERY_S = 3600.0


def container_name(container_id: str) -> str:
    """Samza's name of a container: the key of its log records."""
    return f"samza-container-{container_id}"


def log_stream_name(job: JobId) -> str:
    """StreamAppender.getStreamName (S2-122)."""
    return f"__samza_{job.name}_{job.id}_logs".replace("-", "_")


@dataclass(frozen=True, slots=True)
class DiagnosticsConfig:
    """The streams of a process's logs and events. `container` is its name: coordinator, or `samza-container-N`."""

    job: JobId
    container: str
    logs: LogStream | None
    events: LogStream | None
    location: bool = False

    def __post_init__(self) -> None:
        if not self.container.strip():
            raise ConfigError(
                "a process that logs to a stream needs a container name: it is the records' key"
            )


def diagnostics_config(settings: Settings, job: JobId, container: str, home: Path) -> DiagnosticsConfig:
    """Read the streams from the configuration.

    Raises:
        ConfigError: diagnostics without a stream (Samza's words).
        WireError: a stream without a system.
    """
    logs = events = None
    system = (settings.job.log_system or "").strip()
    if system:
        stream = SystemStream(system, log_stream_name(job))
        logs = log_stream(settings, stream, home, partitions=settings.job.container_count)
    if settings.job.diagnostics_stream is not None:
        events = log_stream(settings, settings.job.diagnostics_stream, home)
    return DiagnosticsConfig(job, container, logs, events, settings.job.is_log_location_enabled)


def log_stream(settings: Settings, stream: SystemStream, home: Path, *, partitions: int = 1) -> LogStream:
    """A stream that takes records of this kind."""
    said = settings.stream(stream)
    for_ever = -1 if said.retention_ms is None else said.retention_ms
    retention = RETENTION_MS if said.find("retention.ms") is None else for_ever
    return LogStream(stream, settings, home, partitions, retention)


def redactor_of(config: Mapping[str, str]) -> Redactor:
    """One that knows a configuration's secrets, those behind references too, as far as this process can see them."""
    hide = Redactor.of(config)
    for value in config.values():
        for reference in references(value):
            try:
                hide.learn([resolve_secrets(reference)])
            except ConfigError:
                continue  # what this process cannot resolve it cannot publish
    return hide
