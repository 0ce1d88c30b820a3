"""Who runs a job: what the service that elects its leaders says of it, and how to keep it from being started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from grete.clock import Clock, Deadline
from grete.config.key_tables.kubernetes import CONTEXT, KUBECONFIG
from grete.config.settings import Settings
from grete.coordination.base import Coordination, Holder, Leadership, forget_scope
from grete.coordination.factory import open_coordination
from grete.coordination.lead import lead
from grete.coordination.membership import Member, Membership, standbys
from grete.errors import GreteError, HeldByOther, JobError
from grete.keyed_log.base import KeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import recorded_epoch
from grete.model.fence import job_scope
from grete.model.ids import JobId

Answer = TypeVar("Answer")
_ANSWERS_WITHIN_S = 5.0
"""A leader gives up a question after a share of its lease, which is half a second of the shortest one. Who only looks
has time: `grete leader step-down` ended with an error for one slow answer, having asked for what was then done."""


class JobElection:
    """The election of a job's coordinators, seen by one who only looks or who keeps the job from being started."""

    def __init__(
        self,
        job: JobId,
        home: Path,
        log: KeyedLog,
        stream: CoordinatorStream,
        given: Settings,
        clock: Clock,
        stack: ExitStack,
    ) -> None:
        """`given` is used as long as the stream has no configuration, and says how to reach an API server."""
        self._job, self._scope = job, job_scope(job)
        self._home = home
        self._log = log
        self._stream = stream
        self._given = given
        self._clock = clock
        self._stack = stack
        self._is_forgotten = False

    @property
    def lease_s(self) -> float:
        """How long a silent coordinator is left alone."""
        return self._known.coordinator.lease_ttl_s

    @property
    def _known(self) -> Settings:
        settings = self._stream.settings()
        return settings if settings.raw else self._given

    @cached_property
    def _coordination(self) -> Coordination:
        """Opened when it is first asked: on Kafka it takes a connection of its own."""
        given = self._given.raw
        own = {key.name: given[key.name] for key in (KUBECONFIG, CONTEXT) if key.name in given}
        known = Settings.of({**self._known.raw, **own})  # a pod reaches its API server otherwise than we do
        coordination = open_coordination(known, self._home, self._clock, ttl_s=self.lease_s)
        self._stack.callback(coordination.close)
        return coordination

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
        """What the service says, asked again while it does not answer."""
        deadline = Deadline(self._clock, _ANSWERS_WITHIN_S)
        while True:
            try:
                return ask()
            except GreteError as error:
                if not error.may_pass or not deadline.pause():
                    raise

    def holder(self) -> Holder | None:
        """The coordinator that runs the job now."""
        return self._answer(lambda: self._coordination.holder(self._scope))

    def is_silent(self) -> bool:
        """Whether the holder has given no sign of life for the lease since the first call: it is dead or hangs."""
        return self._answer(lambda: self._coordination.is_silent(self._scope))

    def leading_epoch(self) -> int | None:
        """The epoch of the coordinator that leads now; None when none does."""
        return self._answer(lambda: self._coordination.leading_epoch(self._scope))

    def epoch_to_ask(self) -> int:
        """The epoch of the coordinator of whom something is asked.

        The recorded state is still that of the run before while a coordinator starts, so the election says it.

        Raises:
            JobError: the job is not running.
        """
        epoch = self.leading_epoch()
        if epoch is None:
            raise JobError(f"job {self._job.shown} is not running")
        return epoch

    def standbys(self) -> Sequence[Member]:
        """The coordinators that stand by for this job, the first to begin first."""
        cells = self._coordination.cells(self._scope)
        return self._answer(standbys(cells, self._clock, lease_s=self.lease_s).heard_of)

    def heard_of(self, scope: str) -> Sequence[Member]:
        """The members of a scope of cells that gave notice within the lease, the first to join first; for people."""
        members = Membership(self._coordination.cells(scope), self._clock, ttl_s=self.lease_s)
        return self._answer(members.heard_of)

    @contextmanager
    def stopped(self, way_out: str) -> Iterator[Leadership]:
        """Keep the job from being started while the caller changes what it starts from, or ends what is left of it.

        Raises:
            HeldByOther: it runs; names who runs it, and the way out.
        """
        floor = recorded_epoch(self._stream)
        try:
            leadership = lead(self._coordination, self._log, self._scope, self._clock, epoch_floor=floor)
        except HeldByOther as error:
            raise HeldByOther(f"job {self._job.shown}", f"{error.holder}: {way_out}") from error
        try:
            yield leadership
        finally:
            if not self._is_forgotten:
                self._coordination.release(leadership)

    def forget(self, leadership: Leadership) -> None:
        """Remove the job from the service that elects its leaders; see `forget_scope`."""
        forget_scope(self._coordination, leadership)
        self._is_forgotten = True
