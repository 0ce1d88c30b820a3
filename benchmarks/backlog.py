"""A counter with a store on the embedded system, whose input is there before it starts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from grete.clock import SystemClock
from grete.errors import JobNotFound, LogNotFound
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message

JOB = JobId("counter")
_APPLICATION = """
import grete

class Application(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        sum(range(WORK))
        self.counts.put(envelope.key, (self.counts.get(envelope.key) or 0) + 1)
"""
_PROPERTIES = """
job.name=counter
job.application.path=.
task.class=application:Application
task.inputs=local.in
stores.counts.factory=grete.store.sqlite
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=bytes
systems.local.samza.offset.default=oldest
"""
_AT_ONCE = 200_000


@contextmanager
def backlog_job(records: int, keys: int, partitions: int, properties: str, work: int = 0) -> Iterator[None]:
    """Runs it, in a home of its own; `work` numbers are added up for each record."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GRETE_HOME"] = str(folder / "home")
        (folder / "application.py").write_text(_APPLICATION.replace("WORK", str(work)))
        (folder / "job.properties").write_text(_PROPERTIES + properties)
        with closing(LocalSystem(folder / "home" / "local", SystemClock())) as local:
            local.ensure_stream(StreamSpec("in", partitions))
            for first in range(0, records, _AT_ONCE):
                numbers = range(first, first + _AT_ONCE)
                sent = (Message(b"key-%d" % (n % keys), b"x", 1, partition=n % partitions) for n in numbers)
                local.append("in", sent)
        words = ["run", "--quiet", "--config", str(folder / "job.properties")]
        job = subprocess.Popen([sys.executable, "-m", "grete.cli.main", *words])
        try:
            yield
        finally:
            job.terminate()
            job.wait(60)


def passed() -> list[int]:
    """The next offset of each task in each partition; nothing before there is one."""
    with suppress(LogNotFound, JobNotFound), open_job(JOB) as handle:
        return [int(o) + 1 for c in handle.checkpoints.read().values() for o in c.offsets.values()]
    return []


def wait_until_passed(offsets: int) -> None:
    """Until the offsets of all tasks are so many together."""
    while sum(passed()) < offsets:
        time.sleep(0.5)
