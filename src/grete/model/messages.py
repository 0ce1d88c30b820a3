"""A coordinator stream message as a value (Samza's CoordinatorStreamMessage)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

SET_CONFIG = "set-config"
SET_CHANGELOG = "set-changelog"
SET_CHECKPOINT = "set-checkpoint"
SET_CONTAINER_HOST = "set-container-host-assignment"
SET_TASK_CONTAINER = "set-task-container-assignment"
SET_TASK_MODE = "set-task-mode-assignment"
SET_TASK_PARTITION = "set-task-partition-assignment"
SET_EXECUTION_ENV_CONTAINER = "set-execution-env-container-id-mapping"
SET_JOB_COORDINATOR_METADATA = "set-job-coordinator-metadata"
SET_MIGRATION_INFO = "set-migration-info"

VALUE_FIELDS: dict[str, str] = {
    SET_CONFIG: "value",
    SET_CHANGELOG: "Partition",
    SET_CONTAINER_HOST: "host",
    SET_TASK_CONTAINER: "containerId",
    SET_TASK_MODE: "taskMode",
    SET_TASK_PARTITION: "taskNames",
    SET_EXECUTION_ENV_CONTAINER: "execution-env-container-id",
    SET_JOB_COORDINATOR_METADATA: "meta-key",
}
"""Where the one value of a message type stands in its `values`."""


@dataclass(frozen=True, slots=True)
class MessageOrigin:
    """Author, time and place of a message; `host` is an address, as Samza writes it."""

    source: str
    host: str
    username: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class CoordinatorMessage:
    """Key `[version, type, key]` and value map. `values` None is a tombstone.

    Equal when key, type, version and values are (S2-18): who wrote it and when does not matter.
    """

    type: str
    key: str
    values: Mapping[str, str] | None
    origin: MessageOrigin | None = None
    version: Any = 1
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.values is not None:
            object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    @property
    def is_delete(self) -> bool:
        """Whether it is a tombstone."""
        return self.values is None

    def _identity(self) -> tuple[Any, ...]:
        values = None if self.values is None else tuple(sorted(self.values.items()))
        return (str(self.version), self.type, self.key, values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoordinatorMessage) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())
