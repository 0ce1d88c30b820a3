"""A Kubernetes API server on loopback for tests, with its etcd: one process, built by `make services`.

    python -m grete_workbench.kube_apiserver start DIRECTORY     prints the path of the administrator's kubeconfig
    python -m grete_workbench.kube_apiserver stop DIRECTORY

RBAC is on. There is no kubelet, scheduler or controller: objects are kept and watched, and nothing becomes of them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from grete.coordination.kubernetes.access import of_kubeconfig
from grete.http_answers import HTTPError, HttpResponse, connections, whole_answer
from grete.testing.server_cluster import (
    ServerCluster,
    ServerFailed,
    ServerNode,
    command_line,
    jars_directory,
)

VERSION = "1.34.4"
_CALL_S = 30.0
_SWITCHES = (
    "--authorization-mode=RBAC",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-cluster-ip-range=10.96.0.0/24",
    "--endpoint-reconciler-type=none",
    "--enable-priority-and-fairness=false",
    "--profiling=false",
)


def program() -> Path:
    """Where `make services SERVICES=kube_apiserver` puts it: `GRETE_KUBE_APISERVER`, else the user's cache."""
    return jars_directory("GRETE_KUBE_APISERVER", f"kube-apiserver-{VERSION}") / "kube-apiserver"


@dataclass(frozen=True, slots=True)
class KubeNode(ServerNode):
    """The one node, and where it listens. Its certificate is good at `proxied_port` as well."""

    port: int
    etcd_port: int
    proxied_port: int

    @property
    def keys(self) -> Path:
        """Keys and certificates of clients, which the first start makes."""
        return self.directory / "keys"

    @property
    def ca(self) -> Path:
        """The authority that clients trust."""
        return self.directory / "certificates" / "apiserver.crt"


class KubeApiServer(ServerCluster[KubeNode]):
    """One API server in `directory`, which `start` may find as an earlier run left it."""

    PORTS_PER_NODE: ClassVar[int] = 3

    @property
    def bootstrap(self) -> str:
        """The kubeconfig of a user with client certificate who may do everything."""
        return str(self.admin)

    @property
    def admin(self) -> Path:
        """As `bootstrap`."""
        return self._of_certificate("admin")

    @property
    def nobody(self) -> Path:
        """The kubeconfig of a user with client certificate who may do nothing."""
        return self._of_certificate("nobody")

    def _of_certificate(self, name: str) -> Path:
        keys = self.nodes[0].keys
        user = {"client-certificate": str(keys / f"{name}.crt"), "client-key": str(keys / f"{name}.key")}
        return self.kubeconfig(name, user)

    def kubeconfig(self, name: str, user: Mapping[str, Any], *, port: int = 0) -> Path:
        """A kubeconfig of this name, for a user with these fields; `port` is the server's own unless given."""
        [node] = self.nodes
        path = self._directory / f"{name}.yaml"
        cluster = {"server": f"https://127.0.0.1:{port or node.port}", "certificate-authority": str(node.ca)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": dict(user)}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(yaml.safe_dump(document))
        unfinished.rename(path)
        return path

    def call(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request by the administrator; returns the answer.

        Raises:
            ServerFailed: it was refused.
        """
        answer = self._request(method, path, document)
        if answer.status >= 300:
            raise ServerFailed(f"{method} {path}: {answer.status} {answer.text}")
        found: dict[str, Any] = answer.json()
        return found

    def _request(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> HttpResponse:
        access = of_kubeconfig([self.admin])
        with connections(access.tls(access.credential())) as client:
            return whole_answer(client, method, f"{access.server}{path}", _CALL_S, document=document)

    def token(self, namespace: str, account: str) -> str:
        """A token of a service account, for ten minutes."""
        asked = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": 600},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token: str = self.call("POST", path, asked)["status"]["token"]
        return token

    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> KubeNode:
        return KubeNode(number, directory, *ports)

    def _prepare(self, node: KubeNode) -> None:
        if not program().exists():
            raise ServerFailed(f"there is no {program()}: run make services SERVICES=kube_apiserver")
        node.keys.mkdir(exist_ok=True)

    def _command(self, node: KubeNode) -> list[str]:
        etcd = f"127.0.0.1:{node.etcd_port}"
        env = shutil.which("env")
        assert env is not None, "no Unix without env"
        return [
            env,
            f"GRETE_ETCD_DIRECTORY={node.directory / 'etcd'}",
            f"GRETE_ETCD_ADDRESS={etcd}",
            f"GRETE_KEYS_DIRECTORY={node.keys}",
            str(program()),
            f"--etcd-servers=http://{etcd}",
            f"--cert-dir={node.directory / 'certificates'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={node.port}",
            "--advertise-address=127.0.0.1",
            f"--client-ca-file={node.keys / 'clients-ca.crt'}",
            f"--service-account-key-file={node.keys / 'service-accounts.key'}",
            f"--service-account-signing-key-file={node.keys / 'service-accounts.key'}",
            *_SWITCHES,
        ]

    def _is_ready(self, node: KubeNode) -> bool:
        if not node.ca.exists() or not (node.keys / "clients-ca.crt").exists():
            return False
        with suppress(HTTPError):
            return self._request("GET", "/readyz").text == "ok"
        return False


if __name__ == "__main__":
    sys.exit(command_line(KubeApiServer, "grete_workbench.kube_apiserver"))
