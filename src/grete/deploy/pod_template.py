"""What an operator adds to the pod: `spark.kubernetes.driver.podTemplateFile`, read where the job is deployed.

Nodes, tolerations, volumes, a security context, init containers, annotations: whatever a pod may have and grete has
no word for. As with Spark, what grete sets itself stays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from grete.config.settings.spark import SparkSettings
from grete.errors import ConfigError

_LISTS = ("volumes", "volumeMounts", "env", "ports")
"""Whose elements are added to those of grete's; one of the same name is grete's."""


def with_template(pod: dict[str, Any], spark: SparkSettings) -> dict[str, Any]:
    """A pod's metadata and spec on top of those of the template.

    The template's container with `spark.kubernetes.driver.podTemplateContainerName`, else its first, is ours.

    Raises:
        ConfigError: the file cannot be read, or is no pod.
    """
    file = spark.pod_template
    if file is None:
        return pod
    try:
        return _over_pod(_read(file), pod, spark.pod_template_container)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"spark.kubernetes.driver.podTemplateFile={file}: {error}") from error


def _over_pod(template: dict[str, Any], pod: dict[str, Any], name: str | None) -> dict[str, Any]:
    given = _object(template.get("spec"), "spec")
    [container] = pod["spec"]["containers"]
    theirs = _objects(given.get("containers"), "containers")
    places = [number for number, one in enumerate(theirs) if name in (None, one.get("name"))]
    if theirs and not places:
        raise ValueError(f"no container has the name {name!r}")
    base = theirs.pop(places[0]) if places else {}
    spec = {**_over(given, pod["spec"]), "containers": [_over(base, container), *theirs]}
    return {"metadata": _over(_object(template.get("metadata"), "metadata"), pod["metadata"]), "spec": spec}


def _over(base: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Ours on top; of objects within, and of lists with names, each entry. A security context is theirs."""
    made = {**base, **ours}
    for key in base.keys() & ours.keys():
        if key == "securityContext":
            made[key] = _object(base[key], key)
        elif key in _LISTS:
            known = {one["name"] for one in ours[key]}
            more = [one for one in _objects(base[key], key) if one.get("name") not in known]
            made[key] = [*ours[key], *more]
        elif isinstance(ours[key], dict):
            made[key] = _over(_object(base[key], key), ours[key])
    return made


def _read(file: Path) -> dict[str, Any]:
    found = yaml.safe_load(file.read_text("utf-8"))
    if not isinstance(found, dict) or found.get("kind", "Pod") != "Pod":
        raise ValueError("it is not the YAML of one Pod")
    return found


def _object(found: Any, name: str) -> dict[str, Any]:
    """What stands there, nothing where it is empty; what else a pod has, the API server judges."""
    if not isinstance(found, dict | None):
        raise ValueError(f"{name} is no object")
    return found or {}


def _objects(found: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(found, list | None):
        raise ValueError(f"{name} is no list")
    return [_object(one, f"an element of {name}") for one in found or []]
