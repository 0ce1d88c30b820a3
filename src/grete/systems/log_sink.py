"""Streams that a process writes its logs and diagnostics to. They may be lost but must never be waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grete.clock import Clock
from grete.config.settings import Settings
from grete.config.system_types import system_type
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.registry import import_object
from grete.systems.base import Message


@dataclass(frozen=True, slots=True)
class LogStream:
    """A stream for logs. Plain values: it travels to executors.

    Records older than `retention_ms` may go, -1 keeps them.
    """

    stream: SystemStream
    settings: Settings
    home: Path
    partitions: int
    retention_ms: int


class LogSink(Protocol):
    """Where records go. Used by one thread."""

    def write(self, records: Sequence[Message]) -> None:
        """Append all of them, durable on return."""

    def close(self) -> None:
        """Release it."""


def open_sink(target: LogStream, clock: Clock) -> LogSink:
    """Open the stream for writing; it is created when it is not there.

    Raises:
        ConfigError: systems of its kind take no logs.
        GreteError: it cannot be created, or there is no answer.
        MissingExtra: the client library is not installed.
    """
    kind = target.settings.system(target.stream.system).kind
    made = system_type(kind).log_sink
    if made is None:
        raise ConfigError(
            f"logs cannot be written to {target.stream}: a system of kind {kind!r} takes none; name another system"
        )
    sink: LogSink = import_object(made, used_by=f"log_sink of the system type {kind!r}")(target, clock)
    return sink
