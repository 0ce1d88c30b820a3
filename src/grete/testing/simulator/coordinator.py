"""A coordinator of the simulated world: the product's own, with a launcher of simulated processes and no HTTP.

The steps of `grete run` follow each other as in `assembly.run`, with a chance for everything to go wrong in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.coordination.base import Leadership
from grete.coordination.memory import MemoryCoordination
from grete.coordinator.coordinated import CoordinatedJob, Surroundings
from grete.coordinator.events import Event, ModelChanged, Tick
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.metadata_manager import JobCoordinatorMetadataManager
from grete.coordinator.monitors.watch import Monitors
from grete.coordinator.plan import Plan, Planner
from grete.coordinator.renewal import Renewal
from grete.coordinator.state import FINAL, ContainerSpec, State
from grete.coordinator.view import View
from grete.errors import ConfigError, HeldByOther, JobError
from grete.keyed_log.base import Fence
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.metadata.job_state import JobState, read_state, write_state
from grete.metadata.launches import LaunchRecord, read_launches
from grete.model.fence import job_scope
from grete.model.ids import ContainerId
from grete.testing.simulator.conduct import JOB
from grete.testing.simulator.launcher import SimulatedLauncher
from grete.testing.simulator.ledger import Violation
from grete.testing.simulator.scheduler import Process, Script, Server, Sleep
from grete.testing.simulator.stores import ProcessCoordination, ProcessLog, ProcessSystem
from grete.wire.container_protocol import Command, Directive, Heartbeat, decode, document

if TYPE_CHECKING:
    from grete.testing.simulator.world import World

TTL_S = 9.0
_POLL_S = 2.0
_CAMPAIGN_S = 2.0
_MONITORS_S = 6.0


class SteppedLoop(CoordinatorLoop):
    """The loop, given one event after the other instead of waiting for them."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._posted: deque[Event] = deque()

    def post(self, event: Event) -> None:
        """See CoordinatorLoop."""
        self._posted.append(event)

    def turn(self) -> None:
        """Everything that has arrived, or a tick."""
        self.step(self._posted.popleft() if self._posted else Tick())
        while self._posted:
            self.handle(self._posted.popleft())


class SimulatedJob(CoordinatedJob):
    """The job, with monitors that look when the coordinator's second script lets them."""

    def _start_monitors(self, monitors: Monitors) -> None:
        """No thread."""


class CoordinatorProgram(Server):
    """One coordinator: with a submitted configuration, or to go on with the stream's."""

    def __init__(
        self,
        world: World,
        host: str,
        number: int,
        submitted: tuple[str, dict[str, str]] | None,
        take_over: bool,
    ) -> None:
        self.world = world
        self.host = host
        self.url = f"http://{host}/{number}"
        self.submitted = submitted
        self.take_over = take_over
        self.process: Process = world.process(f"coordinator {number} on {host}")
        self._clock = self.process.clock
        self.log = ProcessLog(world.stream_log, world, self.process)
        self.system = ProcessSystem(world.system, world, self.process)
        memory = MemoryCoordination(self._clock, leaderships=world.leaderships, ttl_s=TTL_S)
        self.coordination = ProcessCoordination(memory, world, self.process)
        self.launcher = SimulatedLauncher(self)
        self.loop: SteppedLoop | None = None
        self.run_id: str | None = None
        self._view: View | None = None
        self._job: SimulatedJob | None = None
        world.servers[self.url] = self
        self.process.spawn(self._main(), 0.1)

    @property
    def home(self) -> Path:
        """The host's directory."""
        return self.world.directory / self.host

    @property
    def served(self) -> Mapping[str, str] | None:
        """The configuration that containers are told."""
        if self._view is None or not self._view.is_ready():
            return None
        return self._view.served_config

    # --- what containers ask ---

    def serve(self, request: dict[str, Any]) -> Any:
        """See Server."""
        view = self._view
        if view is None:
            return None
        if request["what"] == "container":
            answer = view.assignment(request["id"])
            if answer is None:
                raise JobError(f"the job has no container {request['id']}")
            return orjson.dumps(document(answer))
        heartbeat = decode(request["body"], Heartbeat)
        directive = view.heartbeat(request["id"], heartbeat)
        if directive.action is Command.PAUSE and self.world.faults.strikes("forged-pause"):
            view.heartbeat(request["id"], msgspec.structs.replace(heartbeat, paused=directive.number))
        return orjson.dumps(document(directive))

    # --- grete run ---

    def _main(self) -> Script:
        leadership = yield from self._campaign()
        self.world.conduct.leads(self, leadership)
        self.log.raise_fence(Fence(job_scope(JOB), leadership.epoch))
        yield Sleep()
        renewal = Renewal(self.coordination, leadership, self._clock, every_s=TTL_S / 3, patience_s=4 * TTL_S)
        self.process.spawn(self._renewals(renewal), TTL_S / 3)
        fence = Fence(job_scope(JOB), leadership.epoch)
        stream = CoordinatorStream(self.log, self._clock, source="job-runner", fence=fence)
        run_id = self.run_id = self._write_config(stream)
        state = read_state(stream)
        if run_id is None or (state is not None and state.run_id == run_id and state.state in FINAL):
            self.coordination.release(leadership)
            return
        yield Sleep()
        config = stream.config()
        self.world.watch.reads_config(config, self.process.name)
        planner = Planner(JOB, self.home, stream, self._clock, ExitStack())
        planner.systems["local"] = self.system
        plan = planner.plan(Settings.of(config))
        self.world.conduct.check_model(plan)
        yield Sleep()
        metadata = self._check_metadata(stream, plan, run_id)
        yield Sleep()
        yield from self._coordinate(stream, planner, plan, metadata, leadership, renewal, run_id)

    def _campaign(self) -> Any:
        floor = max((record.epoch or 0 for record in self.log.read()), default=0)
        while True:
            try:
                return self.coordination.campaign(job_scope(JOB), take_over=self.take_over, epoch_floor=floor)
            except HeldByOther:
                yield Sleep(_CAMPAIGN_S)

    def _write_config(self, stream: CoordinatorStream) -> str | None:
        """Make the submitted configuration the stream's; None when there is none at all."""
        if self.submitted is None:
            return stream.run_id()
        run_id, config = self.submitted
        if stream.run_id() == run_id:
            return run_id  # the submit died after this; whoever submitted looks before he does it again
        problems = ConfigInForce(stream).refusals(config)
        if problems:
            raise ConfigError(*problems)
        validate(config)
        with self.world.watch.expecting(config):
            stream.write_config(config, run_id=run_id)
        return run_id

    def _check_metadata(
        self, stream: CoordinatorStream, plan: Plan, run_id: str
    ) -> JobCoordinatorMetadataManager:
        manager = JobCoordinatorMetadataManager(stream, "NON_YARN")
        new, previous = (
            manager.generate(plan.model, plan.config, {"SAMZA_EPOCH_ID": run_id}),
            manager.read(),
        )
        if manager.check_for_changes(new, previous):
            manager.write(new)
        History(stream).append("attempt", run_id=run_id)
        return manager

    def _coordinate(
        self,
        stream: CoordinatorStream,
        planner: Planner,
        plan: Plan,
        metadata: JobCoordinatorMetadataManager,
        leadership: Leadership,
        renewal: Renewal,
        run_id: str,
    ) -> Script:
        view = View(JOB, stream, metadata.metrics, run_id, leadership.epoch, self._clock)
        view.checkpoint_log = self.system.checkpoint_log
        job = self._job = SimulatedJob(
            JOB,
            stream,
            planner,
            view,
            Surroundings(self.home, self.url, self.home / "token"),
            leadership.epoch,
            self._clock,
            on_change=lambda plan, why: self.world.conduct.check_model(plan),
            on_problem=lambda problem: None,
            post=lambda event: loop.post(event),
        )
        first = job.begin(plan)
        loop = self.loop = SteppedLoop(
            renewal=renewal,
            launcher=self.launcher,
            stream=stream,
            clock=self._clock,
            state=State(plan.settings.coordinator.retry_policy),
            job=job,
        )
        view.loop = loop
        self._view = view
        write_state(stream, JobState("running", run_id, leadership.epoch, self.url))
        yield Sleep()
        unchanged = self._unchanged(stream, first)
        loop.adopt()
        loop.handle(first)
        loop.registry.open()
        self._check_adopted(unchanged)
        self.process.spawn(self._monitors(view), _MONITORS_S)
        while loop.state.phase not in FINAL:
            yield Sleep(_POLL_S)
            loop.turn()
        yield Sleep()
        yield from self._finish(stream, leadership, run_id)

    def _renewals(self, renewal: Renewal) -> Script:
        while self.coordination.leadership is not None:
            went_well = renewal.tick()
            yield Sleep(TTL_S / 3 if went_well else TTL_S / 12)
        while True:
            yield Sleep(TTL_S)  # the loop learns of it when it acts next

    def _monitors(self, view: View) -> Script:
        while True:
            if view.monitors is not None:
                view.monitors.tick()
            yield Sleep(_MONITORS_S)

    def _unchanged(self, stream: CoordinatorStream, first: ModelChanged) -> dict[ContainerId, LaunchRecord]:
        """Containers that run, where they can be found, and already run what the model wants of them."""
        return {
            id_: record
            for id_, record in read_launches(stream).items()
            if first.specs.get(id_) == ContainerSpec(record.tasks, record.query, record.process)
            and self.launcher.runs(record.handle)
        }

    def _check_adopted(self, unchanged: dict[ContainerId, LaunchRecord]) -> None:
        """Nothing may happen to a container of an unchanged model only because its coordinator is another one.

        Raises:
            Violation: one was started, stopped, or told to build its query anew.
        """
        assert self.loop is not None
        for id_, record in unchanged.items():
            slot = self.loop.registry.slot(id_)
            if not self.launcher.runs(record.handle):
                continue  # it ended meanwhile
            if slot is None or (slot.epoch, slot.directive) != (
                record.epoch,
                Directive(Command.RUN, record.serial),
            ):
                raise Violation("unchanged containers are adopted", f"container {id_}: {record}, now {slot}")

    def _finish(self, stream: CoordinatorStream, leadership: Leadership, run_id: str) -> Script:
        """Write the terminal state under our epoch, then release: never the other way round (fault 52)."""
        assert self.loop is not None
        state = self.loop.state
        write_state(stream, JobState(state.phase.value, run_id, leadership.epoch, "", "", state.message))
        yield Sleep()
        self.coordination.release(leadership)
