"""A container's exit report: `{"epoch": n, "code": n, "failure": {...} | null}` in a file that its launcher names.

The operating system reports a code to the parent only, and nothing of the cause; a coordinator that adopted the
container gets neither. One that was killed leaves no report.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import orjson

from grete.environment import CONTAINER_EPOCH, EXIT_FILE
from grete.model.ending import ContainerEnd, ExitCode, as_document, failure_of, from_document
from grete.private_files import replace_file

_log = logging.getLogger("grete.container")


def write_report(end: int, environment: Mapping[str, str] = os.environ) -> None:
    """Write it, if the environment names a file."""
    path = environment.get(EXIT_FILE)
    if not path:
        return
    failure = end.failure if isinstance(end, ContainerEnd) else None
    document = {"epoch": int(environment[CONTAINER_EPOCH]), "code": int(end), "failure": as_document(failure)}
    report, file = orjson.dumps(document), Path(path)
    try:
        replace_file(file, report)
    except OSError:
        if not file.exists():
            raise
        file.write_bytes(report)  # it is mounted, as the one from which Kubernetes takes a pod's last words


def read_report(path: Path, epoch: int) -> ContainerEnd | None:
    """The report of the incarnation with this epoch; None without one."""
    try:
        return parse_report(path.read_bytes(), epoch)
    except OSError:
        return None


def parse_report(text: str | bytes, epoch: int) -> ContainerEnd | None:
    """As `read_report`, of what stands in the file."""
    try:
        document = orjson.loads(text)
        if document["epoch"] != epoch:
            return None
        return ContainerEnd(int(document["code"]), from_document(document.get("failure")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def run_and_report(run: Callable[[], int]) -> NoReturn:
    """Run a container that is this process, write its exit report, and end the process."""
    try:
        code = run()
    except Exception as error:  # noqa: BLE001 - the process ends here, and has to say of what
        _log.exception("the container crashed")
        code = ContainerEnd(ExitCode.FAILED, failure_of(error))
    write_report(code)
    sys.stdout.flush()
    sys.stderr.flush()
    # Spark's shutdown hooks may wait for a JVM that is gone; everything of ours is durable by now.
    os._exit(code)
