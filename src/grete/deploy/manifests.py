"""The objects of a deployment on Kubernetes, as the API server takes them.

One pod, kept by a StatefulSet of one, is coordinator, container and Spark's driver; executors are pods that it
starts. Where containers are pods of their own, it is the coordinator alone, and has the pod to start each by in a
file (`deploy.pods`). The service account may do what Spark's driver and the election need, and no more.
Configuration and secrets are in a Secret of each deployment, which is never changed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from grete.config.key_tables.coordinator import FACTORY
from grete.config.key_tables.job import HTTP_NAMES
from grete.config.key_tables.kubernetes import CONTEXT, KUBECONFIG, NAMESPACE
from grete.config.properties import format_properties
from grete.deploy.deployment import Deployment
from grete.deploy.objects import DEPLOYMENT_LABEL, Manifest
from grete.deploy.places import CONFIG_FILE, CONTAINER_POD_FILE
from grete.deploy.pods import (
    PORT,
    container_pod,
    coordinator_labels,
    coordinator_pod,
    labels,
    public_port,
    secret_name,
)

_SERVICE = "spark.kubernetes.driver.service.deleteOnTermination"
"""Spark would ask for the right to delete a service that a driver like ours has not."""
RULES: tuple[Manifest, ...] = (
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
    },
    {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "verbs": ["create", "deletecollection"],
    },
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list", "deletecollection"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
)
"""Executors, their configuration and their claims are Spark's; the Lease is the coordinator's. All are in the audit
log of the API server after a job whose pod was replaced, but for `delete`, which is for an executor that failed."""


def shipped_config(deployment: Deployment, namespace: str) -> dict[str, str]:
    """The configuration as the pod submits it: leaders are elected by a Lease unless it says otherwise.

    What says how the operator reaches the API server stays behind: the pod has a service account.
    """
    of_operator = (KUBECONFIG.name, CONTEXT.name, "spark.kubernetes.driver.podTemplateFile")
    config = {key: value for key, value in deployment.settings.raw.items() if key not in of_operator}
    names = [f"{deployment.name}.{namespace}.svc", f"{deployment.name}.{namespace}.svc.cluster.local"]
    return {
        FACTORY.name: "kubernetes",
        _SERVICE: "false",
        **({} if public_port(deployment) is None else {HTTP_NAMES.name: ",".join(names)}),
        **config,
        NAMESPACE.name: namespace,
        "spark.kubernetes.namespace": namespace,
    }


def manifests(deployment: Deployment, namespace: str, secrets: Mapping[str, str]) -> list[Manifest]:
    """Everything of the deployment, in the order in which it is made.

    Raises:
        ConfigError: no image, or a size that cannot be read.
    """
    account = {"kind": "ServiceAccount", "name": deployment.name, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": deployment.name}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        _object("v1", "ServiceAccount", deployment, namespace),
        {**_object(rbac, "Role", deployment, namespace), "rules": [dict(rule) for rule in RULES]},
        {**_object(rbac, "RoleBinding", deployment, namespace), "subjects": [account], "roleRef": role},
        *([] if public_port(deployment) is None else [_service(deployment, namespace)]),
        _secret(deployment, namespace, secrets),
        _stateful_set(deployment, namespace),
    ]


def shipped_files(deployment: Deployment, namespace: str) -> dict[str, str]:
    """The files of the Secret besides its secrets."""
    found = {CONFIG_FILE: format_properties(shipped_config(deployment, namespace))}
    if deployment.has_managed_containers:
        found[CONTAINER_POD_FILE] = json.dumps(container_pod(deployment, namespace), indent=1)
    return found


def _object(version: str, kind: str, deployment: Deployment, namespace: str, name: str = "") -> Manifest:
    metadata = {"name": name or deployment.name, "namespace": namespace, "labels": labels(deployment)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _secret(deployment: Deployment, namespace: str, secrets: Mapping[str, str]) -> Manifest:
    made = _object("v1", "Secret", deployment, namespace, secret_name(deployment))
    made["metadata"]["labels"][DEPLOYMENT_LABEL] = deployment.id
    texts = {**shipped_files(deployment, namespace), **secrets}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in sorted(texts.items())}
    return {**made, "immutable": True, "type": "Opaque", "data": data}


def _stateful_set(deployment: Deployment, namespace: str) -> Manifest:
    made = _object("apps/v1", "StatefulSet", deployment, namespace)
    made["metadata"]["annotations"] = {DEPLOYMENT_LABEL: deployment.id}
    service = "" if public_port(deployment) is None else deployment.name
    spec = {
        "serviceName": service,
        "replicas": 1,
        "selector": {"matchLabels": coordinator_labels(deployment)},
        "template": coordinator_pod(deployment),
    }
    return {**made, "spec": spec}


def _service(deployment: Deployment, namespace: str) -> Manifest:
    """A name for the pod that leads, without an address of its own."""
    ports = [{"name": PORT, "port": public_port(deployment), "targetPort": PORT}]
    spec = {"clusterIP": "None", "selector": coordinator_labels(deployment), "ports": ports}
    return {**_object("v1", "Service", deployment, namespace), "spec": spec}
