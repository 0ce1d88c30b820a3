"""One partition whose records take 50 us of a core each, on two cores: by one task, and by two that share it.

`python -m benchmarks.elasticity [ROUNDS]`, embedded, in turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

from grete.clock import SystemClock
from grete.errors import JobNotFound, LogNotFound
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message

RECORDS, TURN_S = 2_000_000, 15.0
APPLICATION = """
import grete

class Application(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        sum(range(2_000))
        self.counts.put(envelope.key, (self.counts.get(envelope.key) or 0) + 1)
"""
PROPERTIES = """
job.name=shared
job.application.path=.
task.class=application:Application
task.inputs=local.in
stores.counts.factory=grete.store.sqlite
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=bytes
systems.local.samza.offset.default=oldest
spark.master=local[2]
"""


def _behind() -> int:
    """The offset that all tasks have passed; 0 before there is one."""
    with suppress(LogNotFound, JobNotFound), open_job(JobId("shared")) as handle:
        return min(
            (int(o) + 1 for c in handle.checkpoints.read().values() for o in c.offsets.values()), default=0
        )
    return 0


def records_per_s(factor: int) -> float:
    """Of one job from its first commits on."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GRETE_HOME"] = str(folder / "home")
        (folder / "application.py").write_text(APPLICATION)
        (folder / "job.properties").write_text(f"{PROPERTIES}job.elasticity.factor={factor}\n")
        with closing(LocalSystem(folder / "home" / "local", SystemClock())) as local:
            local.ensure_stream(StreamSpec("in", 1))
            for first in range(0, RECORDS, 200_000):
                numbers = range(first, first + 200_000)
                local.append("in", (Message(b"key-%d" % (n % 10_000), b"x", 1) for n in numbers))
        words = ["run", "--quiet", "--config", str(folder / "job.properties")]
        job = subprocess.Popen([sys.executable, "-m", "grete.cli.main", *words])
        try:
            while (before := _behind()) < 20_000:
                time.sleep(0.5)
            began_s = time.monotonic()
            time.sleep(TURN_S)
            return (_behind() - before) / (time.monotonic() - began_s)
        finally:
            job.terminate()
            job.wait(60)


def main(rounds: int) -> None:
    """Print a JSON object."""
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for factor, rates in found.items():
            rates.append(round(records_per_s(factor)))
    medians = {factor: statistics.median(rates) for factor, rates in found.items()}
    print(json.dumps({"records_per_s": found, "ratio": round(medians[2] / medians[1], 2)}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
