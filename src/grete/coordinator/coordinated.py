"""A job while it is coordinated: what the loop asks of it, and how it follows its coordinator stream.

The stream is the only way in: configurations of any writer, requests, startpoints. What cannot be followed (an
invalid configuration, a model that is refused) leaves the last good one in force and is shown as the job's problem.
What only cannot be followed while a store does not answer is tried again until it does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from grete.clock import Clock
from grete.config.key_tables.job import CONTAINER_IDS
from grete.config.rules.changes import diff
from grete.config.rules.validate import validate
from grete.config.secrets import variables
from grete.coordinator import fencing
from grete.coordinator.attempt import AttemptWriter, Surroundings
from grete.coordinator.events import (
    ContainerRequested,
    Event,
    ModelChanged,
    PolicyChanged,
    ReloadRequested,
    StepDownRequested,
    StopRequested,
)
from grete.coordinator.health import JobHealth
from grete.coordinator.model_watch import ModelWatch
from grete.coordinator.plan import JobPlan, Planner, container_specs
from grete.coordinator.state import Phase, State
from grete.coordinator.view import View
from grete.errors import ConfigError, GreteError, JobError, StreamError, UnsafeStorage
from grete.failpoints import failpoint
from grete.metadata.change_authors import described
from grete.metadata.container_requests import read_container_requests
from grete.metadata.coordinator_stream import GENERATION, CoordinatorStream
from grete.metadata.history import History
from grete.metadata.job_state import (
    REQUEST,
    RequestKind,
    read_request,
    read_stop_request,
)
from grete.metadata.startpoint_hand_over import DELIVERED_FOR_S
from grete.metadata.startpoints import NAMESPACE as STARTPOINTS
from grete.metadata.stream_compaction import StreamCompaction
from grete.model.ids import ContainerId, JobId
from grete.model.messages import SET_CONFIG
from grete.wire.container_protocol import ContainerEnvironment

_log = logging.getLogger("grete.coordinator")
_MOST_KEYS = 5
_AGAIN_AFTER_S = 5.0
"""At least, between attempts to follow what a store that does not answer keeps from being followed."""


class CoordinatedJob:
    """Implements `coordinator.loop.Job`. Called by the loop's thread only.

    A request to stop or to drain names the epoch that led when it was made: `first_epoch` or a later one, of
    incarnations that this one goes on for. An earlier one was another run, which has ended. He may have asked since
    the election, long before this began.
    """

    def __init__(
        self,
        job: JobId,
        stream: CoordinatorStream,
        planner: Planner,
        view: View,
        attempt: AttemptWriter,
        surroundings: Surroundings,
        clock: Clock,
        first_epoch: int | None = None,
    ) -> None:
        self._job = job
        self._stream = stream
        self._planner = planner
        self._view = view
        self._attempt = attempt
        self._surroundings = surroundings
        self._first_epoch = attempt.epoch if first_epoch is None else first_epoch
        self._clock = clock
        self._plans: dict[int, JobPlan] = {}
        self._revision = 0
        self._watch = ModelWatch(job, stream, planner, view, surroundings, clock)
        self._has_to_follow = False
        self._is_foreign = False
        self._problem = ""
        self._standing = JobHealth()
        self._obeyed: set[str] = set()
        self._seen = replace(
            _Counts.of(stream), requests=-1
        )  # written while we started, or while there was no leader
        self._looked_s = 0.0
        self._again_at_s = float("-inf")
        self._compaction = StreamCompaction(stream)
        self._room: tuple[ContainerId, ...] = ()
        self._fitted: tuple[ContainerId, ...] = ()
        self._room_since_s = 0.0
        self._startpoints = -1  # adopted containers may not know of any

    def begin(self, plan: JobPlan) -> ModelChanged:
        """The event that starts the job with this plan."""
        self._settings = plan.settings
        self._has_to_follow = self._stream.config() != plan.settings.raw  # written while we planned
        return self._changed_to(plan, "")

    def _changed_to(self, plan: JobPlan, cause: str) -> ModelChanged:
        self._revision += 1
        self._plans[self._revision] = plan
        mode = "until-drained" if self._view.until_drained else ""
        deadline_s = self._settings.coordinator.shutdown_s
        return ModelChanged(self._revision, container_specs(plan, mode=mode), deadline_s, cause)

    # --- what the loop asks ---

    def environment(self, container: ContainerId, epoch: int) -> dict[str, str]:
        """See coordinator.loop.Job."""
        at, home = self._attempt.address, self._surroundings.home
        config = self._settings.coordinator.environment
        channel = "" if at.channel is None else at.channel.address
        made = ContainerEnvironment(
            container,
            epoch,
            at.url,
            at.token_file,
            config,
            home,
            channel=channel,
            configured=variables(self._settings.raw),
        )
        return made.variables()

    def fence_off(self, container: ContainerId, epoch: int) -> None:
        """See coordinator.loop.Job."""
        fencing.fence_off(self._job, container, epoch, self._settings, self._planner.systems)

    def serve(self, revision: int) -> None:
        """See coordinator.loop.Job."""
        plan = self._plans[revision]
        self._plans = {number: kept for number, kept in self._plans.items() if number >= revision}
        self._view.serve(plan.settings, plan.model)
        self._watch.begin(plan, lambda: self._settings)

    def fit(self, containers: Sequence[ContainerId]) -> None:
        """See coordinator.loop.Job. It is written as a change of the configuration, which is then followed."""
        now_s = self._clock.monotonic_s()
        if tuple(containers) != self._room:
            self._room, self._room_since_s = tuple(containers), now_s
        is_settled = now_s - self._room_since_s >= self._settings.coordinator.debounce_s
        if not is_settled or self._room == self._fitted:
            return
        self._fitted = self._room
        if self._room != self._stream.settings().job.container_ids:  # in force now, or soon
            self._stream.change_config(
                {CONTAINER_IDS.name: ",".join(containers)},
                run_id=self._stream.run_id() or "",
                reason="processors came or went",
            )

    def close(self) -> None:
        """End the monitors."""
        self._watch.close()

    def poll(self, state: State) -> Iterator[Event]:
        """See coordinator.loop.Job."""
        if state.phase is not Phase.RUNNING:
            return
        self._report_standing()
        self._compaction.step()
        now = _Counts.of(self._stream)
        before, self._seen = self._seen, now
        if now.requests != before.requests:
            yield from self._requests(state)
        if self._view.is_ready():
            yield from self._rewound(now.startpoints)
        if now.generations != before.generations:
            self._fitted = ()  # what was written may name other containers than there is room for
        if self._has_settled(before, now) or self._watch.has_grown:
            self._watch.has_grown, self._has_to_follow = False, True
        if self._watch.has_new_streams and self._may_try():
            self._watch.has_new_streams = False
            self._take_in_streams()
        if self._has_to_follow and self._may_try():
            self._has_to_follow = False
            yield from self._follow()

    def _take_in_streams(self) -> None:
        """Inputs chosen by pattern: write them as a configuration of their own, which is then followed like any."""
        began_s = self._clock.monotonic_s()
        try:
            config = self._planner.with_new_streams(self._settings)
        except (ConfigError, StreamError) as error:
            if error.may_pass:
                self._watch.has_new_streams = True
                self._postpone("what the input regex has found is not taken in yet", error, began_s)
            else:
                self._show(f"new input streams are not taken in: {error}")
            return
        run_id = self._stream.run_id() or ""
        self._stream.write_config(config, run_id=run_id, reason="streams that the input regex matches")

    def _has_settled(self, before: _Counts, now: _Counts) -> bool:
        """A generation is whole when it is there; foreign writers are given a moment to finish."""
        if now.generations != before.generations:
            return True
        if now.config != before.config:
            self._is_foreign = True
            return False
        settled, self._is_foreign = self._is_foreign, False
        return settled

    # --- what arrives ---

    def _requests(self, state: State) -> Iterator[Event]:
        stop = read_stop_request(self._stream)
        if stop is not None and stop.epoch >= self._first_epoch:
            yield StopRequested(stop.deadline_s, stop.reason)
        drain = read_request(self._stream, RequestKind.DRAIN)
        if drain is not None and drain.epoch >= self._first_epoch and not self._view.until_drained:
            self._view.until_drained = True
            History(self._stream).append("drain-requested", reason=drain.reason)
            self._has_to_follow = True  # the same model again, in another mode
        step_down = read_request(self._stream, RequestKind.STEP_DOWN)
        if step_down is not None and step_down.epoch == self._attempt.epoch:
            yield StepDownRequested(step_down.reason)
        if not state.specs:  # no model is in force yet, so the containers are unknown: look again
            self._seen = replace(self._seen, requests=-1)
            return
        for request in read_container_requests(self._stream):
            if request.epoch == self._attempt.epoch and request.id not in self._obeyed:
                self._obeyed.add(request.id)
                yield ContainerRequested(request.container, request.what, request.deadline_s, request.reason)

    def _rewound(self, startpoints: int) -> Iterator[Event]:
        """Startpoints are for SSPs; containers that read these rebuild their query for them."""
        now_s = self._clock.monotonic_s()
        if startpoints == self._startpoints and now_s - self._looked_s < DELIVERED_FOR_S:
            return
        self._startpoints, self._looked_s = startpoints, now_s
        containers = self._view.containers_with_startpoints()
        if containers:
            yield ReloadRequested(containers)

    def _follow(self) -> Iterator[Event]:
        """Make the stream's configuration the one in force, if it can be."""
        began_s = self._clock.monotonic_s()
        settings = self._stream.settings()
        try:
            validate(settings.raw)
            plan = self._planner.plan(settings)
        except (ConfigError, StreamError, JobError, UnsafeStorage, OSError) as error:
            # any other LogError ends this coordinator: what it wrote is in doubt; the next one reads it again
            if isinstance(error, GreteError) and error.may_pass:
                self._has_to_follow = True
                self._postpone(
                    "the configuration in the coordinator stream is not followed yet", error, began_s
                )
            else:
                self._show(f"the configuration in the coordinator stream is not followed: {error}")
            return
        self._show("")
        cause = _changed_keys(self._settings.raw, settings.raw)
        keys = [change.key for change in diff(self._settings.raw, settings.raw)]
        self._settings = settings
        self._attempt.change(plan, described(self._stream, keys))
        failpoint("change.replanned")
        yield PolicyChanged(plan.settings.coordinator.retry_policy)
        yield self._changed_to(plan, cause)

    def _may_try(self) -> bool:
        return self._clock.monotonic_s() >= self._again_at_s

    def _postpone(self, what: str, error: GreteError, began_s: float) -> None:
        """Try again, after as long as the attempt took at least: half of the time is for containers and requests."""
        now_s = self._clock.monotonic_s()
        self._again_at_s = now_s + max(_AGAIN_AFTER_S, now_s - began_s)
        if not self._problem.startswith(what):  # each attempt may fail in other words
            self._show(f"{what}, and is tried again: {error}", is_refused=False)

    def _report_standing(self) -> None:
        """Let those who look at the stream know that containers start, run, or are started again."""
        stands = self._view.standing()
        if stands != self._standing:
            self._standing = stands
            self._attempt.run(stands, self._problem)

    def _show(self, problem: str, *, is_refused: bool = True) -> None:
        if problem == self._problem:
            return
        self._problem = self._view.problem = problem
        # first: a reader who sees the row in the history finds the problem in the status
        self._attempt.run(self._view.standing(), problem)
        if problem:
            _log.error("%s", problem)
            if is_refused:
                History(self._stream).append("config-refused", problem=problem[:2000])


def _changed_keys(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """A configuration change in the words of the history: the keys, and no values."""
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    if not keys:
        return ""
    more = "" if len(keys) <= _MOST_KEYS else f" and {len(keys) - _MOST_KEYS} more"
    return f"configuration change: {', '.join(keys[:_MOST_KEYS])}{more}"


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many records of some types have been read: a cheap way to see whether there is anything new."""

    config: int
    generations: int
    requests: int
    startpoints: int

    @classmethod
    def of(cls, stream: CoordinatorStream) -> _Counts:
        stream.catch_up()
        counted = stream.taken
        return cls(counted(SET_CONFIG), counted(GENERATION), counted(REQUEST), counted(STARTPOINTS))
