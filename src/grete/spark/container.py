"""A container: one Spark application over the SSPs of its tasks.

Run as `python -m grete.spark.container` by the process launcher, or called by the thread launcher. What happens to it
from outside is in `grete.container.main_loop`; what it does for one assignment is in `job_run`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path

from grete.container.assignment import Assignment
from grete.container.control import Control, Ended
from grete.container.main_loop import ContainerMainLoop, OnBatch, OnState, enter
from grete.container.own_process import in_its_place, stop_on_signals
from grete.container.process_state import ProcessState
from grete.environment import CONTAINER_ID
from grete.errors import GreteError, MissingExtra
from grete.exit_report import run_and_report
from grete.model.ending import ContainerEnd
from grete.spark.session.versions import check_installed
from grete.spark.session.worker_sockets import remove_folder
from grete.text_logs import log_as, log_to_stderr
from grete.wire.container_protocol import ContainerEnvironment


def run_container(
    environment: Mapping[str, str], stop: threading.Event, on_state: OnState = lambda state: None
) -> ContainerEnd:
    """Run the container that the environment names until its end; returns the exit code, with what it stands for.

    See `grete.model.ending.ExitCode`. Never raises a GreteError.
    """
    given = ContainerEnvironment.of(environment)
    home, own_process, kept = given.home, not given.is_thread, ProcessState()

    def work(assignment: Assignment, control: Control, on_batch: OnBatch) -> Ended:
        with in_its_place(assignment, home, own_process=own_process):
            return _work(assignment, home, control, on_batch, kept)

    with ExitStack() as held:
        held.callback(kept.close)

        def begin(assignment: Assignment) -> None:
            if assignment.settings.job.is_pipeline:
                held.enter_context(_session_ahead(assignment, home if own_process else None))

        return ContainerMainLoop(environment, stop, work, on_state, begin).run()


def _session_ahead(assignment: Assignment, home: Path | None) -> AbstractContextManager[None]:
    """See `session_ahead` there. The JVM works in the container's folder, which is entered with `home`.

    What goes wrong here does so again when the container works, and is an error there.
    """
    with suppress(GreteError, ModuleNotFoundError, OSError):
        check_installed(assignment.settings)
        if home is not None:
            enter(assignment, home)
        from grete.spark.session.container_session import session_ahead

        return session_ahead(assignment)
    return nullcontext()


def _work(
    assignment: Assignment, home: Path, control: Control, on_batch: OnBatch, kept: ProcessState
) -> Ended:
    check_installed(assignment.settings)
    # not before now: a container without pyspark has to be able to say so
    try:
        from grete.container.standby import follow
        from grete.container.warm_up import warm_up
        from grete.spark.job_run import open_spark, run_job
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "spark") from error
    if assignment.warms_up:
        return warm_up(assignment, home, kept, control, lambda: open_spark(assignment, home))
    if assignment.is_standby:
        control.on_at_work()
        return follow(assignment, home, control)
    return run_job(
        assignment,
        home,
        control,
        on_batch=on_batch,
        on_at_work=control.on_at_work,
        on_progress=control.on_progress,
        on_outputs=control.on_outputs,
        kept=kept,
    )


def main() -> int:
    """The process launcher's entry."""
    log_to_stderr(os.environ.get("GRETE_LOG_LEVEL", "INFO"))
    log_as(container=os.environ.get(CONTAINER_ID, ""))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        return run_container(os.environ, stop_on_signals())
    finally:
        remove_folder()  # who runs us ends the process without its exit handlers


if __name__ == "__main__":
    run_and_report(main)
