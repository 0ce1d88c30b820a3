"""Fencing a container off, and informing the readers of its outputs."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.output_commits import fenced_off
from grete.config.settings import Settings
from grete.errors import GreteError
from grete.model.fence import Fence, container_fence
from grete.model.ids import ContainerId, JobId
from grete.systems.base import System
from grete.systems.commit_group import CommitGroup

_log = logging.getLogger("grete.coordinator")


def fence_off(
    job: JobId, container: ContainerId, epoch: int, settings: Settings, systems: Mapping[str, System]
) -> None:
    """Refuse every epoch of the container below this one, in every system: another configuration may have committed
    elsewhere.

    Raises:
        Fenced: the container is above this epoch already.
        GreteError: a system does not answer.
    """
    fence = container_fence(job, container, epoch)
    for system in systems.values():
        system.raise_fence([fence])
        if settings.job.is_pipeline and system.capabilities.kafka_topics:
            _inform_readers(system, fence, job, container, settings.job.ssp_grouper)


def _inform_readers(system: System, fence: Fence, job: JobId, container: ContainerId, grouper: str) -> None:
    """Let readers get past what the container has written to Kafka and will never commit.

    Without that they wait until the container commits again: no reason for the coordinator to end.
    """
    said = fenced_off(job, container, fence.epoch, grouper)
    try:
        system.commit(CommitGroup([fence], [], checkpoint_log_name(job), [said]))
    except GreteError as error:
        _log.warning(
            "readers of container %s's outputs do not know that it was fenced off: %s", container, error
        )
