"""StreamTasks on Spark: each share of an epoch is a Spark task that lives as long as the epoch.

Spark gets no rows and plans nothing: it finds each share a core and a Python worker, and starts it again where its
executor was lost. Shares speak with the driver over a socket of their own (`container.share_server`): 20 reports a
second at most, and the request to end, which reaches a share within a commit.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import cache, partial
from importlib import import_module
from typing import Any

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException

from grete.container.control import Ended, Interruption, leads_on
from grete.container.epochs import Epoch
from grete.container.process_state import ProcessState
from grete.container.share_server import Began, EndedWell, Lost, OtherChange, ShareServer
from grete.errors import GreteError, JobError
from grete.spark.executors.shipping import NOTHING, Shipped, driver_addresses
from grete.spark.executors.stage_figures import StageFigures
from grete.spark.failures.translation import job_failed
from grete.tasks.share_task import ShareTask
from grete.tasks.shares import Committed

_log = logging.getLogger("grete.container")
_LOOKS_EVERY_S = 0.5
"""For what no event announces: that shares have not begun in time."""
_END_S = 30.0
_BEGIN_S = 60.0
_ROOM: dict[str, tuple[int, int]] = {}
"""How many shares run at once in an application whose cores were fewer than it said, and how many it said."""


class SparkEngine:
    """Runs shares as the tasks of one Spark job. See `container.epochs.Engine`. Used by one thread."""

    def __init__(
        self,
        context: SparkContext,
        *,
        begin_s: float = _BEGIN_S,
        kept: ProcessState | None = None,
        shipped: Shipped = NOTHING,
    ) -> None:
        """Every share has to run within `begin_s`, also again; executors may have to be started first.

        With `kept` an epoch that is over for a change leaves Spark's job to it, in which tasks are still closed: the
        next epoch is prepared meanwhile, and begins when the job has ended.
        """
        self._context = context
        self._begin_s = begin_s
        self._shipped = shipped
        self._kept = ProcessState() if kept is None else kept
        self._may_leave = kept is not None
        cores = context.defaultParallelism
        room, cores_then = _ROOM.get(str(context.applicationId), (cores, cores))
        self.slots_at_most: int | None = min(room, cores) if cores == cores_then else cores

    def run(self, epoch: Epoch, control: Interruption) -> Ended:
        """See Engine. Spark begins a share again that failed as often as `spark.task.maxFailures` says.

        Raises:
            GreteError: a share failed, as its worker said.
            JobError: Spark failed, its JVM is gone, or it has no room for all shares at once.
        """
        host, bind = driver_addresses(self._context)
        self._kept.finish()
        with ExitStack() as held:
            slots = epoch.tasks_of_slots
            server = held.enter_context(ShareServer(epoch.start_of, host, bind, slots=slots))
            work = ShareTask(epoch.spec, server.address, server.key)
            job = _Job(self._context, work, self._shipped, epoch, server)
            figures = StageFigures(self._context, epoch.lineage)
            run = _Run(epoch, server, job, control, figures, self._begin_s, may_leave=self._may_leave)
            try:
                return run.run()
            except NoRoom as error:
                _ROOM[str(self._context.applicationId)] = error.begun, self._context.defaultParallelism
                _log.warning("%s", error)
                return Ended.INTERRUPTED
            finally:
                server.end_all()
                if run.is_left:
                    self._kept.leave(partial(_finish, job, held.pop_all()))
                else:
                    job.end()


@cache
def _places(context: SparkContext, shares: int) -> RDD[int]:
    """A partition for each share, with its number."""
    return context.parallelize(range(shares), shares)


def start_workers(context: SparkContext, shipped: Shipped) -> None:
    """Start a Python worker for each core ahead of the first shares, which find it there with its imports.

    Spark ends one that is not used within a minute.

    Raises:
        JobError: Spark failed.
        GreteError: see `Shipped`.
    """
    cores = context.defaultParallelism

    def start(given: Iterable[int]) -> Iterator[Any]:
        shipped.environment_here()
        shipped.enter()
        import_module(ShareTask.__module__)
        return iter(())

    try:
        _places(context, cores).mapPartitions(start).collect()
    except (Py4JError, PySparkException, OSError) as error:
        raise job_failed(context, error) from error


class NoRoom(JobError):
    """Some shares do not run while others do: Spark has fewer cores for them than it said, or has lost some."""

    def __init__(self, begun: int, wanted: int, begin_s: float) -> None:
        self.begun = begun
        super().__init__(
            f"only {begun} of {wanted} shares run, for {begin_s:.0f} s now, since each takes a core for as long as "
            f"it runs: going on with {begun}. Give the application more cores, look whether executors were lost, or "
            f"lower task.commit.groups"
        )


class _Job:
    """The Spark job of an epoch, in a thread of its own."""

    def __init__(
        self, context: SparkContext, work: ShareTask, shipped: Shipped, epoch: Epoch, server: ShareServer
    ) -> None:
        self._context = context
        self._work = work
        self._shipped = shipped
        self._epoch = epoch
        self._server = server
        self.has_ended = False
        """Whether Spark has ended it; an event follows."""
        self.failure: GreteError | None = None
        self._thread = threading.Thread(target=self._run, name="grete-epoch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for its end, for a while; then no worker of it is left."""
        self._thread.join(_END_S)
        if self._thread.is_alive():
            _log.warning("shares of the last epoch do not end, Spark kills them")
            self._context.cancelAllJobs()
            self._thread.join(_END_S)

    def _run(self) -> None:
        work, shipped, slots = self._work, self._shipped, self._epoch.slots

        def run_share(_: int, given: Iterable[int]) -> Iterator[Any]:
            environment = shipped.environment_here()
            here = work.with_application(shipped.enter(), environment)
            return ((slot, here(slot)) for slot in given)

        try:
            name = f"{self._epoch.name}, epoch {self._epoch.lineage[:8]}"
            self._context.setJobGroup(self._epoch.lineage, name)
            _places(self._context, len(slots)).mapPartitionsWithIndex(run_share).collect()
        except (Py4JError, PySparkException, OSError) as error:
            self.failure = job_failed(self._context, error)
        except GreteError as error:
            self.failure = error
        finally:
            self.has_ended = True
            self._server.events.put(OtherChange())


def _finish(job: _Job, held: ExitStack) -> None:
    """Wait for a job that was left; until then a share that Spark begins once more is told that it ends."""
    with held:
        job.end()
    if job.failure is not None:
        raise job.failure


class _Run:
    """An epoch on its way: events of its shares, until Spark's job has ended."""

    def __init__(
        self,
        epoch: Epoch,
        server: ShareServer,
        job: _Job,
        control: Interruption,
        figures: StageFigures,
        begin_s: float,
        *,
        may_leave: bool,
    ) -> None:
        self._epoch = epoch
        self._server = server
        self._job = job
        self._control = control
        self._figures = figures
        self._begun: set[int] = set()
        self._drained: set[int] = set()
        self._is_ending = False
        self._begin_s = begin_s
        self._await_shares()
        self._over: set[int] = set()
        self._may_leave = may_leave
        self.is_left = False
        """Whether Spark's job goes on, in which nothing is committed any more."""

    def _await_shares(self) -> None:
        self._begin_until_s = time.monotonic() + self._begin_s

    def run(self) -> Ended:
        threading.Thread(target=self._await_control, name="grete-control", daemon=True).start()
        while not self._job.has_ended:
            self._take_event(_LOOKS_EVERY_S)
            self._check_begun()
            if not self._is_ending and (self._control.is_set() or self._epoch.shuts_down):
                self._is_ending = True
                self._server.end_all()
            if self._is_ending and self._are_all_over():
                self.is_left = True
                return Ended.INTERRUPTED
        while self._take_event(0):
            pass
        if self._job.failure is not None:
            raise self._job.failure
        if self._epoch.shuts_down:
            return Ended.SHUTDOWN
        return Ended.DRAINED if self._drained >= set(self._epoch.slots) else Ended.INTERRUPTED

    def _are_all_over(self) -> bool:
        """Whether every share has said that it ends, and the container goes on with something else."""
        have_ended = self._over >= set(self._epoch.slots) and self._epoch.has_ended_well
        is_change = have_ended and self._may_leave and not self._epoch.shuts_down
        return is_change and not self._drained and leads_on(self._control)

    def _await_control(self) -> None:
        while not (self._control.is_set() or self._job.has_ended):
            self._control.wait(_LOOKS_EVERY_S)
            if not self._control.is_set():
                self._figures.show()  # here, where no share and no end of the epoch waits for Spark's answers
        self._server.events.put(OtherChange())

    def _check_begun(self) -> None:
        begun, wanted = len(self._begun), len(self._epoch.slots)
        if begun == wanted or time.monotonic() <= self._begin_until_s or self._is_ending:
            return
        if begun:
            raise NoRoom(begun, wanted, self._begin_s)
        _log.warning(
            "none of %d shares runs, for %.0f s now: Spark has no core for them. They begin when it has; look "
            "whether its executors run",
            *(wanted, self._begin_s),
        )
        self._await_shares()

    def _take_event(self, wait_s: float) -> bool:
        with suppress(queue.Empty):
            event = self._server.events.get(timeout=wait_s) if wait_s else self._server.events.get_nowait()
            match event:
                case Committed():
                    self._epoch.committed(event)
                    self._figures.add(event)
                case Began(slot):
                    self._begun.add(slot)
                    self._epoch.began()
                case Lost(slot):
                    self._begun.discard(slot)
                    self._await_shares()
                case EndedWell(slot, is_drained):
                    self._over.add(slot)
                    self._drained |= {slot} if is_drained else set()
                    self._epoch.ended()
            return True
        return False
