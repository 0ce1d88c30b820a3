"""The pods of a job's containers: how one is made, and what it says of its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

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
from grete.errors import ConfigError, GreteError
from grete.exit_report import parse_report
from grete.launch.base import ContainerExit, ContainerStart
from grete.launch.exits import exit_of
from grete.text_logs import shortened

_EPOCH = "grete/epoch"
_LONGEST = 2_000
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OUR_TURN = ("ContainerCreating", "PodInitializing")
"""Why a container waits that needs nobody."""
_NO_REASONS = ("Error", "Completed")
"""That nodes give for every end."""


@dataclass(slots=True)
class ContainerPod:
    """One incarnation of a container. Without a `uid` the API server has not answered that it is made."""

    start: ContainerStart
    name: str
    uid: str = ""
    is_killed: bool = False
    is_sent_away: bool = False
    """Whether somebody else ends it, as one who drains its node."""
    gone_by_s: float | None = None
    """On the monotonic clock; None while nobody ends it."""
    said: str = ""
    unplaced_s: float | None = None
    """Since when no host takes it, on the monotonic clock."""

    @property
    def is_pending(self) -> bool:
        """Whether something is still to be asked of the API server."""
        return not self.uid or (self.is_killed and self.gone_by_s is None)


@dataclass(frozen=True, slots=True)
class ContainerPods:
    """The pods of one deployment's containers: where they are, by what they are started, and who owns them."""

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
        """The pod's name, which no other incarnation has."""
        return f"{self.job}-c{start.container_id}-{start.epoch}"

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

    def seen(self) -> tuple[list[Object], str]:
        """All there are, and the version of that sight."""
        found, version = self.namespace.seen("Pod", self.job, *self.labels)
        return [pod for pod in found if container_number(pod) is not None], version

    def watch(self, version: str, watch_s: float) -> None:
        """Wait until they are others, or stand otherwise, than in that sight."""
        one = self.namespace
        one.server.watch(
            one.collection("Pod"), selector(self.job, *self.labels), version, watch_s, one.call_s
        )

    def remove(self, name: str, uid: str, grace_s: int) -> None:
        """End one, if it is there."""
        one = self.namespace
        one.server.remove(one.path("Pod", name), {"uid": uid}, one.call_s, grace_s)


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


def epoch_of(pod: Object) -> int:
    """The epoch of its incarnation, -1 for a pod that is none's."""
    text = pod.metadata.annotations.get(_EPOCH, "")
    return int(text) if text.isdecimal() else -1


def has_ended(pod: Object) -> bool:
    """Whether nothing of it runs any more, as its node says."""
    return pod.status.phase in ("Succeeded", "Failed") or _details(pod, "terminated") is not None


def _details(pod: Object, state: str) -> StateDetails | None:
    for container in pod.status.container_statuses:
        if container.name in ("", "grete") and state in container.state:
            return container.state[state]
    return None


def end_of(pod: ContainerPod, there: Object) -> ContainerExit | None:
    """What it ended with, None while it runs. A code above 128 is a signal's, as in a shell."""
    if not has_ended(there):
        return None
    ended = _details(there, "terminated")
    if ended is None:  # its node has ended it, or has not taken it
        reason = ": ".join(filter(None, (there.status.reason, there.status.message))) or "its pod failed"
        return unheard(pod, shortened(reason, _LONGEST))
    code = 128 - ended.exit_code if ended.exit_code > 128 else ended.exit_code
    report = parse_report(ended.message, pod.start.epoch)
    why = "" if ended.reason in _NO_REASONS else ended.reason
    said = "" if report is not None else f"{why} {ended.message}".strip()
    end = exit_of(pod.start, code, report, said=shortened(said, _LONGEST))
    is_left = pod.is_sent_away or (there.metadata.deletion_timestamp is not None and not pod.is_killed)
    return replace(end, left=True) if is_left else end


def unheard(pod: ContainerPod, reason: str) -> ContainerExit:
    """Of one that may still run somewhere. It did not fail, if somebody has sent it away."""
    id_, epoch = pod.start.container_id, pod.start.epoch
    return ContainerExit(id_, epoch, -9, reason, left=pod.is_sent_away, may_live=True)


def gone(pod: ContainerPod) -> ContainerExit:
    """Of one that the API server does not have any more. It may live yet, where its node was not asked."""
    if pod.is_killed:
        return unheard(pod, exit_of(pod.start, -9, None).reason)
    return unheard(pod, f"pod {pod.name} was removed, and said nothing")


def killed_before(pod: ContainerPod) -> ContainerExit:
    """Of one that was to end before the API server had it."""
    return ContainerExit(pod.start.container_id, pod.start.epoch, -9, "killed before it was started")


def not_started(pod: ContainerPod, error: GreteError) -> ContainerExit:
    """Of one that the API server has refused."""
    return ContainerExit(pod.start.container_id, pod.start.epoch, 1, f"it was not started: {error}")


def host_refused(pod: ContainerPod) -> ContainerExit:
    """Of one that was not to be placed where an operator wants it: no failure, and it may go elsewhere."""
    reason = f"host {pod.start.host} does not take it, or is not there; it goes where there is room"
    return ContainerExit(pod.start.container_id, pod.start.epoch, -9, reason, left=True)


def is_unplaced(there: Object) -> bool:
    """Whether no host was found for it."""
    return not there.spec.node_name and any(one.type == "PodScheduled" for one in there.status.conditions)


def why_it_waits(there: Object) -> str:
    """An image that is not there, or a node that is full, is for people to see; empty where there is nothing."""
    reasons = [
        (one.reason, one.message)
        for one in there.status.conditions
        if one.type == "PodScheduled" and one.status == "False"
    ]
    waiting = _details(there, "waiting")
    if waiting is not None and waiting.reason not in _OUR_TURN:
        reasons.append((waiting.reason, waiting.message))
    return "; ".join(" ".join(one).strip() for one in reasons)
