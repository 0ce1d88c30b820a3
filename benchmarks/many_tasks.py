"""A job of very many tasks, in one container on Spark: `python -m benchmarks.many_tasks [TASKS ...]`.

For each number of tasks: from `grete run` to the job model in the coordinator stream, to the first output, and to the
last checkpoint, each task having one record; then `grete status`, memory of coordinator and container, and a stop.
What grows faster than the number of tasks is a fault of ours: the last column is the time to the last checkpoint a
task, beside that of the first number.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.processes import tree
from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message

TASKS = (100, 1_000, 10_000)
_GRETE = (sys.executable, "-m", "grete.cli.main")
_JOB = JobId("many")
_WITHIN_S = 600.0
_TASK = """
import grete

class Pass(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.message)
"""


def run(tasks: int) -> dict[str, Any]:
    """The figures of one job."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["GRETE_HOME"] = str(home)
        (home / "passing.py").write_text(_TASK)
        settings = {
            "job.name": _JOB.name,
            "job.application.path": ".",
            "task.class": "passing:Pass",
            "task.inputs": "local.in",
            "task.outputs": "local.out",
            "systems.local.samza.offset.default": "oldest",
        }
        config = home / "many.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with closing(LocalSystem(home / "local", SystemClock())) as system:
            system.create_stream(StreamSpec("in", tasks))
            system.create_stream(StreamSpec("out", 1))
            system.append("in", [Message(b"k", b"v", 1_000, partition) for partition in range(tasks)])
            return _figures(home, config, system, tasks)


def _figures(home: Path, config: Path, system: LocalSystem, tasks: int) -> dict[str, Any]:
    started = time.monotonic()
    with (home / "said").open("wb") as said:
        process = subprocess.Popen([*_GRETE, "run", "--config", str(config)], stdout=said, stderr=said)
    try:
        model_s = _until(lambda: b"metadata changed" in (home / "said").read_bytes(), started)
        first_s = _until(lambda: int(system.offsets("out")[0].upcoming) > 0, started)
        with open_job(_JOB) as handle:
            all_s = _until(lambda: handle.lag().document()["total"] == 0, started, every_s=0.5)
        asked = time.monotonic()
        subprocess.run([*_GRETE, "status", "--job", _JOB.name], check=True, capture_output=True)
        status_s = time.monotonic() - asked
        memory = [_resident_mb(pid) for pid in islice(tree(process.pid), 2)]
        asked = time.monotonic()
        process.terminate()
        process.wait(_WITHIN_S)
        return {
            "tasks": tasks,
            "model_s": round(model_s, 2),
            "first_output_s": round(first_s, 2),
            "all_committed_s": round(all_s, 2),
            "status_s": round(status_s, 2),
            "coordinator_mb": memory[0],
            "container_mb": memory[1],
            "stop_s": round(time.monotonic() - asked, 2),
        }
    finally:
        process.kill()
        process.wait()


def _until(condition: Callable[[], bool], since_s: float, every_s: float = 0.02) -> float:
    while not condition():
        if time.monotonic() - since_s > _WITHIN_S:
            raise SystemExit(f"it took longer than {_WITHIN_S:g} s")
        time.sleep(every_s)
    return time.monotonic() - since_s


def _resident_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Print a row for each number, and write them to a file."""
    rows = [run(int(number)) for number in sys.argv[1:] or TASKS]
    for row in rows:
        grown = (row["all_committed_s"] / row["tasks"]) / (rows[0]["all_committed_s"] / rows[0]["tasks"])
        row["a_task_beside_the_first"] = round(grown, 3)
        print(json.dumps(row))
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    (RESULTS / f"many-tasks-{moment}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
