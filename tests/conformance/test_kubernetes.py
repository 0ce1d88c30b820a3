"""The contract of coordination on a real API server of Kubernetes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from grete.coordination.base import Coordination
from grete.coordination.kubernetes.access import of_kubeconfig
from grete.coordination.kubernetes.api_server import ApiServer
from grete.coordination.kubernetes.coordination import KubernetesCoordination
from grete.testing.clock import ManualClock
from grete.testing.conformance.cells import CellsConformance
from grete.testing.conformance.coordination import CoordinationConformance
from grete.testing.conformance.recipes import RecipesConformance
from grete_workbench.kube_apiserver import KubeApiServer

pytestmark = pytest.mark.every_run


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pass_time(clock: ManualClock) -> Callable[[float], None]:
    return clock.advance


class TestKubernetesCoordination(CoordinationConformance, CellsConformance, RecipesConformance):
    TTL_S = 180.0

    @pytest.fixture
    def prefix(self) -> str:
        return f"test-{uuid.uuid4().hex[:8]}"

    @pytest.fixture
    def contender(
        self, clock: ManualClock, kubernetes: KubeApiServer, prefix: str
    ) -> Iterator[Callable[[], Coordination]]:
        with ExitStack() as stack:

            def open_one() -> Coordination:
                server = ApiServer(of_kubeconfig([kubernetes.admin]))
                own = KubernetesCoordination(server, clock, ttl_s=self.TTL_S, prefix=prefix)
                stack.callback(own.close)
                return own

            yield open_one

    def test_of_a_scope_that_was_forgotten_no_lease_is_left(
        self, contender: Callable[[], Coordination], kubernetes: KubeApiServer, prefix: str
    ) -> None:
        own = contender()
        leadership = own.campaign("job")
        for name in ("a", "b"):
            own.cells("job").write(name, b"1", None)
        assert len(leases(kubernetes, prefix)) == 3
        own.forget(leadership)
        assert leases(kubernetes, prefix) == []


def leases(kubernetes: KubeApiServer, prefix: str) -> list[str]:
    found = kubernetes.call("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases")
    names = [each["metadata"]["name"] for each in found["items"]]
    return [name for name in names if name.startswith(prefix)]
