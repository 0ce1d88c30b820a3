"""A container: one Spark application that runs one streaming query over the SSPs of its tasks.

It is told what to do over HTTP by its coordinator (never by reading the coordinator stream), writes its locality
there, raises its fence, decides whether to continue its lineage, and processes until drained, stopped or fenced.
Run as `python -m grete.spark.container` by the process launcher, or called by the thread launcher.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from grete.errors import Fenced, GreteError, JobError, ProcessingError
from grete.failpoints import failpoint
from grete.http_client import JobCoordinatorClient
from grete.spark.assignment import Assignment, parse_assignment
from grete.spark.heartbeat import ContainerProgress, Heartbeat
from grete.spark.job_run import JobRun
from grete.spark.locality import write_locality
from grete.spark.stream_task_batch import BatchOutcome

_log = logging.getLogger("grete.container")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_POISON = 3
EXIT_FENCED = 5


def run_container(environment: Mapping[str, str], stop: threading.Event) -> int:
    """Run the container that the environment names until its end; returns the exit code.

    0: drained or stopped. 3: a message could not be processed. 5: fenced, another incarnation has taken over.
    Other grete errors have their own code, anything from Spark is 1. Never raises a GreteError.
    """
    client = JobCoordinatorClient(
        environment["COORDINATOR_URL"], Path(environment["GRETE_COORDINATOR_TOKEN_FILE"])
    )
    container_id = environment["SAMZA_CONTAINER_ID"]
    epoch = int(environment["GRETE_CONTAINER_EPOCH"])
    heartbeat = Heartbeat(
        client, container_id, epoch, on_stop=stop.set, on_fenced=_end_process_when_fenced(environment)
    )
    progress = ContainerProgress()
    try:
        assignment = parse_assignment(client.container(container_id))
        if assignment.epoch != epoch:
            raise Fenced(assignment.fence.scope, epoch=epoch, seen=assignment.epoch)
        progress = _process(assignment, environment, heartbeat, stop)
        return EXIT_OK
    except GreteError as error:
        _log.error("container %s: %s", container_id, error)
        progress = ContainerProgress("failed", message=str(error)[:2000])
        return EXIT_POISON if isinstance(error, ProcessingError) else error.exit_code
    finally:
        heartbeat.report(progress)
        heartbeat.close()


def _process(
    assignment: Assignment, environment: Mapping[str, str], heartbeat: Heartbeat, stop: threading.Event
) -> ContainerProgress:
    home = Path(environment.get("GRETE_HOME", ".grete")).resolve()
    write_locality(assignment, json.loads(environment["SAMZA_COORDINATOR_SYSTEM_CONFIG"]), home)
    failpoint("container.locality-written")
    progress = ContainerProgress("running")
    run = JobRun(assignment, home, until_drained=environment.get("GRETE_UNTIL_DRAINED") == "1", stop=stop)

    def on_outcome(batch_id: int, outcome: BatchOutcome) -> None:
        nonlocal progress
        progress = ContainerProgress("running", batch_id, progress.records + outcome.records)
        heartbeat.report(progress)

    run.on_outcome = on_outcome
    try:
        heartbeat.report(progress)
        run.execute()
    finally:
        run.close()
    return ContainerProgress("stopped" if stop.is_set() else "drained", progress.batch_id, progress.records)


def _end_process_when_fenced(environment: Mapping[str, str]) -> Callable[[], None]:
    """What to do when the coordinator knows a newer incarnation: end at once, whatever Spark is doing."""

    def end() -> None:
        if environment.get("GRETE_CONTAINER_IN_PROCESS") != "1":
            os._exit(EXIT_FENCED)

    return end


def _stop_when_orphaned(stop: threading.Event) -> None:
    """Our standard input is a pipe from the launcher; its end means that the launcher is gone."""

    def watch() -> None:
        sys.stdin.buffer.read()
        _log.warning("the launcher is gone: stopping at the batch boundary")
        stop.set()

    threading.Thread(target=watch, name="orphan-watch", daemon=True).start()


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
    _stop_when_orphaned(stop)
    try:
        return run_container(os.environ, stop)
    except JobError as error:
        _log.error("%s", error)
        return EXIT_FAILED


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Spark's shutdown hooks may wait for a JVM that is gone; everything of ours is durable by now.
    os._exit(code)
