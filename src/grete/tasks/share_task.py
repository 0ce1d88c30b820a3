"""A share in the Python worker of a Spark task, from its beginning to the end of its epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Protocol

from grete.clock import Clock, SystemClock
from grete.model.ending import failure_of, note
from grete.systems.reused import ReusedSystem
from grete.tasks.profile import Profile
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share_channel import ShareChannel
from grete.tasks.share_loop import ShareLoop
from grete.tasks.shares import Committed, merged
from grete.tasks.spec import RunnerSpec
from grete.tasks.stores.paths import tasks_with_stores
from grete.tasks.worker_logs import attach_logs, flush_logs, hurry_logs

_WAITS_S = (0.05, 0.25)
"""A share looks so often whether it shall end while nothing comes: the longer, the less often."""
_REPORT_S = 0.05
_KEPT = ReusedSystem(idle_s=30.0)
"""Spark gives a share of the next epoch a worker that had one before, and ends those that it does not need."""


@contextmanager
def told(spec: RunnerSpec) -> Iterator[None]:
    """Let this process log for the container; what was logged is on its way afterwards, and after a failure there."""
    attach_logs(spec)
    try:
        yield
    except BaseException as error:
        note(error, failure_of(error))  # the driver gets its text
        flush_logs()
        raise
    hurry_logs()


@dataclass(frozen=True, slots=True)
class ShareTask:
    """The work of a Spark task: the share of its slot, for as long as the epoch of `address` and `key` goes on."""

    spec: RunnerSpec
    address: tuple[str, int]
    key: bytes = field(repr=False)
    had: ClassVar[int | None] = None
    """The slot of this process's last share."""

    def with_application(self, folder: str | None, environment: str | None) -> ShareTask:
        """The same with the application's modules and environment as an executor has them; None leaves one."""
        spec = self.spec
        return replace(
            self,
            spec=replace(
                spec,
                application_path=folder or spec.application_path,
                application_environment=environment or spec.application_environment,
            ),
        )

    def __call__(self, slot: int) -> bool:
        """Work until asked to end, or drained; returns whether it was drained.

        Raises:
            GreteError: see `ShareLoop` and `ShareChannel`.
        """
        clock, spec = SystemClock(), self.spec
        with (
            told(spec),
            _KEPT.lent(spec.settings, spec.default_system, Path(spec.home), clock) as system,
            closing(TaskWorkers(spec, system, clock, leaves_system=True)) as workers,
            closing(self._channel(slot, workers.id)) as channel,
        ):
            if channel.start is None:
                return False
            ShareTask.had = channel.start.slot
            profile_s = spec.settings.task.profile_s
            with (
                closing(Profile(profile_s, clock, channel.hand_profile)) as profile,
                closing(ShareLoop(workers, channel.start, clock, is_ending=channel.is_ending)) as loop,
            ):
                for _ in work(loop, channel, clock):
                    profile.look()
                return loop.is_drained

    def _channel(self, slot: int, worker: str) -> ShareChannel:
        stores = tasks_with_stores(self.spec)
        return ShareChannel(self.address, self.key, slot, worker, ShareTask.had, stores)


class ContainerConnection(Protocol):
    """The share's end of the connection to its container: see `tasks.share_channel.ShareChannel`."""

    def is_ending(self) -> bool:
        """Whether the share shall end at its next commit."""

    def report(self, committed: Committed) -> None:
        """Say what was committed."""

    def finish(self, *, is_drained: bool) -> None:
        """Say that the share has ended without an error."""


def work(
    loop: ShareLoop, channel: ContainerConnection, clock: Clock, *, waits_s: tuple[float, float] = _WAITS_S
) -> Iterator[Sequence[int]]:
    """Work until asked to end, or drained; then the channel has heard which.

    Gives way before each commit, with the tasks that take part, and after it and each step, with none.

    Raises:
        GreteError: see `ShareLoop` and `ShareChannel`.
    """
    reporter = Reporter(channel, clock)
    if loop.resumed is not None:
        channel.report(loop.resumed)
    wait_s, longest_s = waits_s
    while not channel.is_ending():
        tasks = loop.process(wait_s)
        wait_s = waits_s[0] if tasks else min(1.2 * wait_s, longest_s)
        if tasks:
            yield tasks
            committed = loop.commit()
            yield ()
            if committed is not None:
                reporter.add(committed)
        else:
            loop.confirm()
            if loop.is_drained:
                break
        reporter.report_if_due()
        yield ()
    reporter.report()
    channel.finish(is_drained=loop.is_drained)


class Reporter:
    """Gathers what a share commits, and reports it twenty times a second at most."""

    def __init__(self, channel: ContainerConnection, clock: Clock) -> None:
        self._channel = channel
        self._clock = clock
        self._gathered: Committed | None = None
        self._due_s = float("-inf")

    def add(self, committed: Committed) -> None:
        """Take a commit; what its tasks wish for is reported at once."""
        before = self._gathered
        self._gathered = committed if before is None else merged(before, committed)
        if any(report.shutdown_task or report.shutdown_all for report in committed.reports):
            self.report()

    def report_if_due(self) -> None:
        """Report what there is, when the last time was long enough ago."""
        if self._clock.monotonic_s() >= self._due_s:
            self.report()

    def report(self) -> None:
        """Report what there is."""
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._channel.report(gathered)
            self._due_s = self._clock.monotonic_s() + _REPORT_S
