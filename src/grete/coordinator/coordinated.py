"""A job while it is coordinated: what the loop asks of it, and how it follows its coordinator stream.

The stream is the only way in: configurations of any writer, requests, startpoints. What cannot be followed (an
invalid configuration, a model that is refused) leaves the last good one in force and is shown as the job's problem.
What only cannot be followed while a store does not answer is tried again until it does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from grete.clock import Clock
from grete.config.derived import canonical_keys
from grete.config.key_tables.autosizing import AUTOSIZING_BATCH, AUTOSIZING_COUNT, AUTOSIZING_EXECUTORS
from grete.config.rules.changes import diff
from grete.config.rules.validate import validate
from grete.config.secrets import variables
from grete.config.settings import Settings
from grete.coordinator import fencing
from grete.coordinator.attempt import AttemptWriter, Surroundings
from grete.coordinator.autosizer import Autosizer
from grete.coordinator.batch_sizing import BatchSize
from grete.coordinator.events import (
    Event,
    ModelChanged,
    PolicyChanged,
    ReloadRequested,
    RetreatRefused,
)
from grete.coordinator.model_watch import ModelWatch
from grete.coordinator.plan import JobPlan, Planner, container_specs
from grete.coordinator.request_reader import RequestReader
from grete.coordinator.room import ContainerRoom
from grete.coordinator.run_report import RunReport
from grete.coordinator.sizing import Sizing
from grete.coordinator.state import Phase, State
from grete.coordinator.view import View
from grete.errors import ConfigError, GreteError, JobError, StreamError, UnsafeStorage
from grete.failpoints import failpoint
from grete.metadata.change_authors import described
from grete.metadata.config_history import config_before, write_at_work
from grete.metadata.coordinator_stream import GENERATION, CoordinatorStream
from grete.metadata.job_state import (
    REQUEST,
)
from grete.metadata.locality import LocalityManager
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


_REFUSALS = (ConfigError, StreamError, JobError, UnsafeStorage, OSError)
"""Why a configuration is not followed. Any other LogError ends this coordinator: what it wrote is in doubt; the next
one reads it again."""


class CoordinatedJob:
    """Implements `coordinator.loop.Job`. Called by the loop's thread only; `first_epoch` as for `RequestReader`."""

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
        first_epoch = attempt.epoch if first_epoch is None else first_epoch
        self._requests = RequestReader(stream, attempt.epoch, first_epoch)
        self._report = RunReport(stream, view, attempt)
        self._room = ContainerRoom(stream, clock)
        self._clock = clock
        self._plans: dict[int, JobPlan] = {}
        self._revision = 0
        self._watch = ModelWatch(job, stream, planner, view, surroundings, clock)
        self._autosizer = Autosizer(view, clock)
        self._has_to_follow = False
        self._is_foreign = False
        self._seen = replace(
            _Counts.of(stream), requests=-1
        )  # written while we started, or while there was no leader
        self._looked_s = 0.0
        self._again_at_s = float("-inf")
        self._compaction = StreamCompaction(stream)
        self._good: Settings | None = None
        """With which all containers were last at work."""
        self._retreat: tuple[Mapping[str, str], str] = ({}, "")
        """A configuration that was taken up again, and why."""
        self._startpoints = -1  # adopted containers may not know of any

    def begin(self, plan: JobPlan) -> ModelChanged:
        """The event that starts the job with this plan."""
        self._settings = plan.settings
        self._has_to_follow = self._stream.config() != plan.settings.raw  # written while we planned
        before = config_before(self._stream, plan.settings.raw)
        if before is None:
            return self._changed_to(plan, "")
        self._good = before
        return self._changed_to(plan, _changed_keys(before.raw, plan.settings.raw))

    def _changed_to(self, plan: JobPlan, cause: str) -> ModelChanged:
        self._revision += 1
        self._plans[self._revision] = plan
        self._view.containers.coming = plan.settings
        mode = "until-drained" if self._view.containers.until_drained else ""
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
            trace=self._surroundings.trace(),
        )
        return made.variables()

    def preferred_host(self, container: ContainerId) -> str:
        """See coordinator.loop.Job: its last one, with host affinity."""
        if not self._settings.job.is_host_affinity:
            return ""
        return LocalityManager(self._stream).read_locality().get(container, "")

    def fence_off(self, container: ContainerId, epoch: int) -> None:
        """See coordinator.loop.Job."""
        fencing.fence_off(self._job, container, epoch, self._settings, self._planner.systems)

    def serve(self, revision: int) -> None:
        """See coordinator.loop.Job."""
        plan = self._plans[revision]
        self._plans = {number: kept for number, kept in self._plans.items() if number >= revision}
        self._view.containers.serve(plan.settings, plan.model)
        self._watch.begin(plan, lambda: self._settings)

    def fit(self, containers: Sequence[ContainerId]) -> None:
        """See coordinator.loop.Job."""
        self._room.fit(containers, self._settings.coordinator.debounce_s)

    def close(self) -> None:
        """End the monitors."""
        self._watch.close()

    def poll(self, state: State) -> Iterator[Event]:
        """See coordinator.loop.Job."""
        if state.phase is not Phase.RUNNING:
            return
        self._report.write()
        self._note_what_works(state)
        self._compaction.step()
        now = _Counts.of(self._stream)
        before, self._seen = self._seen, now
        if now.requests != before.requests:
            yield from self._asked_for(state)
        if self._view.containers.is_ready():
            yield from self._rewound(now.startpoints)
        if now.generations != before.generations:
            self._room.forget()
        if self._has_settled(before, now) or self._watch.has_grown:
            self._watch.has_grown, self._has_to_follow = False, True
        if self._watch.has_new_streams and self._may_try():
            self._watch.has_new_streams = False
            self._take_in_streams()
        is_settled = not self._has_to_follow and not self._view.containers.until_drained
        if is_settled and (sizing := self._autosizer.look(self._settings)) is not None:
            self._resize(sizing)
        self._view.sizing = self._autosizer.standing
        if self._has_to_follow and self._may_try():
            self._has_to_follow = False
            yield from self._follow()

    def _note_what_works(self, state: State) -> None:
        if self._good is self._settings or state.revision != self._revision:
            return
        if not any(one.untried for one in state.containers.values()):
            self._good = self._settings
            write_at_work(self._stream, self._good.raw, self._attempt.run_id)

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
                self._report.show(f"new input streams are not taken in: {error}")
            return
        run_id = self._stream.run_id() or ""
        self._stream.write_config(config, run_id=run_id, reason="streams that the input regex matches")

    def _resize(self, sizing: Sizing | BatchSize) -> None:
        """What was decided becomes a configuration of its own, which is then followed like any."""
        in_force = self._stream.settings().raw
        if isinstance(sizing, BatchSize):
            size, number = AUTOSIZING_BATCH, sizing.records
        else:
            size = AUTOSIZING_EXECUTORS if self._settings.job.is_pipeline else AUTOSIZING_COUNT
            number = sizing.containers
        decided = canonical_keys({**in_force, size.name: str(number)})
        changes = {key: value for key, value in decided.items() if in_force.get(key) != value}
        reason = f"autosizing, {sizing}"
        self._stream.change_config(changes, run_id=self._stream.run_id() or "", reason=reason)
        _log.info("%s", reason)

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

    def _asked_for(self, state: State) -> Iterator[Event]:
        if self._requests.is_drain_new(is_draining=self._view.containers.until_drained):
            self._view.containers.until_drained = True
            self._has_to_follow = True  # the same model again, in another mode
        yield from self._requests.of_the_job()
        if state.specs:
            yield from self._requests.of_containers()
        else:  # no model is in force yet, so the containers are unknown: look again
            self._seen = replace(self._seen, requests=-1)

    def _rewound(self, startpoints: int) -> Iterator[Event]:
        """Startpoints are for SSPs; containers that read these rebuild their query for them."""
        now_s = self._clock.monotonic_s()
        if startpoints == self._startpoints and now_s - self._looked_s < DELIVERED_FOR_S:
            return
        self._startpoints, self._looked_s = startpoints, now_s
        containers = self._view.containers.containers_with_startpoints()
        if containers:
            yield ReloadRequested(containers)

    def _follow(self) -> Iterator[Event]:
        """Make the stream's configuration the one in force, if it can be."""
        began_s = self._clock.monotonic_s()
        settings = self._stream.settings()
        try:
            validate(settings.raw)
            plan = self._planner.plan(settings)
        except _REFUSALS as error:
            if _may_pass(error):
                self._has_to_follow = True
                self._postpone(
                    "the configuration in the coordinator stream is not followed yet", error, began_s
                )
            else:
                self._report.show(f"the configuration in the coordinator stream is not followed: {error}")
            return
        again, problem = self._retreat
        self._report.show(problem if settings.raw == again else "")
        cause = _changed_keys(self._settings.raw, settings.raw)
        keys = [change.key for change in diff(self._settings.raw, settings.raw)]
        self._settings = settings
        self._attempt.change(plan, described(self._stream, keys))
        failpoint("change.replanned")
        yield PolicyChanged(plan.settings.coordinator.retry_policy)
        yield self._changed_to(plan, cause)

    def retreat(self, container: ContainerId, reason: str) -> None:
        """See coordinator.loop.JobPort: as a configuration of its own, which is then followed like any.

        A change that has come meanwhile is followed instead.
        """
        self._stream.catch_up()
        if self._stream.config() != self._settings.raw:
            self._has_to_follow = True
            return
        good = self._good or self._settings
        if why := self._why_not_back_to(good):
            refused = f"{reason}; the configuration before is not taken up again: {why}"
            self._surroundings.post(RetreatRefused(container, refused))
            return
        problem = f"the configuration before is in force again: {reason}"
        self._retreat = (good.raw, problem)
        self._stream.write_config(good.raw, run_id=self._stream.run_id() or "", reason=problem)

    def _why_not_back_to(self, good: Settings) -> str:
        """Empty where there is a way, also while a store that does not answer lets nobody know."""
        if good.raw == self._settings.raw:
            return "nobody knows of another that the containers were at work with"
        try:
            self._planner.plan(good)
        except _REFUSALS as error:
            return "" if _may_pass(error) else str(error)
        return ""

    def _may_try(self) -> bool:
        return self._clock.monotonic_s() >= self._again_at_s

    def _postpone(self, what: str, error: GreteError, began_s: float) -> None:
        """Try again, after as long as the attempt took at least: half of the time is for containers and requests."""
        now_s = self._clock.monotonic_s()
        self._again_at_s = now_s + max(_AGAIN_AFTER_S, now_s - began_s)
        if not self._view.problem.startswith(what):  # each attempt may fail in other words
            self._report.show(f"{what}, and is tried again: {error}", is_refused=False)


def _may_pass(error: Exception) -> TypeGuard[GreteError]:
    return isinstance(error, GreteError) and error.may_pass


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
