"""The little configuration that containers get through their environment (S2-57 to S2-59): never all, no secrets."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from grete.config import samza_job
from grete.config.key_tables import coordinator
from grete.config.redact import redact_value
from grete.config.settings import Settings
from grete.config.values import Config
from grete.errors import ConfigError

_NAMES = ("job.name", "job.id", "job.coordinator.system", "job.coordinator.factory")
_MAX_BYTES = 120_000
"""Linux takes 128 KiB for one environment variable, name included; beyond it a process does not start (E2BIG)."""


def build_coordinator_stream_config(config: Mapping[str, str]) -> dict[str, str]:
    """CoordinatorStreamUtil.buildCoordinatorStreamConfig, value for value, secrets included.

    Raises:
        ConfigError: no `job.name`, neither `job.coordinator.system` nor `job.default.system`, or another
            `job.coordinatorstream.config.factory` than Samza's default.
    """
    samza = Config(config)
    factory = samza_job.text(samza, coordinator.STREAM_FACTORY)
    if factory != coordinator.STREAM_FACTORY.default:
        raise ConfigError(f"{factory} cannot be loaded: remove {coordinator.STREAM_FACTORY.name}")
    name = samza_job.job_name(samza)
    system = samza_job.coordinator_system(samza)
    return {
        "job.name": name,
        "job.id": samza_job.job_id(samza),
        "job.coordinator.system": system,
        "job.coordinator.monitor-partition-change.frequency.ms": str(
            samza_job.monitor_partition_change_ms(samza)
        ),
        **samza.subset(f"systems.{system}.", strip=False),
    }


def coordinator_subset(config: Mapping[str, str]) -> dict[str, str]:
    """Job name and id, the coordinator system and that system's own configuration, without secrets.

    A reference such as `${env:NAME}` stays: the container resolves it. A secret written out is left out, since an
    environment is readable by `ps` and ends in crash dumps.
    """
    system = Settings.of(config).coordinator.system
    prefix = f"systems.{system}."
    subset = {
        key: value
        for key, value in config.items()
        if (key in _NAMES or key.startswith(prefix)) and redact_value(key, value) == value
    }
    return {**subset, "job.coordinator.system": system, "job.id": config.get("job.id", "1")}


def coordinator_environment(config: Mapping[str, str]) -> str:
    """The subset as the JSON of SAMZA_COORDINATOR_SYSTEM_CONFIG.

    Raises:
        ConfigError: it is too large for an environment variable.
    """
    text = orjson.dumps(coordinator_subset(config), option=orjson.OPT_SORT_KEYS).decode()
    size = len(text.encode())
    if size > _MAX_BYTES:
        system = Settings.of(config).coordinator.system
        raise ConfigError(
            f"the configuration under systems.{system}. has {size} bytes, too many for a container's environment "
            f"({_MAX_BYTES}); move large values into files and name the files"
        )
    return text


def env_var_escape(text: str) -> str:
    """Util.envVarEscape: for a value between double quotes in a shell script.

    It leaves `$` alone, so a shell expands `$HOME` in the value. `shell_environment` does not suffer from that.
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")


def shell_environment(config: Mapping[str, str]) -> str:
    """`coordinator_environment` for a shell script that sets `export NAME="..."`: every value survives (S2-59).

    The JSON carries `$` as `\\u0024`, so nothing is left for the shell to expand.
    """
    return env_var_escape(coordinator_environment(config).replace("$", "\\u0024"))
