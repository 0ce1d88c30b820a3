"""Which service elects a job's leader: `job.coordinator.factory`, else what goes with the coordinator stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grete.clock import Clock
from grete.config import aliases
from grete.config.key_tables.coordinator import FACTORY
from grete.config.settings import Settings
from grete.config.system_types import system_type
from grete.coordination.base import Coordination
from grete.registry import load_object

BUILT_IN = {
    "sqlite": "grete.coordination.sqlite:open_coordination",
    "kafka": "grete.coordination.kafka:open_coordination",
    "kubernetes": "grete.coordination.kubernetes.coordination:open_coordination",
    "zookeeper": "grete.coordination.zookeeper.election:open_coordination",
    "azure": "grete.coordination.azure:open_coordination",
}
"""A function from a CoordinationContext to a Coordination; plug-ins are entry points of `grete.coordination`."""
_PASSTHROUGH = "passthrough"
"""Samza's for jobs whose processors are placed by another system; it does not decide where leaders are elected."""


@dataclass(frozen=True, slots=True)
class CoordinationContext:
    """Arguments with which it is opened. `settings` hold at least the coordinator system's own keys."""

    settings: Settings
    system: str
    home: Path
    clock: Clock
    ttl_s: float


def election_name(settings: Settings) -> str:
    """Which of them elects the job's leader."""
    named = settings.coordinator.election
    if named not in ("", _PASSTHROUGH):
        return named
    kind = settings.system(settings.coordinator.system).kind
    return system_type(kind).coordination or kind


def open_coordination(settings: Settings, home: Path, clock: Clock, *, ttl_s: float = 15.0) -> Coordination:
    """Open it. Closing it releases everything.

    Raises:
        ConfigError: the name is not known, or the service misses a setting.
    """
    system, named = settings.coordinator.system, election_name(settings)
    made = load_object(aliases.COORDINATION, named, built_in=BUILT_IN, used_by=FACTORY.name)
    coordination = made(CoordinationContext(settings, system, home, clock, ttl_s))
    assert isinstance(coordination, Coordination), f"{named!r} made no Coordination"
    return coordination
