"""A job with everything but Spark: for tests of what surrounds it, in seconds and without Java.

    python -m grete.testing.sparkless --config FILE [--until-drained]
    python -m grete.testing.sparkless --job NAME [--until-drained]

Coordinator, launcher, processes, heartbeats, job model, fences, tasks, stores, commits and standby containers are the
real ones, and so is the loop of shares, which run one after another here, not in Spark's tasks.
DataFrame pipelines cannot run so.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import Assignment
from grete.container.control import Control, Ended
from grete.container.epochs import run_epoch
from grete.container.kept import Kept
from grete.container.main_loop import ContainerMainLoop, OnBatch, OnState, enter
from grete.container.opened import opened
from grete.container.standby import follow
from grete.diagnostics.observe import observed
from grete.diagnostics.streams import container_name
from grete.errors import GreteError
from grete.exit_report import run_and_report
from grete.model.ending import ContainerEnd
from grete.model.ids import JobId
from grete.testing.job_container import LocalEngine
from grete.text_logs import log_to_stderr
from grete.wire.container_protocol import ContainerEnvironment

COMMAND = (sys.executable, "-P", "-m", "grete.testing.sparkless")
"""The container's command, for `RunOptions.container_command`."""


def run_container(
    environment: Mapping[str, str], stop: threading.Event, on_state: OnState = lambda state: None
) -> ContainerEnd:
    """As `grete.spark.container.run_container`, without Spark."""
    given = ContainerEnvironment.of(environment)
    home, own_process, kept = given.home, not given.is_thread, Kept()

    def work(assignment: Assignment, control: Control, on_batch: OnBatch) -> Ended:
        if own_process:
            enter(assignment, home)
        name = container_name(assignment.container_id)
        with observed(Settings.of(assignment.config), assignment.job, name, home, own_process=own_process):
            if assignment.is_standby:
                control.on_at_work()
                return follow(assignment, home, control)
            return _process(assignment, home, control, on_batch, kept)

    with closing(kept):
        return ContainerMainLoop(environment, stop, work, on_state).run()


def _process(assignment: Assignment, home: Path, control: Control, on_batch: OnBatch, kept: Kept) -> Ended:
    clock = SystemClock()
    with opened(assignment, home, clock, kept) as (started, publisher):
        control.on_at_work()
        engine = LocalEngine(clock, Settings.of(assignment.config).spark.cores)
        return run_epoch(started, engine, control, clock, on_batch, publisher, kept)


def main(arguments: Sequence[str]) -> int:
    """Coordinate a job when it is named, else be a container of one."""
    log_to_stderr(os.environ.get("GRETE_LOG_LEVEL", "INFO"))
    if arguments:
        return _coordinate(arguments)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    return run_container(os.environ, stop)


def _coordinate(arguments: Sequence[str]) -> int:
    from grete.assembly import RunOptions, run_job  # containers, of which a test may start many, do without

    parser = argparse.ArgumentParser(prog="python -m grete.testing.sparkless")
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--job", type=JobId.parse)
    parser.add_argument("--until-drained", action="store_true")
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--dev", action="store_true")
    options = parser.parse_args(arguments)
    asked = RunOptions(
        config_paths=options.config,
        job=options.job,
        until_drained=options.until_drained,
        stands_by=options.standby,
        container_command=COMMAND,
        dev=options.dev,
    )
    try:
        return run_job(asked)
    except GreteError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    if not sys.argv[1:]:
        run_and_report(lambda: main(()))
    sys.exit(main(sys.argv[1:]))
