"""Checks of the ZooKeeper servers on which a job's leaders are elected. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from grete.config.settings import Settings
from grete.coordination.zookeeper.settings import zookeeper_settings
from grete.errors import GreteError
from grete.finding import Finding

_WAIT_S = 10.0


def findings(settings: Settings) -> Iterator[Finding]:
    """Whether the servers answer and let us in, and for how long they keep a session."""
    try:
        from grete.coordination.zookeeper.client import ZooKeeperClient  # whose library may be missing

        asked = zookeeper_settings(settings.zookeeper, ttl_s=settings.coordinator.lease_ttl_s)
        with closing(ZooKeeperClient(replace(asked, connect_s=min(_WAIT_S, asked.connect_s)))) as client:
            client.look("/", _WAIT_S)
            granted_s = client.session_s
    except GreteError as error:
        yield Finding("zookeeper", False, str(error), "check job.coordinator.zk.* and the servers")
        return
    yield Finding("zookeeper", True, f"{asked.servers} answers")
    yield Finding(
        "zookeeper session",
        granted_s >= asked.session_s,
        f"{granted_s:g} s of {asked.session_s:g} s that are asked for",
        "a coordinator has less time over an outage than its lease: raise maxSessionTimeout of the servers (20 ticks "
        "by default), or lower job.coordinator.zk.session.timeout.ms",
    )
