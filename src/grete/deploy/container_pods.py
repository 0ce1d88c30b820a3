"""Containers as pods of their own: how one is made, and what it says of its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grete.deploy.managed_containers import (
    ManagedContainer,
    ManagedContainers,
    ManagedEnd,
    incarnation_name,
)
from grete.deploy.namespace import JobNamespace, selector
from grete.deploy.objects import (
    CONTAINER_LABEL,
    DEPLOYMENT_LABEL,
    JOB_LABEL,
    Manifest,
    Object,
    StateDetails,
)
from grete.environment import CONTAINER_EPOCH, POD_NAME
from grete.errors import ConfigError
from grete.exit_report import parse_report
from grete.failpoints import failpoint
from grete.launch.base import ContainerStart
from grete.model.ids import ContainerId
from grete.text_logs import shortened

_EPOCH = "grete/epoch"
_LONGEST = 2_000
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OUR_TURN = ("ContainerCreating", "PodInitializing")
"""Why a container waits that needs nobody."""
_NO_REASONS = ("Error", "Completed")
"""That nodes give for every end."""


@dataclass(frozen=True, slots=True)
class ContainerPods(ManagedContainers):
    """See ManagedContainers: pods, each of one incarnation.

    They belong to the StatefulSet of the coordinator and not to its pod, so they go on while that is replaced, and
    end with the deployment.
    """

    kind = "pod"

    namespace: JobNamespace
    job: str
    """The deployed name."""
    template: Manifest
    owners: Sequence[Mapping[str, str]] = ()

    @classmethod
    def of(cls, template: Path, namespace: JobNamespace, environment: Mapping[str, str]) -> ContainerPods:
        """Of the coordinator that runs in the pod that the environment names.

        Raises:
            ConfigError: the template cannot be read.
            GreteError: the API server does not answer, or refuses.
        """
        try:
            pod: Manifest = json.loads(template.read_bytes())
            job = str(pod["metadata"]["labels"][JOB_LABEL])
        except (OSError, ValueError, LookupError) as error:
            raise ConfigError(
                f"cannot read {template}, the pod of this deployment's containers: {error}"
            ) from error
        own = namespace.read("Pod", environment.get(POD_NAME, ""))
        owners = () if own is None else tuple(map(msgspec.to_builtins, own.metadata.owner_references))
        return cls(namespace, job, pod, owners)

    @property
    def labels(self) -> tuple[str, ...]:
        """By which they are found among the pods of the job."""
        return (
            CONTAINER_LABEL,
            f"{DEPLOYMENT_LABEL}={self.template['metadata']['labels'][DEPLOYMENT_LABEL]}",
        )

    def name(self, start: ContainerStart) -> str:
        """See ManagedContainers."""
        return incarnation_name(self.job, start)

    def manifest(self, start: ContainerStart) -> Manifest:
        """The pod of an incarnation."""
        metadata, spec = self.template["metadata"], self.template["spec"]
        ours, *others = spec["containers"]
        told = {**start.environment, CONTAINER_EPOCH: str(start.epoch)}
        env = [one for one in ours["env"] if one["name"] not in told]
        ours = {
            **ours,
            "env": [*env, *({"name": name, "value": text} for name, text in sorted(told.items()))],
        }
        made = {
            **metadata,
            "name": self.name(start),
            "labels": {**metadata["labels"], CONTAINER_LABEL: str(start.container_id)},
            "annotations": {**metadata.get("annotations", {}), _EPOCH: str(start.epoch)},
            "ownerReferences": [dict(owner) for owner in self.owners],
        }
        spec = {**spec, "containers": [ours, *others]}
        if start.host:
            spec["affinity"] = _towards(start, spec.get("affinity", {}))
        return {**self.template, "metadata": made, "spec": spec}

    def create(self, start: ContainerStart) -> str:
        """See ManagedContainers."""
        there = self.namespace.create(self.manifest(start))
        failpoint("launch.started")
        if there is None:  # by an attempt before, whose answer was lost
            there = self.namespace.read("Pod", self.name(start))
        return "" if there is None else there.metadata.uid

    def withdraw(self, name: str) -> None:
        """See ManagedContainers: nothing is under way, but perhaps an answer."""

    def read(self, name: str) -> ManagedContainer | None:
        """See ManagedContainers."""
        there = self.namespace.read("Pod", name)
        return None if there is None else _managed(there)

    def seen(self) -> tuple[list[ManagedContainer], str]:
        """See ManagedContainers."""
        found, version = self.namespace.seen("Pod", self.job, *self.labels)
        return [one for pod in found if (one := _managed(pod)) is not None], version

    def watch(self, version: str, watch_s: float) -> None:
        """See ManagedContainers."""
        one = self.namespace
        one.server.watch(
            one.collection("Pod"), selector(self.job, *self.labels), version, watch_s, one.call_s
        )

    def remove(self, name: str, uid: str, grace_s: int) -> None:
        """See ManagedContainers: the node's kubelet sends SIGKILL after that time."""
        one = self.namespace
        one.server.remove(one.path("Pod", name), {"uid": uid}, one.call_s, grace_s)

    def close(self) -> None:
        """See ManagedContainers."""
        self.namespace.server.close()


def _towards(start: ContainerStart, affinity: Manifest) -> Manifest:
    """The affinity of a pod for a host: before others, or for no other one. To be apart from its like counts less."""
    kept = {kind: terms for kind, terms in affinity.items() if kind != "podAntiAffinity"}
    nodes = dict(kept.get("nodeAffinity", {}))
    is_it = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [start.host]}]}
    if start.is_host_required:
        terms = nodes.get(_REQUIRED, {}).get("nodeSelectorTerms") or [{}]
        nodes[_REQUIRED] = {
            "nodeSelectorTerms": [
                {**term, "matchFields": [*term.get("matchFields", ()), *is_it["matchFields"]]}
                for term in terms
            ]
        }
    else:
        nodes[_PREFERRED] = [*nodes.get(_PREFERRED, ()), {"weight": 100, "preference": is_it}]
    return {**kept, "nodeAffinity": nodes}


def container_number(pod: Object) -> int | None:
    """The container's, None for a pod that is none's."""
    text = pod.metadata.labels.get(CONTAINER_LABEL, "")
    return int(text) if text.isdecimal() else None


def _managed(pod: Object) -> ManagedContainer | None:
    """The incarnation that a pod is; None for a pod that is none's."""
    number, epoch = container_number(pod), pod.metadata.annotations.get(_EPOCH, "")
    if number is None:
        return None
    is_leaving = pod.metadata.deletion_timestamp is not None
    own_epoch = int(epoch) if epoch.isdecimal() else -1
    return ManagedContainer(
        pod.metadata.name,
        pod.metadata.uid,
        ContainerId(str(number)),
        own_epoch,
        pod.spec.node_name,
        pod.status.phase not in ("", "Pending"),
        _end_of(pod, own_epoch),
        pod.metadata.deletion_grace_period_seconds if is_leaving else None,
        is_unplaced=not pod.spec.node_name
        and any(one.type == "PodScheduled" for one in pod.status.conditions),
        waits_for=_why_it_waits(pod),
    )


def _details(pod: Object, state: str) -> StateDetails | None:
    for container in pod.status.container_statuses:
        if container.name in ("", "grete") and state in container.state:
            return container.state[state]
    return None


def _end_of(pod: Object, epoch: int) -> ManagedEnd | None:
    """What it ended with, None while it runs. A code above 128 is a signal's, as in a shell."""
    ended = _details(pod, "terminated")
    if ended is None:
        if pod.status.phase not in ("Succeeded", "Failed"):
            return None
        # its node has ended it, or has not taken it
        reason = ": ".join(filter(None, (pod.status.reason, pod.status.message))) or "its pod failed"
        return ManagedEnd(None, said=shortened(reason, _LONGEST))
    code = 128 - ended.exit_code if ended.exit_code > 128 else ended.exit_code
    report = parse_report(ended.message, epoch)
    why = "" if ended.reason in _NO_REASONS else ended.reason
    said = "" if report is not None else f"{why} {ended.message}".strip()
    return ManagedEnd(code, report, shortened(said, _LONGEST))


def _why_it_waits(pod: Object) -> str:
    """An image that is not there, or a node that is full, is for people to see; empty where there is nothing."""
    reasons = [
        (one.reason, one.message)
        for one in pod.status.conditions
        if one.type == "PodScheduled" and one.status == "False"
    ]
    waiting = _details(pod, "waiting")
    if waiting is not None and waiting.reason not in _OUR_TURN:
        reasons.append((waiting.reason, waiting.message))
    return "; ".join(" ".join(one).strip() for one in reasons)
