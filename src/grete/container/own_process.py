"""A container and the process that it is in, with Spark or without."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grete.container.assignment import Assignment
from grete.container.main_loop import enter
from grete.diagnostics.observe import observed
from grete.diagnostics.streams import container_name


@contextmanager
def in_its_place(assignment: Assignment, home: Path, *, own_process: bool) -> Iterator[None]:
    """Work in the container's folder, with logs and diagnostics where the configuration wants them, within the block.

    A thread of a coordinator stays in the coordinator's folder.

    Raises:
        ConfigError: see `enter`.
    """
    if own_process:
        enter(assignment, home)
    name = container_name(assignment.container_id)
    with observed(assignment.settings, assignment.job, name, home, own_process=own_process):
        yield


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    return stop
