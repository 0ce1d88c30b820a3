"""The little configuration that containers get through their environment (S2-57 to S2-59): never all, no secrets."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

_NAMES = ("job.name", "job.id", "job.coordinator.system")


def coordinator_subset(config: Mapping[str, str]) -> dict[str, str]:
    """Job name and id, the coordinator system and that system's own configuration."""
    system = config.get("job.coordinator.system", "local")
    prefix = f"systems.{system}."
    subset = {key: value for key, value in config.items() if key in _NAMES or key.startswith(prefix)}
    return {**subset, "job.coordinator.system": system, "job.id": config.get("job.id", "1")}


def coordinator_environment(config: Mapping[str, str]) -> str:
    """The subset as the JSON of SAMZA_COORDINATOR_SYSTEM_CONFIG."""
    return orjson.dumps(coordinator_subset(config)).decode()
