"""What is read of objects of Kubernetes, checked as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from grete.errors import JobError


def milliseconds(when: datetime) -> int:
    """Since the epoch."""
    return int(when.timestamp() * 1000)


class Metadata(Struct, frozen=True, rename="camel"):
    """What every object has."""

    name: str
    uid: str
    resource_version: str
    creation_timestamp: datetime
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @property
    def created_ms(self) -> int:
        """When it was made."""
        return milliseconds(self.creation_timestamp)


class StateDetails(Struct, frozen=True, rename="camel"):
    """Of a container's state, whose name is the key."""

    started_at: datetime | None = None
    reason: str = ""


class ContainerStatus(Struct, frozen=True, rename="camel"):
    """Of a container of a pod; without a state it waits."""

    restart_count: int = 0
    state: dict[str, StateDetails] = {}


class PodStatus(Struct, frozen=True, rename="camel"):
    """Of a pod."""

    container_statuses: list[ContainerStatus] = []


class Spec(Struct, frozen=True, rename="camel"):
    """Of a pod."""

    node_name: str = ""


class Object(Struct, frozen=True):
    """A StatefulSet, a Secret or a pod, as far as deployments look at them."""

    metadata: Metadata
    spec: Spec = Spec()
    status: PodStatus = PodStatus()


def object_of(document: Mapping[str, Any]) -> Object:
    """Check and read it.

    Raises:
        JobError: it is none.
    """
    try:
        return msgspec.convert(document, Object)
    except msgspec.ValidationError as error:
        raise JobError(
            f"what was answered is no object of Kubernetes, {error}: look what stands before the API server"
        ) from error
