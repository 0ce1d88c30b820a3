"""The pods of a deployment on Kubernetes: its coordinator's, and the one by which each container is started."""

from __future__ import annotations

import math
import re

from grete.config.settings import Settings
from grete.config.settings.job import JobSettings
from grete.deploy.deployment import Deployment
from grete.deploy.launch_variables import launch_variables
from grete.deploy.objects import DEPLOYMENT_LABEL, JOB_LABEL, Manifest
from grete.deploy.places import CONFIG_FILE, EPOCH_ID
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
PORT = "https"
"""The name of the port at which other machines reach a coordinator."""


def secret_name(deployment: Deployment) -> str:
    """The Secret of this deployment."""
    return f"{deployment.name}-{deployment.id}"


def labels(deployment: Deployment) -> dict[str, str]:
    """Of everything that is made for the job."""
    return {"app.kubernetes.io/name": "grete", JOB_LABEL: deployment.name}


def coordinator_labels(deployment: Deployment) -> dict[str, str]:
    """Of the pod with the coordinator."""
    return {**labels(deployment), _COMPONENT: _COORDINATOR}


def coordinator_pod(deployment: Deployment) -> Manifest:
    """The pod of a StatefulSet, metadata and spec."""
    port = public_port(deployment)
    scraped = {} if port is None else {"annotations": _scraped_at(port)}
    pod = {
        "metadata": {
            "labels": {**coordinator_labels(deployment), DEPLOYMENT_LABEL: deployment.id},
            **scraped,
        },
        "spec": {
            **_pod_spec(deployment),
            "restartPolicy": "Always",
            "containers": [_coordinator_container(deployment)],
            "volumes": [
                {"name": "config", "secret": {"secretName": secret_name(deployment)}},
                {"name": "home", "emptyDir": {}},
            ],
        },
    }
    return with_template(pod, deployment.settings.spark)


def container_pod(deployment: Deployment, namespace: str) -> Manifest:
    """The pod of a container, but for its name, its number and what it is told (`deploy.container_pods`).

    Pods of one job are on several hosts where there are several. One whose host is lost is given up soon.
    """
    own = {**labels(deployment), _COMPONENT: _CONTAINER}
    pod = {
        "metadata": {"namespace": namespace, "labels": {**own, DEPLOYMENT_LABEL: deployment.id}},
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
    apart = {"labelSelector": {"matchLabels": own}, "topologyKey": "kubernetes.io/hostname"}
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


def public_port(deployment: Deployment) -> int | None:
    """The port at which other pods reach the coordinator over TLS, None where they do not."""
    settings = deployment.settings.coordinator
    return settings.http_port if settings.is_public else None


def _scraped_at(port: int) -> dict[str, str]:
    """The annotations by which Prometheus' usual configuration finds a pod's metrics."""
    found = {"scrape": "true", "scheme": "https", "port": str(port), "path": "/metrics"}
    return {f"prometheus.io/{name}": value for name, value in found.items()}


def _served(deployment: Deployment) -> Manifest:
    """The pod is ready when its coordinator answers, which is when it leads."""
    port = public_port(deployment)
    if port is None:
        return {}
    probe = {"httpGet": {"path": "/healthz", "port": PORT, "scheme": "HTTPS"}, "periodSeconds": 5}
    return {"ports": [{"name": PORT, "containerPort": port}], "readinessProbe": probe}


def _coordinator_container(deployment: Deployment) -> Manifest:
    """The container of the pod that Kubernetes keeps; with the job's container and Spark's driver in it, or alone."""
    settings = deployment.settings
    program = [*_interpreter(settings.job), "-m", "grete.deploy.attempt", "--manager", "kubernetes"]
    memory, cores = _driver_resources(settings)
    if deployment.has_managed_containers:
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
