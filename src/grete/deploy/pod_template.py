"""What an operator adds to the pod: `spark.kubernetes.driver.podTemplateFile`, read where the job is deployed.

Nodes, tolerations, volumes, a security context, init containers, annotations: whatever a pod may have and grete has
no word for. As with Spark, what grete sets itself stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    if spark.pod_template is None:
        return pod
    with _named(spark.pod_template):
        template = _read(spark.pod_template)
        [container] = pod["spec"]["containers"]
        base, others = _containers(template, spark.pod_template_container)
        over = _over(_object(template.get("spec"), "spec"), pod["spec"])
        spec = {**over, "containers": [_over(base, container), *others]}
        return {
            "metadata": _over(_object(template.get("metadata"), "metadata"), pod["metadata"]),
            "spec": spec,
        }


def variables_of_template(spark: SparkSettings) -> frozenset[str]:
    """The environment variables that the template gives our container, as from a Secret of the cluster's.

    Raises:
        ConfigError: as `with_template`.
    """
    if spark.pod_template is None:
        return frozenset()
    with _named(spark.pod_template):
        ours, _ = _containers(_read(spark.pod_template), spark.pod_template_container)
        return frozenset(str(one.get("name")) for one in _objects(ours.get("env"), "env"))


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"spark.kubernetes.driver.podTemplateFile={file}: {error}") from error


def _containers(template: dict[str, Any], name: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The template's container that is ours, empty where it has none, and the others."""
    theirs = _objects(_object(template.get("spec"), "spec").get("containers"), "containers")
    places = [number for number, one in enumerate(theirs) if name in (None, one.get("name"))]
    if theirs and not places:
        raise ValueError(f"no container has the name {name!r}")
    return theirs.pop(places[0]) if places else {}, theirs


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
