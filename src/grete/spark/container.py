"""A container: one Spark application that runs one streaming query over the SSPs of its tasks.

Run as `python -m grete.spark.container` by the process launcher, or called by the thread launcher. What happens to it
from outside is in `container_life`; what it does for one assignment is in `job_run`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from grete.diagnostics.observe import observed
from grete.diagnostics.streams import container_name
from grete.errors import JobError
from grete.spark.assignment import Assignment
from grete.spark.container_life import ContainerLife, OnBatch, leave_word
from grete.spark.control import Control, Ended
from grete.spark.job_run import JobRun
from grete.spark.standby import follow

_log = logging.getLogger("grete.container")
EXIT_FAILED = 1


def run_container(environment: Mapping[str, str], stop: threading.Event) -> int:
    """Run the container that the environment names until its end; returns the exit code.

    0: drained. 3: a message could not be processed. 5: fenced, another incarnation has taken over. 6: asked to stop.
    7: an input does not hold the offsets that are to be read next.
    Other grete errors have their own code, anything from Spark is 1. Never raises a GreteError.
    """
    home = Path(environment.get("GRETE_HOME", ".grete")).resolve()
    own_process = environment.get("GRETE_CONTAINER_IN_PROCESS") != "1"

    def work(assignment: Assignment, control: Control, on_batch: OnBatch) -> Ended:
        name = container_name(assignment.container_id)
        with observed(assignment.config, assignment.job, name, home, own_process=own_process):
            if assignment.is_standby:
                return follow(assignment, home, control)
            run = JobRun(assignment, home, stop=control)
            run.on_outcome = on_batch
            try:
                return run.execute()
            finally:
                run.close()

    return ContainerLife(environment, stop, work).run()


def main() -> int:
    """The process launcher's entry."""
    logging.basicConfig(
        level=os.environ.get("GRETE_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        return run_container(os.environ, stop)
    except JobError as error:
        _log.error("%s", error)
        return EXIT_FAILED


if __name__ == "__main__":
    code = main()
    leave_word(code)
    sys.stdout.flush()
    sys.stderr.flush()
    # Spark's shutdown hooks may wait for a JVM that is gone; everything of ours is durable by now.
    os._exit(code)
