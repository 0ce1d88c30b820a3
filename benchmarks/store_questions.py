"""A key of a store over HTTP while its job is at full load: how long an answer takes, and what the job loses by it.

    python -m benchmarks.store_questions [ROUNDS]

A counter, embedded, has a backlog that it never works off. In turns it is left alone and asked 50 times a second.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from grete.clock import SystemClock
from grete.errors import JobNotFound, LogNotFound
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message

PARTITIONS, KEYS, RECORDS = 4, 100_000, 18_000_000
TURN_S, PER_SECOND = 10.0, 50
APPLICATION = """
import grete

class Application(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        self.counts.put(envelope.key, (self.counts.get(envelope.key) or 0) + 1)
"""
PROPERTIES = """
job.name=asked
job.application.path=.
task.class=application:Application
task.inputs=local.in
stores.counts.factory=grete.store.sqlite
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=bytes
systems.local.samza.offset.default=oldest
spark.master=local[1]
"""


def processed() -> int:
    """Records behind the job's checkpoints."""
    with open_job(JobId("asked")) as handle:
        return sum(int(o) + 1 for c in handle.checkpoints.read().values() for o in c.offsets.values())


def turn(url: str, token: str, per_second: int) -> tuple[float, list[float]]:
    """(records a second, milliseconds of each answer)."""
    began_s, before, took_ms = time.monotonic(), processed(), list[float]()
    while time.monotonic() < began_s + TURN_S:
        if per_second:
            key = random.randrange(KEYS)  # noqa: S311 - any
            task = quote(f"Partition {key % PARTITIONS}")
            asked = urllib.request.Request(  # noqa: S310 - our own server
                f"{url.rstrip('/')}/api/v1/stores/counts?key=key-{key}&task={task}",
                headers={"Authorization": f"Bearer {token}"},
            )
            asked_s = time.monotonic()
            with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
                assert len(json.load(answer)["entries"]) == 1
            took_ms.append((time.monotonic() - asked_s) * 1000)
            time.sleep(max(0.0, 1 / per_second - (time.monotonic() - asked_s)))
        else:
            time.sleep(0.1)
    return (processed() - before) / (time.monotonic() - began_s), took_ms


def main(rounds: int) -> None:
    """Print a JSON object."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GRETE_HOME"] = str(folder / "home")
        (folder / "application.py").write_text(APPLICATION)
        (folder / "job.properties").write_text(PROPERTIES)
        with closing(LocalSystem(folder / "home" / "local", SystemClock())) as local:
            local.ensure_stream(StreamSpec("in", PARTITIONS))
            for first in range(0, RECORDS, 200_000):
                numbers = range(first, first + 200_000)
                local.append(
                    "in",
                    (Message(b"key-%d" % (n % KEYS), b"x", 1, partition=n % PARTITIONS) for n in numbers),
                )
        command = [
            sys.executable,
            "-m",
            "grete.cli.main",
            "run",
            "--quiet",
            "--config",
            str(folder / "job.properties"),
        ]
        job = subprocess.Popen(command)
        state = None
        try:
            while True:
                time.sleep(1)
                with suppress(LogNotFound, JobNotFound), open_job(JobId("asked")) as handle:
                    state = handle.state()
                if state is not None and state.url and processed() > 2 * KEYS:
                    break
            token = Path(state.token_file).read_text().strip()
            alone, asked, took_ms = list[float](), list[float](), list[float]()
            for _ in range(rounds):
                alone.append(turn(state.url, token, 0)[0])
                rate, answers = turn(state.url, token, PER_SECOND)
                asked.append(rate)
                took_ms += answers
            left = RECORDS - processed()
        finally:
            job.terminate()
            job.wait(60)
    percentiles = statistics.quantiles(took_ms, n=100)
    print(
        json.dumps(
            {
                "answers": len(took_ms),
                "p50_ms": round(percentiles[49], 1),
                "p99_ms": round(percentiles[98], 1),
                "records_per_s_alone": [round(one) for one in alone],
                "records_per_s_asked": [round(one) for one in asked],
                "ratio": round(statistics.median(asked) / statistics.median(alone), 3),
                "left": left,
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
