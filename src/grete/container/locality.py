"""The container writes where it runs into the coordinator stream (S1-18)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from grete.container.assignment import Assignment


def write_locality(assignment: Assignment, coordinator_config: Mapping[str, str], home: Path) -> None:
    """Append set-container-host-assignment for this container."""
    from grete.metadata.access import open_coordinator_stream
    from grete.metadata.locality import LocalityManager

    with open_coordinator_stream(coordinator_config, assignment.job, home) as stream:
        LocalityManager(stream).write_locality(assignment.container_id, socket.gethostname())
