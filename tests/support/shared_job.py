"""A job that counts the records of each key, shared by stream processors in processes of their own, without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import apsw

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.cells import Cells
from grete.coordination.factory import open_coordination
from grete.coordination.membership import Membership
from grete.errors import JobNotFound
from grete.keyed_log.sqlite_coordinator_log import coordinator_file
from grete.model.fence import processors_scope
from grete.model.ids import TaskName
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem
from grete.testing.chaos.own_job import OwnJob
from grete.testing.waiting import eventually, patient, reaches

TTL_S = 3.0


def opened(file: Path, busy_timeout_ms: int) -> apsw.Connection:
    """A connection by the library that grete has, since this process has the file open by it too.

    Locks belong to the process: where Python's own sqlite3 closed the file, those of the other library were gone, and
    two processes wrote at once ("file is not a database", and 44 records of 2,498 that never came).
    """
    connection = apsw.Connection(str(file))
    connection.set_busy_timeout(busy_timeout_ms)
    return connection


class Processor:
    """One of the job's processes. `said` are its states and the calls of its listener."""

    def __init__(
        self, job: SharedJob, id: str, environment: Mapping[str, str], under: Sequence[str] = ()
    ) -> None:
        self.id = id
        self._file = job.home / "local" / "streams.db"
        self._output, self.log = job.home / f"{id}.out", job.home / f"{id}.log"
        command = [*under, sys.executable, "-m", "grete_workbench.processor_process", str(job.config), id]
        with self._output.open("ab") as output, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**job.environment, **environment}, stdout=output, stderr=log
            )

    @property
    def said(self) -> list[str]:
        return self._output.read_text().splitlines()

    @property
    def state(self) -> str:
        return next((line for line in reversed(self.said) if line.isupper()), "")

    def has(self, state: str) -> None:
        eventually(lambda: self.state == state, f"{self.id} is {state}", context=self.log.read_text)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _stands_still(self) -> bool:
        """A signal reaches a thread that waits for the disk some milliseconds later, and it may take the file yet."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return all(thread.read_text().rpartition(")")[2].split()[0] in "Tt" for thread in threads)

    def pause(self) -> None:
        """SIGSTOP; not while it holds the file that all of them write to, which would hold up the whole home."""

        def stands_still_with_nothing() -> bool:
            self.process.send_signal(signal.SIGSTOP)
            eventually(self._stands_still, "each of its threads has stopped")
            with closing(opened(self._file, 500)) as file:
                try:
                    file.execute("BEGIN IMMEDIATE")
                    file.execute("ROLLBACK")
                    return True
                except apsw.BusyError:
                    self.resume()
                    return False

        eventually(stands_still_with_nothing, "it stands still")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ends(self) -> int:
        """Stop it in order; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(patient(60))


class SharedJob:
    """The job in a home of its own; `settings` say where its leader is elected, and what else differs."""

    def __init__(self, home: Path, settings: Mapping[str, str], *, partitions: int = 6) -> None:
        self.home = home
        self._partitions = partitions
        self.counting = OwnJob(
            home, name=f"shared-{os.getpid()}-{home.name[-20:]}", spark=False, partitions=partitions
        )
        self.job = self.counting.job
        self.settings = {
            "job.name": self.job.name,
            "task.class": "grete.testing.counting:CountingTask",
            "task.inputs": "local.chaos-in",
            "task.outputs": "local.chaos-out",
            "task.max.records.per.batch": "200",
            "systems.local.samza.factory": "local",
            "systems.local.samza.offset.default": "oldest",
            "systems.local.samza.key.serde": "string",
            "systems.local.samza.msg.serde": "json",
            "systems.local.path": str(home / "local"),
            "stores.counts.factory": "grete.store.sqlite",
            "job.coordinator.lease.ttl.ms": str(round(TTL_S * 1000)),
            "job.debounce.time.ms": "500",
            "task.shutdown.ms": "4000",
            **settings,
        }
        self.config = home / "shared.json"
        self.config.write_text(json.dumps(self.settings))
        self.environment = {**os.environ, "GRETE_HOME": str(home)}
        self.processors: list[Processor] = []
        with closing(LocalSystem(home / "local", SystemClock())) as local:
            local.create_stream(StreamSpec("chaos-in", partitions))

    def join(self, id: str, *, under: Sequence[str] = (), **environment: str) -> Processor:
        """`under` is a program that its process is started by, and stays."""
        made = Processor(self, id, environment, under)
        self.processors.append(made)
        return made

    def running(self, *ids: str) -> list[Processor]:
        """New processors, once they share the tasks."""
        made = [self.join(id) for id in ids]
        self.shares(len(self.living()))
        return made

    def living(self) -> list[Processor]:
        return [one for one in self.processors if one.process.poll() is None]

    def shares(self, among: int) -> None:
        """Wait until the tasks are divided in equal shares, and all of them run."""
        least = self._partitions // among

        def are_equal() -> bool:
            numbers = [list(self.owners().values()).count(one) for one in set(self.owners().values())]
            return len(numbers) == among and min(numbers) >= least

        eventually(are_equal, f"{among} processors share the tasks", context=self.logs)
        eventually(
            lambda: (
                sum(one.state == "RUNNING" for one in self.processors if one.process.poll() is None) >= among
            ),
            f"{among} processors run",
            context=self.logs,
        )

    def owners(self) -> Mapping[TaskName, str]:
        """The container of each task, in the model in force."""
        with suppress(JobNotFound), open_job(self.job, Settings.of(self.settings)) as handle:
            return handle.assignments()
        return {}

    def members(self) -> set[str]:
        """The ids of the processors, living ones and those that are not given up yet."""
        clock = SystemClock()
        settings = Settings.of(self.settings)
        ttl_s = settings.coordinator.lease_ttl_s
        with closing(open_coordination(settings, self.home, clock, ttl_s=ttl_s)) as coordination:
            return set(
                Membership(coordination.cells(processors_scope(self.job)), clock, ttl_s=ttl_s).members()
            )

    def events(self) -> list[str]:
        with open_job(self.job, Settings.of(self.settings)) as handle:
            return [row.event for row in handle.history()]

    @contextmanager
    def store_is_down(self) -> Iterator[None]:
        """Nothing can be written to the file of the election, the cells and the coordinator stream meanwhile."""
        file = coordinator_file(Settings.of(self.settings), self.home)
        with closing(opened(file, 10_000)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")

    def cells(self) -> AbstractContextManager[Cells]:
        """Those of its processors, for a program that does not belong there."""
        coordination = open_coordination(Settings.of(self.settings), self.home, SystemClock())
        return closing(coordination.cells(processors_scope(self.job)))

    def stop(self) -> None:
        """As an operator does."""
        with open_job(self.job, Settings.of(self.settings)) as handle:
            handle.requests.stop(10, "enough")

    def state(self) -> str:
        """The job's own."""
        with open_job(self.job, Settings.of(self.settings)) as handle:
            found = handle.state()
        return "" if found is None else found.state

    def leader(self) -> Processor:
        """The one that leads."""
        with open_job(self.job, Settings.of(self.settings)) as handle:
            eventually(handle.election.holder, "one leads", context=self.logs)
            holder = handle.election.holder()
        return next(one for one in self.processors if holder and one.process.pid == holder.pid)

    def counted(self) -> None:
        """Wait until every record is counted, and see that none was twice or out of order."""
        reaches(lambda: sum(map(len, self.counting.counts().values())), self.counting.sent, context=self.logs)
        assert not list(self.counting.problems()), self.logs()

    def logs(self) -> str:
        return "\n".join(
            f"--- {one.id}: {' '.join(one.said)}\n{one.log.read_text()[-6000:]}" for one in self.processors
        )

    def close(self) -> None:
        for one in self.processors:
            one.kill()
        self.counting.close()
