"""A job that copies records of the embedded system, with real coordinators and containers, without Spark."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from grete.clock import SystemClock
from grete.errors import JobError, JobNotFound
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import eventually

COPY = """
import grete

class Copy(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.message)
"""
TTL_S = 3.0
_OF_VERSION = """
import sys, grete
grete.__version__ = sys.argv.pop(1)
from grete.testing.sparkless import main
sys.exit(main(sys.argv[1:]))
"""


class CopyingJob:
    """The job and its coordinators' processes, in the home `home` below `directory`.

    `settings` say where leaders are elected, and what else the job needs.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.id = JobId(f"copy-{uuid.uuid4().hex[:8]}")
        self._directory = directory
        self._containers: set[int] = set()
        self._running: list[subprocess.Popen[str]] = []
        self._local = directory / "home" / "local"
        (directory / "copying.py").write_text(COPY)
        with closing(LocalSystem(self._local, SystemClock())) as system:
            system.create_stream(StreamSpec("in", 2))
            system.create_stream(StreamSpec("out", 1))
        self._sent = 0
        self.settings = {
            "job.name": self.id.name,
            "job.coordinator.system": "local",
            "job.application.path": str(directory),
            "job.coordinator.lease.ttl.ms": str(round(TTL_S * 1000)),
            "systems.local.path": str(self._local),
            "systems.local.samza.factory": "local",
            "systems.local.samza.offset.default": "oldest",
            "task.class": "copying:Copy",
            "task.inputs": "local.in",
            **settings,
        }
        self.config = directory / "copy.properties"
        self.config.write_text("\n".join(f"{key}={value}" for key, value in self.settings.items()))

    def submit(self) -> subprocess.Popen[str]:
        return self._coordinate("--config", str(self.config))

    def run_again(self) -> subprocess.Popen[str]:
        return self._coordinate("--job", self.id.name)

    def stand_by(self, version: str | None = None) -> subprocess.Popen[str]:
        """A coordinator that waits; of another version of grete, as it says."""
        return self._coordinate("--standby", "--config", str(self.config), version=version)

    def _coordinate(self, *which: str, version: str | None = None) -> subprocess.Popen[str]:
        program = ["-m", "grete.testing.sparkless"] if version is None else ["-c", _OF_VERSION, version]
        log = (self._directory / f"coordinator-{len(self._running)}.log").open("w")
        with log:
            started = subprocess.Popen([sys.executable, *program, *which], stderr=log, text=True)
        self._running.append(started)
        return started

    def copying(self) -> tuple[subprocess.Popen[str], int]:
        """The job's first coordinator and its epoch, once records were copied."""
        process = self.submit()
        self.send(100)
        eventually(self.copied_once, "the first records are copied")
        self._note_containers()
        return process, self.epoch()

    def send(self, count: int) -> None:
        with closing(LocalSystem(self._local, SystemClock())) as system:
            messages = [Message(None, b"%d" % (self._sent + i), 0, i % 2) for i in range(count)]
            system.append("in", messages)
        self._sent += count

    def copied_once(self) -> bool:
        with closing(LocalSystem(self._local, SystemClock())) as system:
            found = [v for _, batch in system.read("out", 0, 0) for v in batch.column(1).to_pylist()]
        assert len(found) == len(set(found)), "written twice"
        return len(found) == self._sent

    def events(self) -> list[str]:
        with open_job(self.id) as handle:
            return [row.event for row in handle.history()]

    def told(self) -> str:
        """The history, for people."""
        with open_job(self.id) as handle:
            return "\n".join(f"{row.event} {dict(row.details)}" for row in handle.history())

    def epoch(self) -> int:
        """Of the last incarnation that recorded its start."""
        with open_job(self.id) as handle:
            state = handle.state()
        return 0 if state is None else state.epoch

    def stop(self) -> None:
        """Stop the leader; not while one incarnation has ended and the next has not begun."""
        eventually(self._is_asked_to_stop, "a leader that can be stopped")

    def _is_asked_to_stop(self) -> bool:
        with open_job(self.id) as handle, contextlib.suppress(JobError):
            handle.requests.stop(5, "enough")
            return True
        return False

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        with contextlib.suppress(JobNotFound):
            self._note_containers()
        for pid in self._containers:
            with contextlib.suppress(OSError):  # its number may be another process's by now
                if str(self._directory).encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def _note_containers(self) -> None:
        """Those that are recorded now: a successor that cannot adopt one of them records another."""
        with open_job(self.id) as handle:
            launches = handle.launches()
        for record in launches.values():
            if record.handle:
                self._containers.add(int(record.handle.split("/")[1]))
