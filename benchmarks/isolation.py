"""An application in a process of its own against the same one in the worker: CPU a record, and the start.

Both run the same records in turn through the whole path of a StreamTask without Spark: task, stores, changelogs,
outputs and checkpoints in their commits. CPU time is that of this process and of the application's.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from grete.systems.local.system import Message
from grete.testing.job import JobUnderTest

APPLICATION = """
import grete

class PassThrough(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        message = envelope.message
        message["seen"] = True
        collector.send("local.out", message, key=envelope.key)

class Count(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", {"key": envelope.key, "count": count}, key=envelope.key)
"""
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "task.commit.ms": "1000",
}
STORE = {"stores.counts.factory": "grete.store.sqlite"}
KEYS = 4_000
_TICKS = os.sysconf("SC_CLK_TCK")


def run(records: int, pairs: int) -> dict[str, Any]:
    """Medians of pairs that ran one after the other."""
    found = {}
    of_few, of_new = KEYS, records
    for shown, name, more, keys in (
        ("PassThrough", "PassThrough", {}, of_few),
        ("PassThrough, each key once", "PassThrough", {}, of_new),
        ("Count", "Count", STORE, of_few),
    ):
        made = [
            (measure(name, more, records, keys, "false"), measure(name, more, records, keys, "true"))
            for _ in range(pairs)
        ]
        here, beside = zip(*made, strict=True)
        found[shown] = {
            "cpu_us_in_the_worker": median(one["cpu_us"] for one in here),
            "cpu_us_beside_it": median(one["cpu_us"] for one in beside),
            "cpu_ratio": median(b["cpu_us"] / a["cpu_us"] for a, b in made),
            "worker_cpu_us_beside_it": median(one["own_cpu_us"] for one in beside),
            "start_s_in_the_worker": median(one["start_s"] for one in here),
            "start_s_beside_it": median(one["start_s"] for one in beside),
        }
    return {"records": records, "pairs": pairs, **found}


def measure(name: str, more: dict[str, str], records: int, keys: int, is_isolated: str) -> dict[str, float]:
    """One run over all records, which have so many keys."""
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as place:
        folder = Path(place) / "application"
        folder.mkdir()
        (folder / "measured.py").write_text(APPLICATION)
        switch = {"job.split.deployment.enabled": is_isolated, "task.class": f"measured:{name}"}
        config = {**CONFIG, **more, **switch, "job.application.path": str(folder)}
        job = JobUnderTest(config=config, partitions={"local.in": 1, "local.out": 2}, directory=Path(place))
        began_s = time.perf_counter()
        job.start()
        job.send("local.in", {"n": 0}, key="first")
        job.run()
        start_s = time.perf_counter() - began_s
        for start in range(0, records, 50_000):
            job._system.append("in", [_message(number, keys) for number in range(start, start + 50_000)])
        own_s, others_s = time.process_time(), children_s()
        job.run()
        own_s, others_s = time.process_time() - own_s, children_s() - others_s
        job.close()
    return {
        "start_s": start_s,
        "cpu_us": (own_s + others_s) / records * 1e6,
        "own_cpu_us": own_s / records * 1e6,
    }


def _message(number: int, keys: int) -> Message:
    value = b'{"n":%d,"carrier":"C%d","delay":%d,"pad":"%s"}' % (number, number % 16, number % 50, b"x" * 40)
    return Message(b"tail-number-%07d" % (number % keys), value, 1_000, 0, ())


def children_s() -> float:
    """CPU of the processes below this one that live."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    lines = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2] for pid in pids]
    return sum(int(ticks) for line in lines for ticks in line.split()[11:13]) / _TICKS


def median(values: Any) -> float:
    """Rounded for people."""
    return round(statistics.median(values), 3)
