"""The contracts of coordination and of launchers on a real API server of Kubernetes."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.deployed_job import PodNode, new_namespace

from grete.clock import SystemClock
from grete.coordination.base import Coordination
from grete.coordination.kubernetes.access import of_kubeconfig
from grete.coordination.kubernetes.api_server import ApiServer
from grete.coordination.kubernetes.coordination import KubernetesCoordination
from grete.deploy.container_pods import ContainerPods
from grete.deploy.managed_launcher import ManagedLauncher
from grete.deploy.namespace import JobNamespace
from grete.deploy.objects import DEPLOYMENT_LABEL, JOB_LABEL
from grete.environment import EXIT_FILE, POD_NAME
from grete.launch.base import Launcher
from grete.testing.clock import ManualClock
from grete.testing.conformance.cells import CellsConformance
from grete.testing.conformance.coordination import CoordinationConformance
from grete.testing.conformance.launch import KillingLauncherConformance
from grete.testing.conformance.recipes import RecipesConformance
from grete_workbench.kube_apiserver import KubeApiServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pass_time(clock: ManualClock) -> Callable[[float], None]:
    return clock.advance


@pytest.mark.every_run
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


class TestPodLauncher(KillingLauncherConformance):
    """Pods are processes of a node on this machine."""

    STOPS_BY_DIRECTIVE = True

    @pytest.fixture
    def namespace(self, kubernetes: KubeApiServer, tmp_path: Path) -> Iterator[str]:
        name = new_namespace(kubernetes, "pods", {})
        node = PodNode(kubernetes, name, tmp_path / "pods", 1)
        yield name
        node.stop()

    @pytest.fixture
    def opened(
        self, kubernetes: KubeApiServer, namespace: str, tmp_path: Path
    ) -> Iterator[Callable[[], Launcher]]:
        """A launcher of the next leader."""
        template = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "labels": {JOB_LABEL: "suite", DEPLOYMENT_LABEL: "1"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "grete",
                        "image": "grete:tests",
                        "command": [sys.executable, "-m", "grete.testing.conformance.launch"],
                        "env": [{"name": EXIT_FILE, "value": "/dev/termination-log"}],
                    }
                ],
            },
        }
        file = tmp_path / "pod.json"
        file.write_text(json.dumps(template))
        launchers: list[Launcher] = []

        def open_one() -> Launcher:
            server = ApiServer(of_kubeconfig([kubernetes.admin]))
            pods = ContainerPods.of(file, JobNamespace(server, namespace, 5.0), {POD_NAME: "none"})
            launchers.append(ManagedLauncher(pods, SystemClock(), 0))
            return launchers[-1]

        yield open_one
        for launcher in launchers:
            launcher.close()

    @pytest.fixture
    def launcher(self, opened: Callable[[], Launcher]) -> Launcher:
        return opened()

    @pytest.fixture
    def another(self, launcher: Launcher, opened: Callable[[], Launcher]) -> Launcher:
        return opened()
