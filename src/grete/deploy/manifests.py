"""The objects of a deployment on Kubernetes, as the API server takes them.

One pod, kept by a StatefulSet of one, is coordinator, container and Spark's driver; executors are pods that it
starts. Where containers are pods of their own, it is the coordinator alone, and has the pod to start each by in a
file (`deploy.container_pods`). The service account may do what Spark's driver and the election need, and no more.
Configuration and secrets are in a Secret of each deployment, which is never changed.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping

from grete.config.key_tables.coordinator import FACTORY
from grete.config.key_tables.job import HTTP_NAMES
from grete.config.key_tables.kubernetes import CONTEXT, KUBECONFIG, NAMESPACE
from grete.config.properties import format_properties
from grete.config.settings import Settings
from grete.config.settings.job import JobSettings
from grete.deploy.deployment import Deployment
from grete.deploy.launch_variables import launch_variables
from grete.deploy.objects import DEPLOYMENT_LABEL, JOB_LABEL, Manifest
from grete.deploy.places import CONFIG_FILE, CONTAINER_POD_FILE, EPOCH_ID
from grete.deploy.pod_template import with_template
from grete.environment import EXIT_FILE, HOME, HOST_NAME, POD_IP, POD_NAME
from grete.errors import ConfigError

_COMPONENT = "app.kubernetes.io/component"
_COORDINATOR, _CONTAINER = "coordinator", "container"
_LAST_WORDS = "/dev/termination-log"
"""A file of each container of a pod, from which its node takes what it ended with."""
_LOST_NODE_S = 30
_TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_CONFIG_FOLDER, _HOME_FOLDER = "/etc/grete", "/var/lib/grete"
_SIZE = re.compile(r"(\d+)([kmgt]?)b?")
_UNITS = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_PYTHON_BYTES = 768 * 2**20
"""Of the coordinator and the container beside Spark's JVM, with a job model of some thousand tasks."""
_COORDINATOR_MB, _COORDINATOR_CORES = 512, "500m"
"""Of a coordinator alone."""
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


def shipped_files(deployment: Deployment, namespace: str) -> dict[str, str]:
    """The files of the Secret besides its secrets."""
    found = {CONFIG_FILE: format_properties(shipped_config(deployment, namespace))}
    if deployment.has_container_pods:
        found[CONTAINER_POD_FILE] = json.dumps(_container_pod(deployment, namespace), indent=1)
    return found


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
    texts = {**shipped_files(deployment, namespace), **secrets}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in sorted(texts.items())}
    return {**made, "immutable": True, "type": "Opaque", "data": data}


def _stateful_set(deployment: Deployment, namespace: str) -> Manifest:
    labels = {**_labels(deployment), _COMPONENT: _COORDINATOR}
    port = _public(deployment)
    scraped = {} if port is None else {"annotations": _scraped_at(port)}
    pod = {
        "metadata": {"labels": {**labels, DEPLOYMENT_LABEL: deployment.id}, **scraped},
        "spec": {
            **_pod_spec(deployment),
            "restartPolicy": "Always",
            "containers": [_coordinator(deployment)],
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


def _container_pod(deployment: Deployment, namespace: str) -> Manifest:
    """The pod of a container, but for its name, its number and what it is told (`deploy.container_pods`).

    Pods of one job are on several hosts where there are several. One whose host is lost is given up soon.
    """
    labels = {**_labels(deployment), _COMPONENT: _CONTAINER}
    pod = {
        "metadata": {"namespace": namespace, "labels": {**labels, DEPLOYMENT_LABEL: deployment.id}},
        "spec": {
            **_pod_spec(deployment),
            "restartPolicy": "Never",
            "containers": [_spark_container(deployment)],
            "volumes": [{"name": "home", "emptyDir": {}}],
        },
    }
    made = with_template(pod, deployment.settings.spark)
    spec = made["spec"]
    spec["tolerations"] = [
        *spec.get("tolerations", ()),
        *(
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_NODE_S}
            for key in _TAINTS
        ),
    ]
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": apart}]
    wanted = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    spec.setdefault("affinity", wanted)
    return {"apiVersion": "v1", "kind": "Pod", **made}


def _pod_spec(deployment: Deployment) -> Manifest:
    """What the pods of a job have in common."""
    return {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "serviceAccountName": deployment.name,
        "terminationGracePeriodSeconds": math.ceil(deployment.settings.coordinator.shutdown_s) + _GRACE_S,
    }


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
    led = {**_labels(deployment), _COMPONENT: _COORDINATOR}
    spec = {"clusterIP": "None", "selector": led, "ports": ports}
    return {**_object("v1", "Service", deployment, namespace), "spec": spec}


def _served(deployment: Deployment) -> Manifest:
    """The pod is ready when its coordinator answers, which is when it leads."""
    port = _public(deployment)
    if port is None:
        return {}
    probe = {"httpGet": {"path": "/healthz", "port": _PORT, "scheme": "HTTPS"}, "periodSeconds": 5}
    return {"ports": [{"name": _PORT, "containerPort": port}], "readinessProbe": probe}


def _coordinator(deployment: Deployment) -> Manifest:
    """The container of the pod that Kubernetes keeps; with the job's container and Spark's driver in it, or alone."""
    settings = deployment.settings
    program = [*_interpreter(settings.job), "-m", "grete.deploy.attempt", "--manager", "kubernetes"]
    memory, cores = _driver_resources(settings)
    if deployment.has_container_pods:
        memory, cores = _COORDINATOR_MB, _COORDINATOR_CORES
    made = _program(deployment, memory, cores)
    made["env"].insert(1, {"name": EPOCH_ID, "value": deployment.id})
    mounted = {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True}
    return {
        **made,
        "command": [*program, "--config", f"{_CONFIG_FOLDER}/{CONFIG_FILE}", *deployment.words],
        "volumeMounts": [mounted, *made["volumeMounts"]],
        **_served(deployment),
    }


def _spark_container(deployment: Deployment) -> Manifest:
    """The container of the pod of a container, which is Spark's driver."""
    made = _program(deployment, *_driver_resources(deployment.settings))
    node = {"name": HOST_NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    words = {"name": EXIT_FILE, "value": _LAST_WORDS}
    return {
        **made,
        "command": [*_interpreter(deployment.settings.job), "-m", "grete.spark.container"],
        "env": [*made["env"], node, words],
        "terminationMessagePath": _LAST_WORDS,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _program(deployment: Deployment, memory_mb: int, cores: str) -> Manifest:
    """What the programs of a job have in common; the environment begins with the home."""
    settings = deployment.settings
    variables = launch_variables(settings.job, settings.job.modules_folder or "")
    of_pod = {POD_IP: "status.podIP", POD_NAME: "metadata.name"}
    of_secret = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret_name(deployment), "key": name}}}
        for name in deployment.secrets
    ]
    return {
        "name": "grete",
        "image": settings.spark.image,
        "imagePullPolicy": settings.spark.image_pull_policy,
        "env": [
            {"name": HOME, "value": _HOME_FOLDER},
            *(
                {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for name, path in of_pod.items()
            ),
            *({"name": name, "value": value} for name, value in variables.items()),
            *of_secret,
        ],
        "resources": {
            "requests": {"memory": f"{memory_mb}Mi", "cpu": cores},
            "limits": {"memory": f"{memory_mb}Mi"},
        },
        "volumeMounts": [{"name": "home", "mountPath": _HOME_FOLDER}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _interpreter(job: JobSettings) -> list[str]:
    """Isolated, it imports nothing from the folder in which the image lets it begin, perhaps the application's."""
    return ["python3", "-P"] if job.is_isolated else ["python3"]


def _driver_resources(settings: Settings) -> tuple[int, str]:
    """MiB and cores of Spark's driver, with the coordinator's and container's own.

    The JVM's heap and what Spark adds to it; without executors an executor's memory and cores as well, since workers
    are in the same pod then.
    """
    spark = settings.spark
    heap = _bytes("spark.driver.memory", spark.driver_memory)
    whole = heap + max(heap // 10, 384 * 2**20) + _PYTHON_BYTES
    if not spark.is_local:
        return math.ceil(whole / 2**20), spark.driver_cores
    return math.ceil((whole + _bytes("spark.executor.memory", spark.executor_memory)) / 2**20), str(
        spark.cores
    )


def _bytes(key: str, value: str) -> int:
    text = value.strip().lower()
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{key}={text!r} is no size; write it as 1g or 1024m")
    return int(found[1]) * _UNITS[found[2]]
