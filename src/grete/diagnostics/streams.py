"""Which streams a configuration names for logs and diagnostics, and how a process writes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grete.config.key_tables import job as job_keys
from grete.config.key_tables import task as task_keys
from grete.config.redact import Redactor
from grete.config.secrets import references, resolve_secrets
from grete.config.settings.streams import StreamSettings
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
class Telling:
    """What a process tells, and where. `container` is its name: coordinator, or `samza-container-N`."""

    job: JobId
    container: str
    logs: LogStream | None
    diagnostics: LogStream | None
    location: bool = False

    def __post_init__(self) -> None:
        if not self.container.strip():
            raise ConfigError(
                "a process that logs to a stream needs a container name: it is the records' key"
            )


def telling_of(config: Mapping[str, str], job: JobId, container: str, home: Path) -> Telling:
    """What the configuration asks for.

    Raises:
        ConfigError: diagnostics without a stream (Samza's words), or a stream without a system.
    """
    logs = diagnostics = None
    system = config.get(task_keys.LOG_SYSTEM.name, "").strip()
    if system:
        stream = SystemStream(system, log_stream_name(job))
        containers = int(config.get(job_keys.CONTAINER_COUNT.name, "1"))
        logs = _target(config, stream, home, partitions=max(1, containers))
    if config.get(job_keys.DIAGNOSTICS.name, "false").strip().lower() == "true":
        key = task_keys.DIAGNOSTICS_STREAM.name
        if not config.get(key):
            raise ConfigError(f"Missing required config: {key}. Set it to system.stream")
        stream = SystemStream.parse(config[key])
        diagnostics = _target(config, stream, home)
    location = config.get(task_keys.LOG_LOCATION.name, "false").strip().lower() == "true"
    return Telling(job, container, logs, diagnostics, location)


def _target(config: Mapping[str, str], stream: SystemStream, home: Path, *, partitions: int = 1) -> LogStream:
    said = StreamSettings(config, stream)
    for_ever = -1 if said.retention_ms is None else said.retention_ms
    retention = RETENTION_MS if said.find("retention.ms") is None else for_ever
    said_of_it = (f"systems.{stream.system}.", "streams.")
    kept = {key: value for key, value in config.items() if key.startswith(said_of_it)}
    return LogStream(stream, kept, home, partitions, retention)


def redactor_of(config: Mapping[str, str]) -> Redactor:
    """One that knows a configuration's secrets, those behind references too, as far as this process can see them."""
    hide = Redactor.of(config)
    for value in config.values():
        for reference in references(value):
            try:
                hide.learn([resolve_secrets(reference)])
            except ConfigError:
                continue  # what this process cannot resolve it cannot tell
    return hide
