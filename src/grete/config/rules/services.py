"""Rules of jobs that ZooKeeper or Azure Storage coordinate, or that have checkpoints there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config import aliases
from grete.config.key_tables.coordinator import LEASE_TTL
from grete.config.key_tables.task import CHECKPOINT_FACTORY
from grete.config.settings import Settings
from grete.config.settings.azure import lease_problem
from grete.config.settings.zookeeper import ZooKeeperSection
from grete.config.values import valid_value_of

_CHECKPOINTS = "grete.checkpoint.azure-table"


def zookeeper_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each setting that is missing where leaders are elected on ZooKeeper, with the way out."""
    if Settings.of(config).coordinator.election == "zookeeper":
        yield from ZooKeeperSection(config).problems()


def azure_problems(config: Mapping[str, str]) -> Iterator[str]:
    """An account that is missing or not understood, and a lease that Azure does not give."""
    settings = Settings.of(config)
    elects = settings.coordinator.election == "azure"
    checkpoints = aliases.canonical(aliases.CHECKPOINTS, config.get(CHECKPOINT_FACTORY.name, ""))
    if not elects and checkpoints != _CHECKPOINTS:
        return
    if settings.azure.connect_problem:
        yield settings.azure.connect_problem
    is_read = LEASE_TTL.name not in config or valid_value_of(config, LEASE_TTL) is not None
    if elects and is_read and lease_problem(settings.coordinator.lease_ttl_s):
        yield lease_problem(settings.coordinator.lease_ttl_s)
