"""JobCoordinatorMetadata at work (SAMZA-2609): generated, compared with the last attempt's, counted and stored.

A *deployment* is a submit; an *attempt* is one incarnation of the coordinator inside it. Gauges show what changed
with the current attempt: they start at 0 with every attempt, since a gauge that stays at 1 for ever says nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from grete.errors import Fenced, GreteError, IllegalStateError, LogError, WireError
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.job import JobModel
from grete.model.messages import SET_JOB_COORDINATOR_METADATA
from grete.model.metadata import JobCoordinatorMetadata
from grete.wire import job_coordinator_metadata as codec

STARTS = "grete.coordinator.starts"
"""The logger of one line a start: whether it is a deployment, a change or an attempt (S0-25). Shown by default."""
_log = logging.getLogger(STARTS)
GROUP = "job-coordinator-manager"
CLUSTER_TYPES = ("YARN", "NON_YARN")


class MetadataStoreError(GreteError):
    """The metadata could not be written; the cause is kept."""


@dataclass(slots=True)
class MetadataMetrics:
    """Counter and gauges of group `job-coordinator-manager`, all there from the start (S0-22)."""

    applicationAttemptCount: int = 0
    jobModelChanged: int = 0
    configChanged: int = 0
    newDeployment: int = 0


class JobCoordinatorMetadataManager:
    """Generates, compares and stores the metadata of one cluster type."""

    def __init__(self, stream: CoordinatorStream, cluster_type: str) -> None:
        if cluster_type is None:
            raise IllegalStateError("Cluster type cannot be null")
        if cluster_type not in CLUSTER_TYPES:
            raise IllegalStateError(f"cluster type {cluster_type!r} is none of {', '.join(CLUSTER_TYPES)}")
        self._stream = stream
        self._cluster_type = cluster_type
        self.metrics = MetadataMetrics()

    def generate(
        self, model: JobModel, config: Mapping[str, str], environment: Mapping[str, str]
    ) -> JobCoordinatorMetadata:
        """The metadata of this attempt; the same inputs give the same ids.

        Raises:
            GreteError: the environment does not name the epoch id; the cause is kept.
        """
        try:
            epoch_id = codec.epoch_id(self._cluster_type, environment)
            return JobCoordinatorMetadata(epoch_id, codec.config_id(config), codec.job_model_id(model))
        except (KeyError, WireError, IllegalStateError) as error:
            _log.error("Failed to generate the metadata for the current attempt: %s", error)
            raise GreteError(
                f"Failed to generate the metadata for the current attempt due to {error}"
            ) from error

    def check_for_changes(self, new: JobCoordinatorMetadata, previous: JobCoordinatorMetadata | None) -> bool:
        """Whether anything changed; counts the first difference only, in the order epoch, model, config (S0-19)."""
        metrics = self.metrics
        change = codec.compare(new, previous)
        if change is None:
            metrics.applicationAttemptCount += 1
            _log.info("Job coordinator metadata is unchanged: %s", new)
            return False
        setattr(metrics, change, 1)
        _log.info("Job coordinator metadata changed from: %s to: %s", previous, new)
        return True

    def read(self) -> JobCoordinatorMetadata | None:
        """The last attempt's metadata; None when absent or unreadable, which counts as a new deployment."""
        text = self._stream.values(SET_JOB_COORDINATOR_METADATA).get(self._cluster_type)
        if text is None:
            return None
        try:
            return codec.decode(text.encode())
        except (WireError, IllegalStateError) as error:
            _log.error("the stored job coordinator metadata is unreadable: %s", error)
            return None

    def write(self, metadata: JobCoordinatorMetadata) -> None:
        """Store it under the cluster type.

        Raises:
            IllegalStateError: it is None.
            Fenced: another coordinator has taken over.
            MetadataStoreError: the stream refused; the cause is kept.
        """
        if metadata is None:
            raise IllegalStateError("Job coordinator metadata cannot be null")
        try:
            self._stream.put(
                SET_JOB_COORDINATOR_METADATA, {self._cluster_type: codec.encode(metadata).decode()}
            )
        except Fenced:
            raise  # no failure of the store: a coordinator that was paused and succeeded ends with this very word
        except LogError as error:
            raise MetadataStoreError(f"Failed to write the job coordinator metadata. {error}") from error
