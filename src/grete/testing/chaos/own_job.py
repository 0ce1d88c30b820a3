"""A job that shows every loss and every repetition: it counts the records of each key and sends each count."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from grete.clock import SystemClock
from grete.errors import LogNotFound
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.metadata.job_index import where_submitted
from grete.metadata.job_state import read_state
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import patient

JOB = "chaos"
KEYS = 50
_FEED_EVERY_S = 0.1
_PROPERTIES = """
task.class=grete.testing.counting:CountingTask
task.inputs=local.chaos-in
task.outputs=local.chaos-out
job.container.count=2
job.standbytasks.replication.factor=2
task.max.records.per.batch=1000
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.factory=grete.store.sqlite
cluster-manager.container.retry.count=-1
spark.master=local[1]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The counts of one key, compared with those that its records should have made."""

    key: str
    records: int
    lost: tuple[int, ...]
    doubled: int
    in_order: bool


class OwnJob:
    """The job in a home of its own."""

    def __init__(
        self,
        home: Path,
        *,
        name: str = JOB,
        spark: bool = True,
        settings: Mapping[str, str] | None = None,
        partitions: int = 3,
    ) -> None:
        """`settings` go before the job's own configuration; `partitions` are the input's."""
        self.home = home
        self._partitions = partitions
        self.job = JobId(name)
        self._run = ["grete.cli.main", "run", "--quiet"] if spark else ["grete.testing.sparkless"]
        self.sent = 0
        self._log = (home / "coordinator.log").open("ab")
        self._config = home / "chaos.properties"
        more = "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
        self._config.write_text(f"job.name={name}{_PROPERTIES}{more}", encoding="ascii")
        self._epoch = 0
        self._coordinators: list[subprocess.Popen[bytes]] = []

    def send(self, records: int) -> None:
        """Append records; the keys take turns."""
        with closing(LocalSystem(self.home / "local", SystemClock())) as local:
            local.ensure_stream(StreamSpec("chaos-in", self._partitions))
            numbers = range(self.sent, self.sent + records)
            local.append("chaos-in", (Message(b"key%d" % (i % KEYS), b"{}", i) for i in numbers))
        self.sent += records

    @contextmanager
    def fed(self, rate: int) -> Iterator[None]:
        """Append so many records a second meanwhile."""
        ended = threading.Event()
        feeding = threading.Thread(target=self._feed, args=(rate, ended), name="chaos-feed")
        feeding.start()
        try:
            yield
        finally:
            ended.set()
            feeding.join()

    def _feed(self, rate: int, ended: threading.Event) -> None:
        began_s, before = time.monotonic(), self.sent
        while not ended.wait(_FEED_EVERY_S):
            due = before + int(rate * (time.monotonic() - began_s)) - self.sent
            if due > 0:
                self.send(due)

    def start(self) -> subprocess.Popen[bytes]:
        """A coordinator; it adopts the containers of one that was killed."""
        self._epoch = self._epoch_in_the_stream()
        which = ["--job", self.job.shown] if self._epoch else ["--config", str(self._config)]
        process = self._coordinate(*which)
        self._coordinators.append(process)
        return process

    def _coordinate(self, *which: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", *self._run, *which]
        environment = {**os.environ, "GRETE_HOME": str(self.home)}
        return subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)  # noqa: S603

    def stand_by(self) -> subprocess.Popen[bytes]:
        """A coordinator that waits to succeed the one that leads; of a job without Spark."""
        process = self._coordinate("--job", self.job.shown, "--standby")
        self._coordinators.append(process)
        return process

    def start_again(self) -> None:
        """As a supervisor of coordinators would, when one has died."""
        self._coordinators[-1].wait(patient(60))
        self.start()

    def stop(self) -> int:
        """Stop at a batch boundary, and end those that stand by; 0, or the exit code of one that did not end well.

        One that has only just been started is waited for: until it coordinates, a signal ends it and nothing else.
        """
        last = self._coordinators[-1]
        _wait_until(lambda: last.poll() is not None or self._epoch_in_the_stream() > self._epoch, 120)
        living = [each for each in self._coordinators if each.poll() is None]
        for each in living:
            each.terminate()
        return max((each.wait(patient(120)) for each in {last, *living}), key=abs)

    def _epoch_in_the_stream(self) -> int:
        """The last coordinator that said it runs; 0 for none."""
        settings, clock = where_submitted(self.job, self.home), SystemClock()
        try:
            log = open_coordinator_log(settings, stream_name(self.job), self.home, clock, must_exist=True)
        except LogNotFound:
            return 0
        with closing(log):
            state = read_state(CoordinatorStream(log, clock, source="chaos"))
        return 0 if state is None else state.epoch

    def close(self) -> None:
        """Nothing of it runs afterwards."""
        for process in self._coordinators:
            if process.poll() is None:
                process.terminate()
                process.wait(patient(120))
        self._log.close()

    def counts(self) -> dict[str, list[int]]:
        """Every count that was sent, by key, in the order of the stream."""
        found: dict[str, list[int]] = {}
        with closing(LocalSystem(self.home / "local", SystemClock())) as local:
            if "chaos-out" not in local.streams():
                return found
            for partition in range(local.partition_count("chaos-out")):
                for _, batch in local.read("chaos-out", partition, 0):
                    rows = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
                    for key, value in rows:
                        found.setdefault(key.decode(), []).append(orjson.loads(value))
        return found

    def wait_until_counted(self, records: int, still_s: float) -> bool:
        """Whether so many records are counted in the end; False when none was for so long."""
        before, until_s = -1, 0.0
        while (counted := self._counted()) < records:
            if counted > before:
                before, until_s = counted, time.monotonic() + still_s
            if time.monotonic() > until_s:
                return False
            time.sleep(0.2)
        return True

    def _counted(self) -> int:
        """How many counts there are; reading all of them each time would take a core of the job's."""
        with closing(LocalSystem(self.home / "local", SystemClock())) as local:
            if "chaos-out" not in local.streams():
                return 0
            return sum(int(held.upcoming) for held in local.offsets("chaos-out").values())

    def problems(self) -> Iterator[str]:
        """Records lost, done twice or out of order; empty when all is well."""
        for found in self.found():
            if found.lost or found.doubled:
                what = f"{len(found.lost)} lost {list(found.lost[:5])}, {found.doubled} done twice"
                yield f"{found.key}: {found.records} records, {what}"
            elif not found.in_order:
                yield f"{found.key}: {found.records} records, out of order"

    def found(self) -> Iterator[Found]:
        """Each key's counts, as they are now."""
        counts = self.counts()
        for number in range(KEYS):
            key = f"key{number}"
            expected = list(range(1, len(range(number, self.sent, KEYS)) + 1))
            seen = counts.get(key, [])
            lost = tuple(sorted(set(expected) - set(seen)))
            yield Found(key, len(expected), lost, len(seen) - len(set(seen)), seen == expected)


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.2)
    return True
