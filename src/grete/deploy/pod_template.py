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
    template = _read(file)
    given = template.get("spec") or {}
    [container], name = pod["spec"]["containers"], spark.pod_template_container
    theirs = list(given.get("containers") or [])
    places = [number for number, one in enumerate(theirs) if name in (None, one.get("name"))]
    if theirs and not places:
        raise ConfigError(f"{file}: no container has the name {name!r}")
    base = theirs.pop(places[0]) if places else {}
    spec = {**_over(given, pod["spec"]), "containers": [_over(base, container), *theirs]}
    return {"metadata": _over(template.get("metadata") or {}, pod["metadata"]), "spec": spec}


def _over(base: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Ours on top; of objects within, and of lists with names, each entry. A security context is theirs."""
    made = {**base, **ours}
    for key in base.keys() & ours.keys():
        if key == "securityContext":
            made[key] = base[key]
        elif key in _LISTS:
            known = {one["name"] for one in ours[key]}
            made[key] = [*ours[key], *(one for one in base[key] if one.get("name") not in known)]
        elif isinstance(ours[key], dict):
            made[key] = _over(base[key], ours[key])
    return made


def _read(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"spark.kubernetes.driver.podTemplateFile={file}: {error}") from error
    if not isinstance(found, dict) or found.get("kind", "Pod") != "Pod":
        raise ConfigError(f"spark.kubernetes.driver.podTemplateFile={file}: it is not the YAML of one Pod")
    return found
