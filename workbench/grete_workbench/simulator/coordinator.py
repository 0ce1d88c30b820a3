"""A coordinator of the simulated world: the product's own, with a launcher of simulated processes and no HTTP.

Each step of `coordinator.Coordinator` is followed by a chance for everything to go wrong before the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.coordination.lead import lead
from grete.coordination.memory import MemoryCoordination
from grete.coordinator.attempt import Address, Surroundings
from grete.coordinator.coordinator import (
    Adopt,
    Begin,
    Coordinator,
    RequestedRun,
    Serve,
    Served,
    Step,
    WaitForEvents,
)
from grete.coordinator.events import Event, ModelChanged, Tick
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.plan import JobPlan, Planner
from grete.coordinator.renewal import Renewal
from grete.coordinator.state import FINAL, ContainerSpec
from grete.coordinator.view import View
from grete.errors import HeldByOther, JobError
from grete.keyed_log.base import Fence
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import read_state
from grete.metadata.launches import LaunchRecord, read_launches
from grete.model.fence import job_scope
from grete.model.ids import ContainerId
from grete.wire.container_protocol import Command, Directive, Heartbeat, decode, document
from grete_workbench.simulator.conduct import JOB
from grete_workbench.simulator.launcher import SimulatedLauncher
from grete_workbench.simulator.ledger import Violation
from grete_workbench.simulator.processor_launcher import SimulatedProcessors
from grete_workbench.simulator.scheduler import Process, Script, Server, Sleep
from grete_workbench.simulator.stores import ProcessCoordination, ProcessLog, ProcessSystem

if TYPE_CHECKING:
    from grete_workbench.simulator.processor import ProcessorProgram
    from grete_workbench.simulator.world import World

TTL_S = 9.0
_POLL_S = 2.0
_CAMPAIGN_S = 2.0
_MONITORS_S = 6.0


class WatchedPlanner(Planner):
    """Each plan is checked before it is made the job's; one of another configuration may be taken up again."""

    program: CoordinatorProgram

    def plan(self, settings: Settings) -> JobPlan:
        """See Planner."""
        world = self.program.world
        if world.watch.may_go_back(self.program.process.name, settings.raw):
            world.note(f"{self.program.process.name} goes back to the configuration before")
        plan = super().plan(settings)
        world.conduct.check_model(plan)
        return plan


class CoordinatorProgram(Server):
    """One coordinator: with a submitted configuration, or to go on with the stream's."""

    def __init__(
        self,
        world: World,
        host: str,
        number: int,
        submitted: tuple[str, dict[str, str]] | None,
        take_over: bool,
        processor: ProcessorProgram | None = None,
    ) -> None:
        """`processor` is the one that it is a thread of, in a job of stream processors."""
        self.world = world
        self.host = host
        self.url = f"http://{host}/{number}"
        self.submitted = submitted
        self.take_over = take_over
        begin = world.process if processor is None else processor.part
        self.process: Process = begin(f"coordinator {number} on {host}")
        self._processor = processor
        self._clock = self.process.clock
        self.log = ProcessLog(world.stream_log, world, self.process)
        self.system = ProcessSystem(world.system, world, self.process)
        memory = MemoryCoordination(self._clock, leaderships=world.leaderships, ttl_s=TTL_S)
        self.coordination = ProcessCoordination(memory, world, self.process)
        self.launcher: SimulatedLauncher | SimulatedProcessors = SimulatedLauncher(self)
        self.run_id: str | None = None
        self._coordinator: Coordinator | None = None
        self._posted: list[Event] = []
        self._unchanged: dict[ContainerId, LaunchRecord] | None = None
        self._view: View | None = None
        world.servers[self.url] = self
        self.process.spawn(self._main(), 0.1)

    @property
    def home(self) -> Path:
        """The host's directory."""
        return self.world.directory / self.host

    @property
    def loop(self) -> CoordinatorLoop | None:
        """The loop, once there is one."""
        return None if self._coordinator is None else self._coordinator.loop

    @property
    def served(self) -> Mapping[str, str] | None:
        """The configuration that containers get."""
        if self._view is None or not self._view.containers.is_ready():
            return None
        return self._view.containers.served_config

    def ask(self, event: Event) -> None:
        """Post an event of the program that the coordinator is in."""
        self._posted.append(event)

    # --- what containers ask ---

    def serve(self, request: dict[str, Any]) -> Any:
        """See Server."""
        view = self._view
        if view is None:
            return None
        containers = view.containers
        if request["what"] == "container":
            answer = containers.assignment(request["id"])
            if answer is None:
                raise JobError(f"the job has no container {request['id']}")
            return orjson.dumps(document(answer))
        heartbeat = decode(request["body"], Heartbeat)
        directive = containers.heartbeat(request["id"], heartbeat)
        if directive.action is Command.PAUSE and self.world.faults.strikes("forged-pause"):
            containers.heartbeat(request["id"], msgspec.structs.replace(heartbeat, paused=directive.number))
            self.world.stop_a_machine(request["id"])
        return orjson.dumps(document(directive))

    # --- grete run ---

    def _main(self) -> Script:
        leadership = yield from self._campaign()
        self.world.conduct.leads(self, leadership)
        if self._processor is not None:
            self.launcher = SimulatedProcessors(self, leadership.epoch)
        fence = Fence(job_scope(JOB), leadership.epoch)
        yield Sleep()
        renewal = Renewal(self.coordination, leadership, self._clock, every_s=TTL_S / 3, patience_s=4 * TTL_S)
        self.process.spawn(self._renewals(renewal), TTL_S / 3)
        stream = CoordinatorStream(self.log, self._clock, source="job-runner", fence=fence)
        asked = self._asked(stream)
        state = read_state(stream)
        if asked is not None and not (
            state is not None and state.run_id == asked.run_id and state.state in FINAL
        ):
            self.run_id = asked.run_id
            yield from self._coordinate(asked, stream, renewal)
        self.coordination.release(leadership)

    def _campaign(self) -> Any:
        floor = max((record.epoch or 0 for record in self.log.read()), default=0)
        while True:
            try:
                return lead(
                    self.coordination,
                    self.log,
                    job_scope(JOB),
                    self._clock,
                    epoch_floor=floor,
                    take_over=self.take_over,
                    patiently=False,
                )
            except HeldByOther:
                yield Sleep(_CAMPAIGN_S)

    def _asked(self, stream: CoordinatorStream) -> RequestedRun | None:
        """The plan to run; None when there is no configuration at all."""
        run_id = stream.run_id()
        if self.submitted is not None and self.submitted[0] != run_id:
            validate(self.submitted[1])
            return RequestedRun(Settings.of(self.submitted[1]), self.submitted[0], is_submitted=True)
        # a submit that died after it was written: its operator looks before he does it again
        return None if run_id is None else RequestedRun(stream.settings(), run_id, is_submitted=False)

    def _coordinate(self, asked: RequestedRun, stream: CoordinatorStream, renewal: Renewal) -> Script:
        planner = WatchedPlanner(JOB, self.home, stream, self._clock, ExitStack())
        planner.program = self
        planner.systems["local"] = self.system
        self._coordinator = Coordinator(
            JOB,
            asked,
            stream,
            planner,
            renewal,
            self._clock,
            Surroundings(self.home, {}, self._posted.append, lambda monitors: None),
        )
        steps = self._coordinator.steps()
        with self.world.watch.expecting(asked.settings.raw):
            step: Step | None = next(steps)
        while step is not None:
            self._look_at(step, stream)
            yield Sleep(_POLL_S if isinstance(step, WaitForEvents) else 0.001)
            try:
                step = steps.send(self._take(step))
            except StopIteration:
                step = None
        yield Sleep()

    def _look_at(self, step: Step, stream: CoordinatorStream) -> None:
        """Check what has been done up to here, before the world goes on."""
        match step:
            case Begin(settings):
                self.world.watch.reads_config(settings.raw, self.process.name)
            case Adopt(model):
                self._unchanged = self._find_unchanged(stream, model)
            case WaitForEvents() if self._unchanged is not None:
                self._check_adopted(self._unchanged)
                self._unchanged = None
                self.process.spawn(self._monitors(), _MONITORS_S)

    def _take(self, step: Step) -> Served | Iterable[Event] | None:
        match step:
            case Serve(_, view):
                self._view = view
                return Served(Address(self.url, self.home / "token", self.home / "token"), self.launcher)
            case WaitForEvents():
                arrived = [*self._posted] or [Tick()]
                self._posted.clear()
                return arrived
        return None

    def _renewals(self, renewal: Renewal) -> Script:
        while self.coordination.leadership is not None:
            went_well = renewal.tick()
            yield Sleep(TTL_S / 3 if went_well else TTL_S / 12)
        while True:
            yield Sleep(TTL_S)  # the loop learns of it when it acts next

    def _monitors(self) -> Script:
        while True:
            if self._view is not None and self._view.monitors is not None:
                self._view.monitors.tick()
            yield Sleep(_MONITORS_S)

    def _find_unchanged(
        self, stream: CoordinatorStream, first: ModelChanged
    ) -> dict[ContainerId, LaunchRecord]:
        """Containers that run, where they can be found, and already run what the model wants of them."""
        return {
            id_: record
            for id_, record in read_launches(stream).items()
            if first.specs.get(id_) == ContainerSpec(record.tasks, record.query, record.process)
            and self.launcher.runs(id_, record)
        }

    def _check_adopted(self, unchanged: dict[ContainerId, LaunchRecord]) -> None:
        """Nothing may happen to a container of an unchanged model only because its coordinator is another one.

        Raises:
            Violation: one was started, stopped, or had to rebuild its query.
        """
        assert self.loop is not None
        for id_, record in unchanged.items():
            slot = self.loop.registry.slot(id_)
            if not self.launcher.runs(id_, record):
                continue  # it ended meanwhile
            if slot is None or (slot.epoch, slot.directive) != (
                record.epoch,
                Directive(Command.RUN, record.serial),
            ):
                raise Violation("unchanged containers are adopted", f"container {id_}: {record}, now {slot}")
