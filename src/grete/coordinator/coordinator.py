"""A job's coordinator from its election to the end of the job, without threads, HTTP server and wall clock.

`Coordinator.steps` yields the next step, and is sent its answer. The composition root takes the steps with an HTTP
server, an inbox that threads fill, and a launcher of processes; the simulator takes them in its world.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from grete.clock import Clock
from grete.config.clone import with_promotion
from grete.config.derived import with_autosizing_results
from grete.config.key_tables.job import SUCCEEDED_BY
from grete.config.settings import Settings
from grete.config.time_zone import with_time_zone
from grete.coordinator.attempt import Address, AttemptWriter, Surroundings
from grete.coordinator.coordinated import CoordinatedJob
from grete.coordinator.events import Event, ModelChanged
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.plan import Planner
from grete.coordinator.renewal import Renewal
from grete.coordinator.state import FINAL, State
from grete.coordinator.view import View
from grete.errors import ConfigError
from grete.failpoints import failpoint
from grete.launch.base import Launcher
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import JobState
from grete.model.ids import JobId

_log = logging.getLogger("grete.coordinator")


@dataclass(frozen=True, slots=True)
class RequestedRun:
    """The configuration that the job is to run with, and its run. Unless `is_submitted` it is the stream's own."""

    settings: Settings
    run_id: str
    is_submitted: bool
    reason: str = ""

    def write(self, stream: CoordinatorStream, check: Callable[[Settings], None]) -> Settings:
        """Make it the stream's configuration if it was submitted; returns what to run.

        Raises:
            ConfigError: (`check`) the job may not change so, or the configuration makes no job model.
        """
        in_force = stream.settings()
        if successor := in_force.job.succeeded_by:
            raise ConfigError(
                f"job {successor} goes on where this one ended, and writes its streams: run that. To run this one "
                f"again, stop that one, and `grete config unset {SUCCEEDED_BY.name}`; what {successor} has written "
                f"since is written again then"
            )
        if not self.is_submitted:
            return self.settings
        submitted = with_promotion(self.settings, in_force)
        settings = with_time_zone(with_autosizing_results(submitted, in_force), in_force)
        check(settings)  # what makes no job model, or not this job's, is not written
        changes = stream.write_config(settings.raw, run_id=self.run_id, reason=self.reason)
        failpoint("submit.config-written")
        _log.info("configuration written, %d keys changed, run %s", len(changes), self.run_id)
        return stream.settings()


@dataclass(frozen=True, slots=True)
class Begin:
    """The configuration that the job runs with is in the stream."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Serve:
    """Serve the view to containers and operators, though there is no model yet; answered with `Served`."""

    settings: Settings
    view: View


@dataclass(frozen=True, slots=True)
class Served:
    """Where the view is served, the launcher, and the observers of each action and of each change that is over."""

    address: Address
    launcher: Launcher
    on_record: Callable[[str, Mapping[str, str]], None] = lambda event, details: None
    on_change: Callable[[float, str], None] = lambda seconds, cause: None


@dataclass(frozen=True, slots=True)
class Adopt:
    """The containers of the coordinator before are taken over next, and the job is made to run this model."""

    model: ModelChanged


@dataclass(frozen=True, slots=True)
class WaitForEvents:
    """Answered, soon, with the events that have been posted meanwhile; with a `Tick` if there were none."""


@dataclass(frozen=True, slots=True)
class End:
    """All containers have ended; the terminal state is written next."""


Step = Begin | Serve | Adopt | WaitForEvents | End


class Coordinator:
    """The steps of one coordinator, which leads as long as `renewal` proves it, and writes into a fenced `stream`."""

    def __init__(
        self,
        job: JobId,
        asked: RequestedRun,
        stream: CoordinatorStream,
        planner: Planner,
        renewal: Renewal,
        clock: Clock,
        surroundings: Surroundings,
        *,
        until_drained: bool = False,
        first_epoch: int | None = None,
    ) -> None:
        """`first_epoch` is that of the first incarnation that this one goes on for, if not its own."""
        self._job_id = job
        self._asked = asked
        self._stream = stream
        self._planner = planner
        self._renewal = renewal
        self._clock = clock
        self._surroundings = surroundings
        self._until_drained = until_drained
        self._first_epoch = first_epoch
        self._attempt = AttemptWriter(stream, asked.run_id, renewal.epoch, surroundings.environment)
        self.loop: CoordinatorLoop | None = None
        """Once there is one."""

    def steps(self) -> Generator[Step, Any, JobState]:
        """The steps; the last is followed by the job's terminal state. Used once.

        Raises:
            ConfigError, StreamError, JobError: the configuration cannot be followed.
            LeadershipLost, Fenced: another coordinator has taken over, and with it the containers.
            SteppedDown: another one is to lead.
        """
        settings = self._asked.write(self._stream, self._planner.check)
        failpoint("coordinator.bootstrapped")
        yield Begin(settings)
        plan = self._planner.plan(settings)
        self._attempt.begin(plan, self._asked.reason)
        view = self._view(settings)
        served: Served = yield Serve(settings, view)
        self._attempt.address = served.address
        failpoint("coordinator.serving")
        job = CoordinatedJob(
            self._job_id,
            self._stream,
            self._planner,
            view,
            self._attempt,
            self._surroundings,
            self._clock,
            self._first_epoch,
        )
        try:
            model = job.begin(plan)
            self.loop = view.containers.loop = self._loop(settings, job, served)
            self._attempt.run(view.standing())
            yield Adopt(model)
            yield from self._coordinate(self.loop, model, served.launcher)
        finally:
            job.close()
        yield End()
        return self._attempt.end(self.loop.state)

    def _view(self, settings: Settings) -> View:
        attempt = self._attempt
        view = View(self._job_id, self._stream, attempt.metrics, attempt.run_id, attempt.epoch, self._clock)
        view.containers.until_drained = self._until_drained
        view.renewal = self._renewal
        view.containers.checkpoint_log = self._planner.commit_system(settings).checkpoint_log
        return view

    def _loop(self, settings: Settings, job: CoordinatedJob, served: Served) -> CoordinatorLoop:
        return CoordinatorLoop(
            renewal=self._renewal,
            launcher=served.launcher,
            stream=self._stream,
            clock=self._clock,
            state=State(settings.coordinator.retry_policy),
            job=job,
            post=self._surroundings.post,
            on_record=served.on_record,
            on_change=served.on_change,
        )

    def _coordinate(
        self, loop: CoordinatorLoop, model: ModelChanged, launcher: Launcher
    ) -> Generator[Step, Iterable[Event], None]:
        """Adopt what runs, make the job run the model, and react until the end."""
        try:
            loop.begin(model)
            while loop.state.phase not in FINAL:
                loop.turn((yield WaitForEvents()))
            self._renewal.prove()  # what still runs may be a successor's since, who has adopted it
        except BaseException:
            launcher.abandon()  # whatever has ended us: containers go on, and the next coordinator adopts them
            raise
        launcher.close()
        loop.forget_containers()
