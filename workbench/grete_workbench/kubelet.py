"""A node of Kubernetes for tests: it runs the pods of an API server as processes of this machine.

    python -m grete_workbench.kubelet KUBECONFIG DIRECTORY NAMESPACE [--number 1]

It plays the scheduler, the kubelet, the controller of StatefulSets and the collector of what lost its owner or its
node. There are no images: a container without a command is taken for an executor of Spark's image. A pod has a mount
namespace of its own, which needs root, an address of 127.0.NUMBER.0/24 in the machine's network, and a token of its
service account, so that rights are real. What it does not show: images, networks between nodes, limits of resources.
"""

from __future__ import annotations

import argparse
import base64
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grete.coordination.kubernetes.access import SERVICE_ACCOUNT, of_kubeconfig
from grete.http_answers import HTTPError, HttpResponse, PoolManager, connections, parse_url, whole_answer
from grete.testing.server_cluster import ServerFailed

Object = dict[str, Any]
_log = logging.getLogger("kubelet")
_EVERY_S = 0.2
_CALL_S = 30.0
_TOKEN_S = 7200
_IMAGE_HAS = (
    "PATH",
    "JAVA_HOME",
    "LANG",
    "PYTHONPATH",
    "SPARK_HOME",
    "PYSPARK_PYTHON",
    "GRETE_SPARK_KAFKA_JARS",
)
_ENTRYPOINT = Path(__file__).parents[2] / "packaging" / "image" / "entrypoint.sh"
"""That of our image, which an executor's pod runs as Spark's own would be."""
_LAST_WORDS, _LONGEST_WORDS = "last-words", 4096
_MERGE = {"Content-Type": "application/strategic-merge-patch+json"}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(slots=True)
class _Pod:
    """A pod that runs here."""

    document: Object
    directory: Path
    address: str
    process: subprocess.Popen[bytes]
    restarts: int = 0
    kill_at_s: float | None = None


@dataclass(slots=True)
class Kubelet:
    """One node, of one namespace. `turn` looks at everything once; pods are in `directory`, by their names."""

    http: PoolManager
    server: str
    ca: str
    directory: Path
    namespace: str
    number: int = 1
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _addresses: int = 0
    _is_cordoned: bool = False
    """As by `kubectl cordon`: what runs goes on, and nothing new comes."""

    @property
    def name(self) -> str:
        """The node's."""
        return f"node-{self.number}"

    def join(self) -> None:
        """Become a node of the cluster, and give the namespace what its controller would."""
        self._call("POST", "/api/v1/nodes", {"metadata": {"name": self.name}})
        account = {"metadata": {"name": "default"}}
        self._call("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts", account)

    def turn(self) -> None:
        """Make pods that are missing, start and end what is to run and not, and report it."""
        sets = self._items(f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets")
        pods = self._items(f"/api/v1/namespaces/{self.namespace}/pods")
        for one in sets:
            self._keep_one(one, pods)
        owners = {each["metadata"]["uid"] for each in (*sets, *pods)}
        found = {each["metadata"]["name"]: each.get("spec", {}) for each in self._items("/api/v1/nodes")}
        self._is_cordoned, nodes = found.get(self.name, {}).get("unschedulable", False), set(found)
        for pod in pods:
            node = pod["spec"].get("nodeName", self.name)
            if node == self.name:
                self._look_at(pod, owners, nodes)
            elif node not in nodes:
                self._forget(pod)
        for uid, running in list(self._pods.items()):
            if running.process.poll() is not None:
                self._ended(uid, running)

    def _items(self, path: str) -> list[Object]:
        found: list[Object] = self._read(path)["items"]
        return found

    def _keep_one(self, owner: Object, pods: list[Object]) -> None:
        """The one pod of a StatefulSet, of its present template."""
        metadata, template = owner["metadata"], owner["spec"]["template"]
        name = f"{metadata['name']}-0"
        there = [each for each in pods if each["metadata"]["name"] == name]
        if there or "deletionTimestamp" in metadata:
            return
        reference = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        labels = template["metadata"].get("labels", {})
        pod = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": [reference]},
            "spec": template["spec"],
        }
        self._call("POST", f"/api/v1/namespaces/{metadata['namespace']}/pods", pod)

    def _look_at(self, pod: Object, owners: set[str], nodes: set[str]) -> None:
        metadata, phase = pod["metadata"], pod.get("status", {}).get("phase", "Pending")
        uid = metadata["uid"]
        if "deletionTimestamp" in metadata:
            self._end(pod)
        elif any(each["uid"] not in owners for each in metadata.get("ownerReferences", ())):
            self._call("DELETE", _path(pod))
        elif uid in self._pods or phase in ("Succeeded", "Failed"):
            pass
        elif "nodeName" not in pod["spec"]:
            wanted = _required(pod)
            if wanted and self.name not in wanted:
                if not wanted & nodes:
                    self._report_unschedulable(pod, "no such node")
                return
            if self._is_cordoned:
                self._report_unschedulable(pod, "0/1 nodes are available: 1 node(s) were unschedulable")
                return
            target = {"kind": "Node", "name": self.name}
            self._call(
                "POST", _path(pod, "/binding"), {"metadata": {"name": metadata["name"]}, "target": target}
            )
        else:
            self._addresses += 1
            self._start(pod, f"127.0.{self.number}.{self._addresses}", 0)

    def _request(
        self, method: str, path: str, body: Object | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        url = f"{self.server}{path}"
        return whole_answer(self.http, method, url, _CALL_S, document=body, headers=headers)

    def _read(self, path: str) -> Object:
        return _document(self._request("GET", path))

    def _call(self, method: str, path: str, body: Object | None = None) -> HttpResponse:
        """A request whose refusal is no end of the kubelet: what is not there yet is looked at again."""
        answer = self._request(method, path, body)
        if answer.status >= 300 and answer.status not in (404, 409):
            _log.warning("%s %s: %s %s", method, path, answer.status, answer.text[:300])
        return answer

    # --- start ---

    def _start(self, pod: Object, address: str, restarts: int) -> None:
        [container] = pod["spec"]["containers"]
        place = self.directory / pod["metadata"]["uid"]
        try:
            mounts = list(self._mounts(pod, container, place))
            environment = {name: value for name in _IMAGE_HAS if (value := os.environ.get(name))}
            environment |= self._environment(pod, container, address)
        except (KeyError, ServerFailed) as error:  # Spark makes a pod before its configuration
            _log.info("%s waits: %r", pod["metadata"]["name"], error)
            return
        command = [*container.get("command", ("bash", str(_ENTRYPOINT))), *container.get("args", ())]
        binds = "".join(f"mkdir -p {target}; mount --bind {source} {target}; " for source, target in mounts)
        (place / "work").mkdir(parents=True, exist_ok=True)
        words, target = place / _LAST_WORDS, container.get("terminationMessagePath", "/dev/termination-log")
        words.write_bytes(b"")
        # /dev is the machine's: the mark that the file is mounted on must stay for other pods
        binds += f"touch {target}; mount --bind {words} {target}; "
        with (place / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - pods of the tests
                ["unshare", "--mount", "bash", "-c", f'set -e; {binds}exec "$@"', "pod", *command],  # noqa: S607
                cwd=place / "work",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # at once, since tests look at both while a pod is started again
        (place / "node").write_text(self.name)
        (place / "pid.new").write_text(str(process.pid))
        (place / "pid.new").replace(place / "pid")
        (place / "link").unlink(missing_ok=True)
        (place / "link").symlink_to(place)
        (place / "link").replace(self.directory / pod["metadata"]["name"])
        self._pods[pod["metadata"]["uid"]] = _Pod(pod, place, address, process, restarts)
        _log.info("started %s at %s, process %d", pod["metadata"]["name"], address, process.pid)
        began = _now()
        kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": "127.0.0.1",
            "startTime": began,
            "conditions": [{"type": kind, "status": "True"} for kind in kinds],
        }
        self._report(
            pod, status, {"ready": True, "restartCount": restarts, "state": {"running": {"startedAt": began}}}
        )

    def _report(self, pod: Object, status: Object, of_container: Object) -> None:
        [container] = pod["spec"]["containers"]
        named = {"name": container["name"], "image": container["image"], "imageID": ""}
        document = {"status": {**status, "containerStatuses": [{**named, **of_container}]}}
        self._request("PATCH", _path(pod, "/status"), document, _MERGE)

    def _report_unschedulable(self, pod: Object, message: str) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        self._request("PATCH", _path(pod, "/status"), {"status": {"conditions": [condition]}}, _MERGE)

    def _mounts(self, pod: Object, container: Object, place: Path) -> Iterator[tuple[Path, str]]:
        """Folders of this machine and where the pod has them."""
        namespace = pod["metadata"]["namespace"]
        account = pod["spec"].get("serviceAccountName", "default")
        asked = {"spec": {"expirationSeconds": _TOKEN_S}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = _document(self._call("POST", path, asked))
        texts = {"token": answer["status"]["token"], "ca.crt": self.ca, "namespace": namespace}
        yield (
            _filled(place / "account", {name: text.encode() for name, text in texts.items()}),
            str(SERVICE_ACCOUNT),
        )
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            if mount["mountPath"] != str(SERVICE_ACCOUNT):
                yield (
                    self._volume(namespace, volumes[mount["name"]], place / mount["name"]),
                    mount["mountPath"],
                )

    def _volume(self, namespace: str, volume: Object, place: Path) -> Path:
        if "secret" in volume:
            return _filled(place, self._secret(namespace, volume["secret"]["secretName"]))
        if "configMap" in volume:
            path = f"/api/v1/namespaces/{namespace}/configmaps/{volume['configMap']['name']}"
            texts = self._read(path).get("data", {})
            return _filled(place, {name: text.encode() for name, text in texts.items()})
        return _filled(place, {})

    def _secret(self, namespace: str, name: str) -> dict[str, bytes]:
        found = self._read(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        return {key: base64.b64decode(text) for key, text in found.get("data", {}).items()}

    def _environment(self, pod: Object, container: Object, address: str) -> dict[str, str]:
        metadata = pod["metadata"]
        fields = {
            "status.podIP": address,
            "spec.nodeName": self.name,
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
        }
        own = parse_url(self.server)
        host, port = str(own.host), str(own.port)
        found = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "HOSTNAME": metadata["name"],
        }
        for each in container.get("env", ()):
            source = each.get("valueFrom", {})
            if "fieldRef" in source:
                found[each["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                reference = source["secretKeyRef"]
                secret = self._secret(metadata["namespace"], reference["name"])
                found[each["name"]] = secret[reference["key"]].decode()
            else:
                found[each["name"]] = each.get("value", "")
        return found

    # --- end ---

    def _ended(self, uid: str, running: _Pod) -> None:
        pod, code = running.document, running.process.returncode
        del self._pods[uid]
        _log.info("%s ended with %d", pod["metadata"]["name"], code)
        policy = pod["spec"].get("restartPolicy", "Always")
        if running.kill_at_s is None and (policy == "Always" or (policy == "OnFailure" and code)):
            self._start(pod, running.address, running.restarts + 1)
            return
        code = 128 - code if code < 0 else code
        said = (running.directory / _LAST_WORDS).read_bytes()[:_LONGEST_WORDS].decode(errors="replace")
        reason = "Error" if code else "Completed"
        ended = {"exitCode": code, "reason": reason, "message": said, "finishedAt": _now()}
        of_container = {"ready": False, "restartCount": running.restarts, "state": {"terminated": ended}}
        self._report(pod, {"phase": "Failed" if code else "Succeeded"}, of_container)

    def _end(self, pod: Object) -> None:
        """SIGTERM, after its grace SIGKILL, and at last no pod any more."""
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        running = self._pods.get(uid)
        if running is None:
            self._forget(pod)
        elif running.kill_at_s is None:
            running.kill_at_s = time.monotonic() + metadata.get("deletionGracePeriodSeconds", 30)
            os.kill(
                running.process.pid, signal.SIGTERM
            )  # to the first process alone, as runtimes of containers do
        elif time.monotonic() >= running.kill_at_s:
            os.killpg(running.process.pid, signal.SIGKILL)

    def _forget(self, pod: Object) -> None:
        """Of which nothing runs any more."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self._call("DELETE", _path(pod), body)

    def close(self) -> None:
        """Kill every pod."""
        for running in self._pods.values():
            os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()


def _document(answer: HttpResponse) -> Object:
    if not answer.is_success:
        raise ServerFailed(f"{answer.method} {answer.url}: {answer.status} {answer.text[:300]}")
    found: Object = answer.json()
    return found


def _path(pod: Object, below: str = "") -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}{below}"


def _required(pod: Object) -> set[str]:
    """The nodes of which a pod has to be on one; empty for any."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    fields = [field for term in terms for field in term.get("matchFields", ())]
    return {name for field in fields if field["key"] == "metadata.name" for name in field["values"]}


def _filled(place: Path, files: Mapping[str, bytes]) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (place / name).write_bytes(content)
    return place


def main(kubeconfig: Path, directory: Path, namespace: str, number: int) -> int:
    """Run until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    directory.mkdir(parents=True, exist_ok=True)
    access = of_kubeconfig([kubeconfig])
    assert access.ca is not None, "the server of the tests has an authority of its own"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with connections(access.tls(access.credential())) as http:
        kubelet = Kubelet(http, access.server, access.ca.read(), directory, namespace, number)
        kubelet.join()
        try:
            while True:
                try:
                    kubelet.turn()
                except (HTTPError, ServerFailed) as error:  # the API server is away for a while
                    _log.warning("%r", error)
                time.sleep(_EVERY_S)
        finally:
            kubelet.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m grete_workbench.kubelet")
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("namespace")
    parser.add_argument("--number", type=int, default=1)
    sys.exit(main(**vars(parser.parse_args())))
