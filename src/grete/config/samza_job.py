"""Samza's JobConfig and ClusterManagerConfig, value for value: what the JVM makes of a configuration.

grete's own rules for the same keys are stricter (`grete.config.validate`) and know an embedded system
(`CoordinatorSettings.system`); these functions are for reading what Samza wrote and for the vectors.
"""

from __future__ import annotations

import logging

from grete.config import java_values
from grete.config.key import Key
from grete.config.key_tables import coordinator, job, task
from grete.config.values import Config
from grete.errors import ConfigError
from grete.model.ids import SystemStream

_log = logging.getLogger(__name__)


def text(config: Config, key: Key[str]) -> str:
    """A text key's value, or the default of the table."""
    assert key.default is not None
    return config.get(key.name, key.default)


def _int(config: Config, key: Key[int]) -> int:
    assert key.default is not None
    return config.get_int(key.name, int(key.default))


def _boolean(config: Config, key: Key[bool]) -> bool:
    assert key.default is not None
    return config.get_boolean(key.name, key.default == "true")


def job_name(config: Config) -> str:
    """`job.name`.

    Raises:
        ConfigError: not set.
    """
    name = config.get(job.JOB_NAME.name)
    if name is None:
        raise ConfigError("Missing required config: job.name")
    return name


def job_id(config: Config) -> str:
    """`job.id`, 1 by default."""
    return text(config, job.JOB_ID)


def coordinator_system_or_none(config: Config) -> str | None:
    """`job.coordinator.system`, else `job.default.system`."""
    return config.get(coordinator.SYSTEM.name, config.get(job.DEFAULT_SYSTEM.name))


def coordinator_system(config: Config) -> str:
    """As above.

    Raises:
        ConfigError: neither is set.
    """
    system = coordinator_system_or_none(config)
    if system is None:
        raise ConfigError("Missing job.coordinator.system configuration. Cannot proceed with job execution.")
    return system


def coordinator_system_stream(config: Config) -> SystemStream:
    """The coordinator stream; `_` inside name and id become `-` (S1-5)."""
    system = coordinator_system(config)
    name, id_ = job_name(config).replace("_", "-"), job_id(config).replace("_", "-")
    return SystemStream(system, f"__samza_coordinator_{name}_{id_}")


def is_autosizing(config: Config) -> bool:
    """Whether `job.autosizing.*` wins."""
    return _boolean(config, job.AUTOSIZING)


def container_count(config: Config) -> int:
    """Autosizing's count when that is on, else `job.container.count`, else the deprecated key, else 1 (S2-53)."""
    if is_autosizing(config) and job.AUTOSIZING_COUNT.name in config:
        return config.get_int(job.AUTOSIZING_COUNT.name)
    key = job.CONTAINER_COUNT
    old = key.renamed_from[0]
    if key.name not in config and old in config:
        _log.warning("Configuration '%s' is deprecated. Please use %s.", old, key.name)
        return config.get_int(old)
    return _int(config, key)


def is_host_affinity(config: Config) -> bool:
    """`job.host-affinity.enabled`, else its deprecated name."""
    key = job.HOST_AFFINITY
    old = key.renamed_from[0]
    if key.name not in config and old in config:
        _log.warning("Configuration %s is deprecated. Please use %s", old, key.name)
        return config.get_boolean(old)
    return _boolean(config, key)


def elasticity_factor(config: Config) -> int:
    """`job.elasticity.factor`.

    Raises:
        ConfigError: less than one.
    """
    factor = _int(config, job.ELASTICITY)
    if factor < 1:
        raise ConfigError("Elasticity factor can not be less than 1")
    return factor


def standby_replication_factor(config: Config) -> int:
    """`job.standbytasks.replication.factor`; standby tasks are on above one."""
    return _int(config, job.STANDBY)


def monitor_partition_change_ms(config: Config) -> int:
    """`job.coordinator.monitor-partition-change.frequency.ms`."""
    return _int(config, coordinator.MONITOR_PARTITIONS_MS)


def debounce_ms(config: Config) -> int:
    """`job.debounce.time.ms`."""
    return _int(config, coordinator.DEBOUNCE)


def is_startpoint_enabled(config: Config) -> bool:
    """`job.startpoint.enabled`."""
    return _boolean(config, job.STARTPOINTS)


def is_ssp_proxy_enabled(config: Config) -> bool:
    """`job.systemstreampartition.input.expansion.enabled`."""
    return _boolean(config, job.SSP_EXPANSION)


def task_name_grouper(config: Config) -> str:
    """`task.name.grouper.factory`."""
    return text(config, task.NAME_GROUPER)


def shutdown_ms(config: Config) -> int:
    """`task.shutdown.ms`; what is no number counts as the default, with a warning, as in Samza."""
    default = task.SHUTDOWN.default
    assert default is not None
    value = config.get(task.SHUTDOWN.name, default)
    try:
        return java_values.parse_long(value)
    except ValueError:
        _log.warning("task.shutdown.ms=%r is no number; %s is used", value, default)
        return int(default)
