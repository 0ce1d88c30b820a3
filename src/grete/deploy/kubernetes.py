"""Deployments on Kubernetes, over its HTTP interface; kubectl is not needed."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace as replaced

import yaml

from grete.clock import Deadline, SystemClock
from grete.config.properties import format_properties
from grete.config.redact import MASK, redact
from grete.coordination.kubernetes.access import find_access, find_namespace
from grete.coordination.kubernetes.api_server import ApiServer
from grete.deploy.base import AttemptRow, ClusterManager, ContainerRow, Deployed, DeploymentPlan
from grete.deploy.container_pods import container_number
from grete.deploy.deployment import Deployment
from grete.deploy.manifests import manifests, shipped_config
from grete.deploy.namespace import STRICT, JobNamespace
from grete.deploy.objects import (
    DEPLOYMENT_LABEL,
    ContainerStatus,
    Manifest,
    Object,
    StateDetails,
    milliseconds,
)
from grete.deploy.places import CONFIG_FILE, CONTAINER_POD_FILE
from grete.deploy.pod_template import variables_of_template
from grete.deploy.pods import secret_name
from grete.errors import JobError

_CALL_S = 15.0
_DEFAULT = "default"
"""The namespace that Kubernetes takes where none is named."""
_END_S = 120.0
_POLLS_S = (0.2, 1.0)
_DRY = f"dryRun=All&{STRICT}"
_RIGHTS = (
    "bind it to a Role with get, list, create, update and delete on serviceaccounts, services, secrets, pods, and on "
    "statefulsets, roles and rolebindings of their groups (docs/clusters.md)"
)


class Kubernetes(ClusterManager):
    """See ClusterManager. A job has one StatefulSet, whose name nobody else's has."""

    def plan(self, deployment: Deployment) -> DeploymentPlan:
        """See ClusterManager. Of a kubeconfig the namespace alone is read."""
        deployment = without_secrets_of_the_template(deployment)
        found = _named_namespace(deployment) or find_namespace(deployment.settings.kubernetes)
        namespace = found or _DEFAULT
        made = manifests(deployment, namespace, dict.fromkeys(deployment.secrets, MASK))
        config = redact(shipped_config(deployment, namespace))
        shown = [_masked(each, config) for each in made]
        text = yaml.dump_all(shown, Dumper=_Readable, sort_keys=False).rstrip()
        remark = (
            ""
            if found
            else f"# namespace {namespace}: neither the configuration nor a kubeconfig names one\n"
        )
        return DeploymentPlan(remark + text, {"manager": "kubernetes", "manifests": shown, "config": config})

    def check(self, deployment: Deployment) -> None:
        """Let the API server look at what `apply` would send, strictly; nothing is made.

        Raises:
            CoordinationError: it refuses an object; the message says why.
        """
        deployment = without_secrets_of_the_template(deployment)
        with _opened(deployment) as namespace:
            for made in manifests(deployment, namespace.name, dict.fromkeys(deployment.secrets, "")):
                namespace.create(made, _DRY)

    def apply(self, deployment: Deployment, *, replace: bool) -> Deployed:
        """See ClusterManager."""
        deployment = without_secrets_of_the_template(deployment)
        secrets = deployment.secret_values(os.environ)
        with _opened(deployment) as namespace:
            made = manifests(deployment, namespace.name, secrets)
            before = namespace.read("StatefulSet", deployment.name)
            if before is not None and not replace:
                raise _deployed_already(deployment, before)
            if before is not None:
                _end(namespace, deployment, before)
            for each in made[:-1]:
                namespace.ensure(each)
            if not namespace.create(made[-1]):  # two deployments at once: the first goes on
                namespace.remove("Secret", secret_name(deployment))
                raise _deployed_already(deployment, namespace.read("StatefulSet", deployment.name))
        return Deployed(deployment.name, f"deployment {deployment.id}", True, SystemClock().wall_ms())

    def status(self, deployment: Deployment) -> list[Deployed]:
        """See ClusterManager."""
        with _opened(deployment) as namespace:
            found = namespace.read("StatefulSet", deployment.name)
            pods = namespace.labelled("Pod", deployment.name)
        if found is None:
            return []
        numbered = [(container_number(pod), pod) for pod in pods]
        rows = [row for number, pod in numbered if number is None for row in _attempts(pod, namespace.name)]
        containers = [
            _container_row(number, pod, namespace.name) for number, pod in numbered if number is not None
        ]
        containers.sort(key=lambda row: (int(row.container), row.since_ms))
        state = f"deployment {found.metadata.annotations.get(DEPLOYMENT_LABEL, '')}"
        return [
            Deployed(deployment.name, state, True, found.metadata.created_ms, rows, containers=containers)
        ]

    def kill(self, deployment: Deployment) -> list[str]:
        """See ClusterManager."""
        with _opened(deployment) as namespace:
            there = namespace.read("StatefulSet", deployment.name)
            if there is None:
                return []
            _end(namespace, deployment, there)
        return [deployment.name]


@contextmanager
def _opened(deployment: Deployment) -> Iterator[JobNamespace]:
    access = find_access(deployment.settings.kubernetes)
    with closing(ApiServer(access, rights=_RIGHTS)) as server:
        yield JobNamespace(server, _named_namespace(deployment) or access.namespace or _DEFAULT, _CALL_S)


def without_secrets_of_the_template(deployment: Deployment) -> Deployment:
    """The deployment without the secrets that the pod has from the cluster: their values are not known here."""
    given = variables_of_template(deployment.settings.spark)
    return replaced(deployment, secrets=tuple(name for name in deployment.secrets if name not in given))


def _named_namespace(deployment: Deployment) -> str | None:
    settings = deployment.settings
    return settings.spark.namespace or settings.kubernetes.namespace


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def _masked(made: Manifest, config: Mapping[str, str]) -> Manifest:
    """As it is made; a Secret with its entries as text, of which people see what is no secret."""
    if made["kind"] != "Secret":
        return made
    entries = {**dict.fromkeys(made["data"], MASK), CONFIG_FILE: format_properties(config)}
    if CONTAINER_POD_FILE in made["data"]:
        entries[CONTAINER_POD_FILE] = base64.b64decode(made["data"][CONTAINER_POD_FILE]).decode()
    return {**{key: value for key, value in made.items() if key != "data"}, "stringData": entries}


def _deployed_already(deployment: Deployment, there: Object | None) -> JobError:
    id_ = "that has ended since" if there is None else there.metadata.annotations.get(DEPLOYMENT_LABEL, "")
    return JobError(
        f"job {deployment.job.shown} is deployed as StatefulSet {deployment.name} (deployment {id_}); end it with "
        "grete stop and grete deploy kill, or let this deployment take its place with --replace"
    )


def _end(namespace: JobNamespace, deployment: Deployment, ended: Object) -> None:
    """Remove the StatefulSet that was read, wait until its pods are gone, and remove what only it needed.

    Pods may take a minute, and another deployment of the job may begin meanwhile: all of that one stays.

    Raises:
        JobError: another deployment has taken its place already, or its pods do not end.
    """

    def left(kind: str, *also: str) -> list[str]:
        found = namespace.labelled(kind, deployment.name, *also)
        return [one.metadata.name for one in found if _is_of(ended, one)]

    path = namespace.path("StatefulSet", deployment.name)
    if not namespace.server.remove(path, {"uid": ended.metadata.uid}, _CALL_S):
        successor = namespace.read("StatefulSet", deployment.name)
        if successor is not None:
            raise _deployed_already(deployment, successor)
    for pod in left("Pod"):
        namespace.remove("Pod", pod)
    deadline = Deadline(SystemClock(), _END_S, pauses_s=_POLLS_S)
    while left("Pod"):
        if not deadline.pause():
            raise JobError(
                f"pods of {deployment.name} have not ended within {_END_S:g} s; its Secrets are left"
            )
    for secret in left("Secret", DEPLOYMENT_LABEL):
        namespace.remove("Secret", secret)


def _is_of(stateful_set: Object, one: Object) -> bool:
    """Whether an object was made for that deployment, or for one before it that was cut off before its end."""
    made_for, id_ = (
        one.metadata.labels.get(DEPLOYMENT_LABEL),
        stateful_set.metadata.annotations.get(DEPLOYMENT_LABEL),
    )
    return made_for == id_ or one.metadata.created_ms < stateful_set.metadata.created_ms


def _attempts(pod: Object, namespace: str) -> Iterator[AttemptRow]:
    """The attempts of a pod that are known: the present one, and how often it was begun again."""
    name = pod.metadata.name
    for container in pod.status.container_statuses or [ContainerStatus()]:
        began_ms, words = _state(pod, container)
        number = container.restart_count + 1
        service = f"{name.rpartition('-')[0]}.{namespace}.svc"
        yield AttemptRow(number, _where(pod), began_ms, words, _logs(pod, namespace), service)


def _container_row(number: int, pod: Object, namespace: str) -> ContainerRow:
    """A container that has a pod of its own."""
    began_ms, words = _state(pod, next(iter(pod.status.container_statuses), ContainerStatus()))
    return ContainerRow(str(number), _where(pod), began_ms, words, _logs(pod, namespace))


def _state(pod: Object, container: ContainerStatus) -> tuple[int, str]:
    """Since when it is as it is, and how that is called."""
    state, details = next(iter(container.state.items()), ("waiting", StateDetails()))
    began_ms = pod.metadata.created_ms if details.started_at is None else milliseconds(details.started_at)
    return began_ms, " ".join(filter(None, (state, details.reason)))


def _where(pod: Object) -> str:
    return f"{pod.metadata.name} on {pod.spec.node_name or 'no node yet'}"


def _logs(pod: Object, namespace: str) -> str:
    return f"kubectl logs -n {namespace} {pod.metadata.name}"
