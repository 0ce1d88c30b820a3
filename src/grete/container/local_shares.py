"""Shares of an epoch that run in the container's own process, not in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from grete.clock import Clock
from grete.container.control import Ended, Interruption
from grete.container.epochs import Epoch
from grete.systems.admin import OffsetAdmin
from grete.systems.base import System
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share_loop import ShareLoop

_WAIT_S = 0.05


class LocalEngine:
    """Runs the shares of an epoch one after the other in this process. See `container.epochs.Engine`."""

    def __init__(self, clock: Clock, slots_at_most: int | None = None) -> None:
        self._clock = clock
        self.slots_at_most = slots_at_most

    def run(self, epoch: Epoch, control: Interruption) -> Ended:
        """See Engine."""
        shares = LocalShares(epoch, self._clock, is_ending=control.is_set)
        try:
            while not control.is_set():
                if shares.step(_WAIT_S / len(epoch.slots)):
                    if epoch.shuts_down:
                        return Ended.SHUTDOWN
                elif shares.are_drained:
                    return Ended.DRAINED
        except BaseException:
            shares.kill()
            raise
        finally:
            shares.close()
        return Ended.INTERRUPTED


class LocalShares:
    """The shares of an epoch, in this process."""

    def __init__(
        self,
        epoch: Epoch,
        clock: Clock,
        *,
        system: System | None = None,
        ends: OffsetAdmin | None = None,
        commit_s: float | None = None,
        records_at_most: int | None = None,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        """The tasks use `system`, which is closed with them; by default they open the container's. See ShareLoop."""
        self._epoch = epoch
        self._workers = TaskWorkers(epoch.spec, system, clock)
        self._open = partial(
            ShareLoop,
            clock=clock,
            commit_s=commit_s,
            records_at_most=records_at_most,
            is_ending=is_ending,
            ends=ends,
        )
        self.loops = self._opened()

    def _opened(self) -> list[ShareLoop]:
        opened = [self._open(self._workers, self._epoch.start_of(slot)) for slot in self._epoch.slots]
        for loop in opened:
            if loop.resumed is not None:
                self._epoch.committed(loop.resumed)
        return opened

    @property
    def are_drained(self) -> bool:
        """Whether all is committed that was there at the start, if the container is to end there."""
        return all(loop.is_drained for loop in self.loops)

    def step(self, wait_s: float = 0.0) -> list[BatchOutcome]:
        """Let each share commit what has arrived, and wait for it so long."""
        made = [committed for loop in self.loops if (committed := loop.step(wait_s)) is not None]
        return [self._epoch.committed(one) for one in made]

    def process(self) -> bool:
        """Let each share process what has arrived, and commit nothing; it begins again where it was before."""
        found = any([loop.process() for loop in self.loops])
        self.kill()
        for loop in self.loops:
            loop.close()
        self.loops = self._opened()
        return found

    def close(self) -> None:
        """Let the tasks close."""
        for loop in self.loops:
            loop.close()
        self._workers.close()

    def kill(self) -> None:
        """Give everything up as a killed process does: no task is closed."""
        for loop in self.loops:
            loop.drop()
