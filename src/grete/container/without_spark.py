"""A container with everything but Spark: for tasks while they are written, and for tests of what surrounds them.

Run as `python -m grete.container.without_spark`, with the variables that a launcher gives. Its shares run one after
another in this process. Pipelines cannot run so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from grete.clock import SystemClock
from grete.container.assignment import Assignment
from grete.container.control import Control, Ended
from grete.container.epochs import run_epoch
from grete.container.local_shares import LocalEngine
from grete.container.main_loop import ContainerMainLoop, OnBatch, OnState
from grete.container.own_process import in_its_place, stop_on_signals
from grete.container.process_state import ProcessState
from grete.container.resources import open_resources
from grete.container.standby import follow
from grete.container.warm_up import warm_up
from grete.environment import CONTAINER_ID
from grete.exit_report import run_and_report
from grete.model.ending import ContainerEnd
from grete.text_logs import log_as, log_to_stderr
from grete.wire.container_protocol import ContainerEnvironment


def run_container(
    environment: Mapping[str, str], stop: threading.Event, on_state: OnState = lambda state: None
) -> ContainerEnd:
    """As `grete.spark.container.run_container`, without Spark."""
    given = ContainerEnvironment.of(environment)
    home, own_process, kept = given.home, not given.is_thread, ProcessState()

    def work(assignment: Assignment, control: Control, on_batch: OnBatch) -> Ended:
        with in_its_place(assignment, home, own_process=own_process):
            if assignment.warms_up:
                return warm_up(assignment, home, kept, control)
            if assignment.is_standby:
                control.on_at_work()
                return follow(assignment, home, control)
            return _process(assignment, home, control, on_batch, kept)

    with closing(kept):
        return ContainerMainLoop(environment, stop, work, on_state).run()


def _process(
    assignment: Assignment, home: Path, control: Control, on_batch: OnBatch, kept: ProcessState
) -> Ended:
    clock = SystemClock()
    with open_resources(assignment, home, clock, kept) as (started, publishers):
        control.on_at_work()
        engine = LocalEngine(clock, assignment.settings.spark.cores)
        return run_epoch(started, engine, control, clock, on_batch, publishers, kept)


def main() -> int:
    """Be the container that the environment names."""
    log_to_stderr(os.environ.get("GRETE_LOG_LEVEL", "INFO"))
    log_as(container=os.environ.get(CONTAINER_ID, ""))
    return run_container(os.environ, stop_on_signals())


if __name__ == "__main__":
    run_and_report(main)
