"""The log of coordinator streams, by the factory of the coordinator system."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grete.clock import Clock
from grete.config.settings import Settings
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.config.system_types import system_type
from grete.errors import ConfigError
from grete.keyed_log.base import KeyedLog
from grete.registry import import_object


@dataclass(frozen=True, slots=True)
class LogContext:
    """Arguments with which a coordinator log is opened. With `must_exist` it is not made when it is not there.

    `settings` hold at least the coordinator system's own keys; references to secrets are unresolved.
    """

    settings: Settings
    system: str
    name: str
    home: Path
    clock: Clock
    must_exist: bool = False


def open_coordinator_log(
    settings: Settings, name: str, home: Path, clock: Clock, *, must_exist: bool = False
) -> KeyedLog:
    """The log `name` on the coordinator system of the configuration. Closing it releases everything.

    Raises:
        ConfigError: the system cannot hold a coordinator stream, or misses a setting.
        LogNotFound: with `must_exist`, when it is not there.
    """
    system = settings.coordinator.system
    kind = settings.system(system).kind
    opens = system_type(kind, "job.coordinator.system").coordinator_log
    if opens is None:
        raise ConfigError(
            f"job.coordinator.system={system!r}: a system of kind {kind!r} cannot hold a coordinator stream; name a "
            f"Kafka system, or {EMBEDDED_SYSTEM} for the embedded one"
        )
    made = import_object(opens, used_by="job.coordinator.system")
    log = made(LogContext(settings, system, name, home, clock, must_exist))
    assert isinstance(log, KeyedLog), f"{kind!r} made no KeyedLog"
    return log
