"""Objects of Kubernetes: what is read of them, checked as it comes, and by which labels they are found."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from grete.errors import JobError

Manifest = dict[str, Any]
"""An object as it is sent."""
JOB_LABEL, DEPLOYMENT_LABEL = "grete/job", "grete/deployment"
CONTAINER_LABEL = "grete/container"
"""Of the pod of a container: its number."""


def milliseconds(when: datetime) -> int:
    """Since the epoch."""
    return int(when.timestamp() * 1000)


class OwnerReference(Struct, frozen=True, rename="camel"):
    """The object that another one ends with."""

    api_version: str
    kind: str
    name: str
    uid: str


class Metadata(Struct, frozen=True, rename="camel"):
    """What every object has. One with a `deletion_timestamp` is about to end, within its period of grace."""

    name: str
    uid: str
    creation_timestamp: datetime
    resource_version: str = ""
    """Empty of what was only tried."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int = 0

    @property
    def created_ms(self) -> int:
        """When it was made."""
        return milliseconds(self.creation_timestamp)


class StateDetails(Struct, frozen=True, rename="camel"):
    """Of a container's state, whose name is the key."""

    started_at: datetime | None = None
    reason: str = ""
    message: str = ""
    exit_code: int = 0


class ContainerStatus(Struct, frozen=True, rename="camel"):
    """Of a container of a pod; without a state it waits."""

    name: str = ""
    restart_count: int = 0
    state: dict[str, StateDetails] = {}


class Condition(Struct, frozen=True, rename="camel"):
    """Of a pod."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(Struct, frozen=True, rename="camel"):
    """Of a pod; with a reason where its node has ended it, or does not take it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    container_statuses: list[ContainerStatus] = []
    conditions: list[Condition] = []


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
