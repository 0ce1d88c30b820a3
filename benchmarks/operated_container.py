"""A container without Spark for `benchmarks.operate`: it lives its real life and commits a record a task and turn."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

from grete.clock import SystemClock
from grete.container.assignment import Assignment
from grete.container.control import Control, Ended
from grete.container.main_loop import ContainerMainLoop, OnBatch
from grete.exit_report import write_report
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack
from grete.tasks.commit.base import BatchOutcome

_TURN_S = 0.01


def main() -> int:
    """Run until stopped."""
    system = LocalSystem(Path(os.environ["GRETE_HOME"]) / "local", SystemClock())

    def work(assignment: Assignment, control: Control, on_batch: OnBatch) -> Ended:
        system.raise_fence([assignment.fence])
        size, batch = assignment.settings.raw.get("task.max.records.per.batch", ""), 0
        said_by = [assignment.container_id, assignment.epoch, size]
        while not control.is_set():
            said = [
                json.dumps([task.name, *said_by, time.time(), assignment.serial]).encode()
                for task in assignment.tasks
            ]
            segment = SegmentWrite("said", 0, len(said), pack([b""] * len(said), said, [0] * len(said)))
            system.commit(CommitGroup([assignment.fence], [segment], "", []))
            batch += 1
            on_batch(batch, BatchOutcome(records=len(said)))
            time.sleep(_TURN_S)
        return Ended.INTERRUPTED

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return ContainerMainLoop(os.environ, stop, work).run()


if __name__ == "__main__":
    code = main()
    write_report(code)
    os._exit(code)
