"""Which streams a configuration names for logs and diagnostics, and how a process writes to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grete.clock import SystemClock
from grete.config.key_tables import job as job_keys
from grete.config.key_tables import task as task_keys
from grete.config.redact import Redactor, is_secret_key
from grete.config.secrets import has_reference, resolve_secrets
from grete.errors import ConfigError
from grete.model.ids import JobId, SystemStream
from grete.systems.base import StreamSpec
from grete.systems.local import LocalSystem, Message

JOB_COORDINATOR = "samza-job-coordinator"


def container_name(container_id: str) -> str:
    """Samza's name of a container: the key of its log records."""
    return f"samza-container-{container_id}"


def log_stream_name(job: JobId) -> str:
    """StreamAppender.getStreamName (S2-122)."""
    return f"__samza_{job.name}_{job.id}_logs".replace("-", "_")


@dataclass(frozen=True, slots=True)
class Target:
    """A stream of an embedded system. Plain values: it travels to executors."""

    directory: str
    stream: SystemStream
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class Telling:
    """What a process tells, and where. `container` is its name: coordinator, or `samza-container-N`."""

    job: JobId
    container: str
    logs: Target | None
    diagnostics: Target | None
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
        logs = Target(_directory(config, system, home), stream, max(1, containers))
    if config.get(job_keys.DIAGNOSTICS.name, "false").strip().lower() == "true":
        key = task_keys.DIAGNOSTICS_STREAM.name
        if not config.get(key):
            raise ConfigError(f"Missing required config: {key}. Set it to system.stream")
        stream = SystemStream.parse(config[key])
        diagnostics = Target(_directory(config, stream.system, home), stream)
    location = config.get(task_keys.LOG_LOCATION.name, "false").strip().lower() == "true"
    return Telling(job, container, logs, diagnostics, location)


def _directory(config: Mapping[str, str], system: str, home: Path) -> str:
    return config.get(f"systems.{system}.path", str(home / "local"))


class StreamSink:
    """Writes to a stream of an embedded system; creates it when it is not there."""

    def __init__(self, target: Target) -> None:
        self._stream = target.stream.stream
        self._system = LocalSystem(Path(target.directory), SystemClock())
        self._system.ensure_stream(StreamSpec(self._stream, target.partitions))

    def write(self, records: Sequence[Message]) -> None:
        """See Sink."""
        self._system.append(self._stream, records)

    def close(self) -> None:
        """See Sink."""
        self._system.close()


def redactor_of(config: Mapping[str, str]) -> Redactor:
    """One that knows a configuration's secrets, those behind references too, as far as this process can see them."""
    hide = Redactor.of(config)
    for key, value in config.items():
        if is_secret_key(key) and has_reference(value):
            try:
                hide.learn([resolve_secrets(value)])
            except ConfigError:
                continue  # what this process cannot resolve it cannot tell
    return hide
