"""The objects of a deployment on Kubernetes, as the API server takes them.

One pod, kept by a StatefulSet of one, is coordinator, container and Spark's driver; executors are pods that it
starts. Its service account may do what Spark's driver and the election need, and no more. Configuration and secrets
are in a Secret of each deployment, which is never changed.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import Any

from grete.config.key_tables.coordinator import FACTORY
from grete.config.key_tables.job import HTTP_NAMES
from grete.config.key_tables.kubernetes import CONTEXT, KUBECONFIG, NAMESPACE
from grete.config.properties import format_properties
from grete.config.settings import Settings
from grete.config.settings.job import JobSettings
from grete.deploy.deployment import Deployment
from grete.deploy.launch_variables import launch_variables
from grete.deploy.places import CONFIG_FILE, EPOCH_ID, POD_IP
from grete.deploy.pod_template import with_template
from grete.environment import HOME
from grete.errors import ConfigError

Manifest = dict[str, Any]
JOB_LABEL, DEPLOYMENT_LABEL = "grete/job", "grete/deployment"
_CONFIG_FOLDER, _HOME_FOLDER = "/etc/grete", "/var/lib/grete"
_SIZE = re.compile(r"(\d+)([kmgt]?)b?")
_UNITS = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_PYTHON_BYTES = 768 * 2**20
"""Of the coordinator and the container beside Spark's JVM, with a job model of some thousand tasks."""
_GRACE_S = 30
_PORT = "https"
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


def pod_name(deployment: Deployment) -> str:
    """The pod of its StatefulSet."""
    return f"{deployment.name}-0"


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
        **({} if _public(deployment) is None else {HTTP_NAMES.name: ",".join(names)}),
        **config,
        NAMESPACE.name: namespace,
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.driver.pod.name": pod_name(deployment),
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
        *([] if _public(deployment) is None else [_service(deployment, namespace)]),
        _secret(deployment, namespace, secrets),
        _stateful_set(deployment, namespace),
    ]


def secret_name(deployment: Deployment) -> str:
    """The Secret of this deployment."""
    return f"{deployment.name}-{deployment.id}"


def _object(version: str, kind: str, deployment: Deployment, namespace: str, name: str = "") -> Manifest:
    metadata = {"name": name or deployment.name, "namespace": namespace, "labels": _labels(deployment)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _labels(deployment: Deployment) -> dict[str, str]:
    return {"app.kubernetes.io/name": "grete", JOB_LABEL: deployment.name}


def _secret(deployment: Deployment, namespace: str, secrets: Mapping[str, str]) -> Manifest:
    made = _object("v1", "Secret", deployment, namespace, secret_name(deployment))
    made["metadata"]["labels"][DEPLOYMENT_LABEL] = deployment.id
    texts = {CONFIG_FILE: format_properties(shipped_config(deployment, namespace)), **secrets}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in sorted(texts.items())}
    return {**made, "immutable": True, "type": "Opaque", "data": data}


def _stateful_set(deployment: Deployment, namespace: str) -> Manifest:
    labels = _labels(deployment)
    port = _public(deployment)
    scraped = {} if port is None else {"annotations": _scraped_at(port)}
    pod = {
        "metadata": {"labels": {**labels, DEPLOYMENT_LABEL: deployment.id}, **scraped},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "serviceAccountName": deployment.name,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": math.ceil(deployment.settings.coordinator.shutdown_s) + _GRACE_S,
            "containers": [_container(deployment)],
            "volumes": [
                {"name": "config", "secret": {"secretName": secret_name(deployment)}},
                {"name": "home", "emptyDir": {}},
            ],
        },
    }
    made = _object("apps/v1", "StatefulSet", deployment, namespace)
    made["metadata"]["annotations"] = {DEPLOYMENT_LABEL: deployment.id}
    template = with_template(pod, deployment.settings.spark)
    service = "" if port is None else deployment.name
    spec = {"serviceName": service, "replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {**made, "spec": spec}


def _public(deployment: Deployment) -> int | None:
    """The port at which other pods reach the coordinator over TLS, None where they do not."""
    settings = deployment.settings.coordinator
    return settings.http_port if settings.is_public else None


def _scraped_at(port: int) -> dict[str, str]:
    """The annotations by which Prometheus' usual configuration finds a pod's metrics."""
    found = {"scrape": "true", "scheme": "https", "port": str(port), "path": "/metrics"}
    return {f"prometheus.io/{name}": value for name, value in found.items()}


def _service(deployment: Deployment, namespace: str) -> Manifest:
    """A name for the pod that leads, without an address of its own."""
    ports = [{"name": _PORT, "port": _public(deployment), "targetPort": _PORT}]
    spec = {"clusterIP": "None", "selector": _labels(deployment), "ports": ports}
    return {**_object("v1", "Service", deployment, namespace), "spec": spec}


def _served(deployment: Deployment) -> Manifest:
    """The pod is ready when its coordinator answers, which is when it leads."""
    port = _public(deployment)
    if port is None:
        return {}
    probe = {"httpGet": {"path": "/healthz", "port": _PORT, "scheme": "HTTPS"}, "periodSeconds": 5}
    return {"ports": [{"name": _PORT, "containerPort": port}], "readinessProbe": probe}


def _container(deployment: Deployment) -> Manifest:
    settings = deployment.settings
    program = [*_interpreter(settings.job), "-m", "grete.deploy.attempt", "--manager", "kubernetes"]
    variables = launch_variables(settings.job, settings.job.modules_folder or "")
    of_secret = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret_name(deployment), "key": name}}}
        for name in deployment.secrets
    ]
    return {
        "name": "grete",
        "image": settings.spark.image,
        "imagePullPolicy": settings.spark.image_pull_policy,
        "command": [*program, "--config", f"{_CONFIG_FOLDER}/{CONFIG_FILE}", *deployment.words],
        "env": [
            {"name": HOME, "value": _HOME_FOLDER},
            {"name": EPOCH_ID, "value": deployment.id},
            {"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *({"name": name, "value": value} for name, value in variables.items()),
            *of_secret,
        ],
        "resources": {
            "requests": {
                "memory": f"{_memory_mb(settings)}Mi",
                "cpu": settings.spark.driver_cores,
            },
            "limits": {"memory": f"{_memory_mb(settings)}Mi"},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True},
            {"name": "home", "mountPath": _HOME_FOLDER},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **_served(deployment),
    }


def _interpreter(job: JobSettings) -> list[str]:
    """Isolated, it imports nothing from the folder in which the image lets it begin, perhaps the application's."""
    return ["python3", "-P"] if job.is_isolated else ["python3"]


def _memory_mb(settings: Settings) -> int:
    """The JVM's heap, what Spark adds to it, and the coordinator's and container's own."""
    text = settings.spark.driver_memory.strip().lower()
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigError(f"spark.driver.memory={text!r} is no size; write it as 1g or 1024m")
    heap = int(found[1]) * _UNITS[found[2]]
    return math.ceil((heap + max(heap // 10, 384 * 2**20) + _PYTHON_BYTES) / 2**20)
