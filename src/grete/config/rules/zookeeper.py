"""Leaders that are elected on ZooKeeper: where it is, and the login."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config.settings import Settings
from grete.config.settings.zookeeper import ZooKeeperSection


def zookeeper_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each setting that is missing, with the way out."""
    if Settings.of(config).coordinator.election == "zookeeper":
        yield from ZooKeeperSection(config).problems()
