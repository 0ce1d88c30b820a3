"""What a container does before it has tasks: everything that does not need them, so that theirs is a short wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grete.clock import SystemClock
from grete.container.assignment import Assignment
from grete.container.control import Ended, Interruption
from grete.container.process_state import ProcessState
from grete.tasks.application import check_application

_LOOK_S = 1.0


def warm_up(
    assignment: Assignment,
    home: Path,
    kept: ProcessState,
    control: Interruption,
    open_engine: Callable[[], None] = lambda: None,
) -> Ended:
    """Load the application, connect to the system of the commits, open the engine; then wait for a directive.

    Nothing is written, and no fence is raised.

    Raises:
        ConfigError, ApplicationError: the application cannot be loaded.
        GreteError: the engine cannot be opened.
    """
    settings = assignment.settings
    check_application(settings)
    with kept.system.lent(settings, settings.task.commit_system, home, SystemClock()):
        pass  # it stays open for the container's work
    open_engine()
    while not control.is_set():
        control.wait(_LOOK_S)
    return Ended.INTERRUPTED
