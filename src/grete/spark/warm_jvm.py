"""A JVM of Spark's that outlives the containers that use it one after the other: `grete dev` restarts at each save.

    python -m grete.spark.warm_jvm PLACE

Reads the job's configuration as JSON from standard input, starts the JVM that a container of it would start, writes
into the file PLACE where it is and what it takes for a password, and ends with the JVM when standard input ends.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from grete.config.settings import Settings
from grete.private_files import replace_file
from grete.spark.jvm import address_of, gateway_of_process
from grete.spark.session.container_session import connected_system
from grete.spark.session.driver import jvm_started

_END_S = 8.0


def main(arguments: Sequence[str]) -> int:
    """Until standard input ends, or the JVM does."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    [place] = map(Path, arguments)
    given = Settings.of(json.loads(sys.stdin.readline()))
    named = {*given.task.all_inputs, *given.task.outputs}
    jvm_started(f"grete {given.job.id}", given, connected_system(given, (one.system for one in named)))
    gateway = gateway_of_process()
    port, token = address_of(gateway)
    replace_file(place, json.dumps({"pid": gateway.proc.pid, "port": port, "token": token}).encode())
    threading.Thread(target=_end_with, args=(gateway.proc, place), daemon=True).start()
    sys.stdin.read()
    place.unlink(missing_ok=True)
    gateway.proc.stdin.close()  # for which it waits
    try:
        gateway.proc.wait(_END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
    return 0


def _end_with(jvm: object, place: Path) -> None:
    """One that has ended, for want of memory or by a kill, is used no more."""
    jvm.wait()  # type: ignore[attr-defined]
    place.unlink(missing_ok=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
