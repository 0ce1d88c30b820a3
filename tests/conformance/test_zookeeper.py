"""The contract of leader election and cells on ZooKeeper: one server, and an ensemble of three."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from grete.coordination.base import Coordination
from grete.coordination.zookeeper.election import ZooKeeperCoordination
from grete.coordination.zookeeper.library import KazooClient
from grete.coordination.zookeeper.paths import CELLS, LEADERSHIPS
from grete.coordination.zookeeper.settings import ZooKeeperSettings
from grete.testing.clock import ManualClock
from grete.testing.conformance.cells import CellsConformance
from grete.testing.conformance.coordination import CoordinationConformance
from grete.testing.conformance.recipes import RecipesConformance
from grete_workbench.zookeeper_server import ZooKeeperCluster


class _Suite(CoordinationConformance, CellsConformance, RecipesConformance):
    """Renewals and patience go by a clock that the test moves, sessions by the servers', which are patient."""

    TTL_S = 30.0

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def pass_time(self, clock: ManualClock) -> Callable[[float], None]:
        return clock.advance

    @pytest.fixture
    def chroot(self) -> str:
        return f"/{uuid.uuid4().hex[:8]}"

    @pytest.fixture
    def contender(
        self, clock: ManualClock, servers: ZooKeeperCluster, chroot: str
    ) -> Iterator[Callable[[], Coordination]]:
        settings = ZooKeeperSettings(f"{servers.bootstrap}{chroot}", session_s=self.TTL_S)
        with ExitStack() as stack:

            def open_one() -> Coordination:
                own = ZooKeeperCoordination(settings, clock, ttl_s=self.TTL_S)
                stack.callback(own.close)
                return own

            yield open_one

    def test_of_a_scope_that_was_forgotten_no_node_is_left(
        self, contender: Callable[[], Coordination], servers: ZooKeeperCluster, chroot: str
    ) -> None:
        own = contender()
        leadership = own.campaign("job")
        for name in ("a", "b"):
            own.cells("job").write(name, b"1", None)
        own.forget(leadership)
        client = KazooClient(servers.bootstrap + chroot)
        client.start()
        try:
            assert [client.get_children(path) for path in (LEADERSHIPS, CELLS)] == [[], []]
        finally:
            client.stop()
            client.close()


class TestOneServer(_Suite):
    @pytest.fixture
    def servers(self, zookeeper: ZooKeeperCluster) -> ZooKeeperCluster:
        return zookeeper


class TestThreeServers(_Suite):
    @pytest.fixture
    def servers(self, zookeepers: ZooKeeperCluster) -> ZooKeeperCluster:
        return zookeepers
