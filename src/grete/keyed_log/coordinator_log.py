"""Which log holds coordinator streams: what the factory of the coordinator system says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grete.clock import Clock
from grete.config.settings import Settings
from grete.keyed_log.base import KeyedLog
from grete.registry import load_object

GROUP = "grete.coordinator_logs"
BUILT_IN = {
    "local": "grete.keyed_log.sqlite_coordinator_log:open_coordinator_log",
    "kafka": "grete.keyed_log.kafka:open_coordinator_log",
}
"""A function from a LogContext to a KeyedLog that owns what it opens; plug-ins are entry points of `GROUP`."""


@dataclass(frozen=True, slots=True)
class LogContext:
    """What a coordinator log is opened with. With `must_exist` it is not made when it is not there.

    `config` holds at least the coordinator system's own keys; references to secrets are unresolved.
    """

    config: Mapping[str, str]
    system: str
    name: str
    home: Path
    clock: Clock
    must_exist: bool = False


def open_coordinator_log(
    config: Mapping[str, str], name: str, home: Path, clock: Clock, *, must_exist: bool = False
) -> KeyedLog:
    """The log `name` on the coordinator system of the configuration. Closing it releases everything.

    Raises:
        ConfigError: the system cannot hold a coordinator stream, or misses a setting.
        LogNotFound: with `must_exist`, when it is not there.
    """
    settings = Settings.of(config)
    system = settings.coordinator.system
    kind = settings.system(system).kind
    made = load_object(GROUP, kind, built_in=BUILT_IN, used_by="job.coordinator.system")
    log = made(LogContext(config, system, name, home, clock, must_exist))
    assert isinstance(log, KeyedLog), f"{kind!r} made no KeyedLog"
    return log
