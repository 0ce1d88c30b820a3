"""The one place that acts: takes events, asks `decide`, executes what it says while the leadership holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from grete.clock import Clock
from grete.coordinator.decide import decide
from grete.coordinator.events import (
    Action,
    ContainerAtWork,
    ContainerExited,
    ContainerLoaded,
    ContainerSilent,
    Event,
    FenceOff,
    Grant,
    Kill,
    Launch,
    ModelChanged,
    Pause,
    RaiseFence,
    RecordHistory,
    RequestStop,
    Retreat,
    Run,
    StepDown,
)
from grete.coordinator.heartbeat_registry import ContainerSlot, HeartbeatRegistry
from grete.coordinator.renewal import Renewal
from grete.coordinator.state import Barriers, ContainerSpec, ContainerState, Phase, State
from grete.errors import Fenced, GreteError, SteppedDown
from grete.failpoints import failpoint
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.metadata.launches import LaunchRecord, read_broken_off, read_launches, write_end, write_launch
from grete.model.fence import container_epoch
from grete.model.ids import ContainerId
from grete.wire.container_protocol import Command, Directive

_log = logging.getLogger("grete.coordinator")


class JobPort(Protocol):
    """The job that the loop coordinates."""

    def environment(self, container: ContainerId, epoch: int) -> dict[str, str]:
        """The environment that a container is started with."""

    def preferred_host(self, container: ContainerId) -> str:
        """Where its stores may be; empty for anywhere."""

    def fence_off(self, container: ContainerId, epoch: int) -> None:
        """Refuse, from now on and wherever its tasks commit, every epoch of the container below this one."""

    def serve(self, revision: int) -> None:
        """Serve the model of this revision."""

    def fit(self, containers: Sequence[ContainerId]) -> None:
        """Divide the tasks among these containers, once they have been the same for a while."""

    def retreat(self, container: ContainerId, reason: str) -> None:
        """Make the configuration before the one in force the job's again, or post `RetreatRefused`."""

    def poll(self, state: State) -> Iterable[Event]:
        """Events from the coordinator stream since the last call. Called about ten times a second."""


class CoordinatorLoop:
    """Begun once, and turned about ten times a second, until the job is in a final phase.

    `post` takes events for a later turn, from any thread. `on_record` is called with each row of the history, and
    `on_change` with how many seconds a change of the model took, and why it was, when it is over.
    """

    def __init__(
        self,
        *,
        renewal: Renewal,
        launcher: Launcher,
        stream: CoordinatorStream,
        clock: Clock,
        state: State,
        job: JobPort,
        post: Callable[[Event], None],
        on_record: Callable[[str, Mapping[str, str]], None] = lambda event, details: None,
        on_change: Callable[[float, str], None] = lambda seconds, cause: None,
    ) -> None:
        self._renewal = renewal
        self._launcher = launcher
        self._stream = stream
        self._history = History(stream)
        self.clock = clock
        self.state = state
        self._job = job
        self._launches: dict[int, tuple[ContainerId, int]] = {}
        self._records: dict[ContainerId, LaunchRecord] = {}
        self._serial = 0
        self.registry = HeartbeatRegistry()
        self.room: Sequence[ContainerId] = ()
        """See Launcher.room, as it was at the last turn."""
        self.awaited: Mapping[ContainerId, str] = {}
        """See Launcher.awaited, as it was at the last turn."""
        self.post = post
        self._on_record = on_record
        self._on_change = on_change
        self._cause = ""

    def begin(self, model: ModelChanged) -> None:
        """Adopt what runs, and make the job run the model.

        Raises:
            LeadershipLost, Fenced: another coordinator has taken over, and with it the containers.
        """
        self.adopt(untried=model.cause != "")
        self.handle(model)
        self.registry.open()

    def turn(self, events: Iterable[Event]) -> None:
        """Look at exits and at the stream, then handle what has come.

        Raises:
            SteppedDown: an operator asked for it, or the process is about to end.
            LeadershipLost, Fenced: another coordinator has taken over, and with it the containers.
        """
        self._renewal.beat()
        for exit_ in self._launcher.exits():
            launch = self._launches.get(exit_.epoch)
            if launch is not None:
                self.handle(_ended(*launch, exit_))
        self.room, self.awaited = self._launcher.room(), self._launcher.awaited()
        if self.state.phase is Phase.RUNNING and self.room:
            self._job.fit(self.room)
        for found in self._job.poll(self.state):
            self.handle(found)
        for event in events:
            self.handle(event)

    # --- containers of the coordinator before ---

    def adopt(self, *, untried: bool = False) -> None:
        """Take over the containers that an earlier coordinator launched; fence off those that cannot be found.

        They are `untried` when nobody has seen them at work with the configuration that is in force.
        """
        for container, record in sorted(read_launches(self._stream).items()):
            self._serial = max(self._serial, record.serial)
            number = self.state.launches + 1
            start = ContainerStart(container, record.epoch, {})
            if record.handle and self._launcher.adopt(start, record.handle):
                self._take_in(container, number, record, untried=untried)
                continue
            self._fence_off_lost(container)
        for container in sorted(read_broken_off(self._stream)):
            self._fence_off_lost(container)

    def _fence_off_lost(self, container: ContainerId) -> None:
        number = self.state.launches + 1
        self.state = replace(self.state, launches=number)
        self._job.fence_off(container, container_epoch(self._renewal.epoch, number))
        write_end(self._stream, container)
        _log.info("container %s of an earlier coordinator does not run any more", container)

    def _take_in(self, container: ContainerId, number: int, record: LaunchRecord, *, untried: bool) -> None:
        spec = ContainerSpec(record.tasks, record.query, record.process)
        adopted = ContainerState(spec=spec, launch=number, running=True, unsure=True, untried=untried)
        containers = {**self.state.containers, container: adopted}
        self.state = replace(self.state, containers=containers, launches=number)
        self._launches[record.epoch] = (container, number)
        self._records[container] = record
        run = Directive(Command.RUN, record.serial)
        now_s = self.clock.monotonic_s()
        slot = ContainerSlot(
            record.epoch, number, run, record.serial, now_s, record.fence, has_tasks=record.tasks != ""
        )
        self.registry.assign(container, slot)
        self._record("container-adopted", {"container": container, "epoch": str(record.epoch)})
        failpoint("change.adopted")

    # --- actions ---

    def handle(self, event: Event) -> None:
        """Decide about one event and do what was decided."""
        if isinstance(event, ContainerLoaded | ContainerAtWork) and not self._is_last_command(event):
            return
        if isinstance(event, ModelChanged):
            self._cause = event.cause
        before = self.state.barriers
        self.state, actions = decide(self.state, event, self.clock.monotonic_s())
        if isinstance(event, ContainerExited):
            self._forget(event.container, event.launch, may_commit=not event.is_clean)
        for action in actions:
            self._execute(action)
        self._note_change(before)

    def _note_change(self, before: Barriers) -> None:
        now = self.state.barriers
        if now.began_s is None and (before.began_s is not None or now.ended > before.ended):
            self._on_change(now.last_s, self._cause)

    def _is_last_command(self, loaded: ContainerLoaded | ContainerAtWork) -> bool:
        """Whether it speaks of the present directive: a heartbeat may come while the next one is still written."""
        slot = self.registry.slot(loaded.container)
        return slot is not None and (slot.launch, slot.serial) == (loaded.launch, loaded.serial)

    def _execute(self, action: Action) -> None:
        """Do it, unless the leadership it was decided under may be over."""
        self._renewal.prove()
        match action:
            case Grant(revision):
                self._job.serve(revision)
                failpoint("change.granted")
            case Launch():
                self._launch(action)
            case Pause(container, revision):
                self.registry.direct(container, Directive(Command.PAUSE, revision))
            case Run(container):
                self._command_to_run(container)
            case RequestStop(container):
                self.registry.direct(container, Directive(Command.STOP, 0))
                self._launcher.request_stop(container)
            case FenceOff(container, launch):
                self._cut_off(container, launch)
            case RaiseFence(container, fence):
                self._job.fence_off(container, container_epoch(self._renewal.epoch, fence))
                failpoint("change.fence-raised")
            case Kill(container):
                self._launcher.kill(container)
            case RecordHistory(event, details):
                self._record(event, dict(details))
            case Retreat(container, reason):
                self._job.retreat(container, reason)
            case StepDown(reason, ends_process):
                self._step_down(reason, ends_process=ends_process)

    def _cut_off(self, container: ContainerId, launch: int) -> None:
        self._job.fence_off(container, container_epoch(self._renewal.epoch, launch))
        if container in self._records:
            self._forget(container, launch - 1)
        else:
            write_end(self._stream, container)  # its process has ended: nothing of it commits from here on
        failpoint("change.fenced-off")

    def _step_down(self, reason: str, *, ends_process: bool) -> None:
        if not (self._launcher.outlives_coordinator or ends_process):
            why = "the containers are threads of this coordinator, and would end with it"
            self._record("step-down-refused", {"reason": reason, "why": why})
            return
        self._record("stepped-down", {"reason": reason})
        raise SteppedDown(f"epoch {self._renewal.epoch} lets another coordinator lead: {reason}")

    def _launch(self, action: Launch) -> None:
        container, launch, host = action.container, action.launch, action.host
        epoch = container_epoch(self._renewal.epoch, launch)
        self._launches[epoch] = (container, launch)
        self._serial += 1
        spec = self.state.containers[container].spec
        record = LaunchRecord(epoch, self._serial, "", spec.tasks, spec.query, spec.process, epoch)
        self._write_record(container, record)
        begins = Directive(Command.RUN, self._serial)
        if action.barrier:
            begins = Directive(Command.PAUSE, action.barrier)
        slot = ContainerSlot(
            epoch,
            launch,
            begins,
            self._serial,
            self.clock.monotonic_s(),
            epoch,
            has_tasks=spec.tasks != "",
        )
        self.registry.assign(container, slot)
        _log.info("launching container %s, epoch %s", container, epoch)
        try:
            environment, last = self._job.environment(container, epoch), self._job.preferred_host(container)
            self._launcher.start(
                ContainerStart(container, epoch, environment, host or last, is_host_required=host != "")
            )
        except OSError as error:  # no descriptor, no memory, no disk: as if it had ended at once
            _log.error("container %s was not started: %s", container, error)
            self.post(ContainerExited(container, launch, 1, f"it was not started: {error}"))
            return
        handle = self._launcher.handle(container)
        if handle:
            self._write_record(container, replace(record, handle=handle))
        failpoint("coordinator.launched")

    def _command_to_run(self, container: ContainerId) -> None:
        """Its record first: a coordinator after us must never believe that it runs less than it may run."""
        self._serial += 1
        one, known = self.state.containers[container], self._records[container]
        spec, fence = one.spec, known.fence
        if one.fence:
            fence = container_epoch(self._renewal.epoch, one.fence)
        launched = LaunchRecord(
            known.epoch, self._serial, known.handle, spec.tasks, spec.query, spec.process, fence
        )
        self._write_record(container, launched)
        failpoint("change.recorded")
        self.registry.direct(container, Directive(Command.RUN, self._serial), fence)

    def _write_record(self, container: ContainerId, record: LaunchRecord) -> None:
        write_launch(self._stream, container, record)
        self._records[container] = record

    def _forget(self, container: ContainerId, launch: int, *, may_commit: bool = False) -> None:
        """No incarnation up to this launch runs any more. A record left behind is looked for in vain: no harm.

        When executors `may_commit` that have not noticed, that is recorded until it is fenced off or runs again.
        """
        slot = self.registry.slot(container)
        if slot is None or slot.launch > launch:
            return
        self.registry.clear(container, launch)
        self._write_end(container, may_commit=may_commit)

    def _write_end(self, container: ContainerId, *, may_commit: bool) -> None:
        record = self._records.pop(container)
        write_end(self._stream, container, record if may_commit and record.tasks else None)

    def forget_containers(self) -> None:
        """The job has ended and its launcher is closed: the next start adopts none, and fences off what it may find.

        It would take one over whose exit was not seen, for the sake of what it has said of its end: it would end for
        a reason of the run before, as the configuration that was refused there. And of stream processors one may
        stand still through all of that, and go on when others have its tasks.
        """
        for container in sorted(self._records):
            self._write_end(container, may_commit=True)

    def _record(self, event: str, details: dict[str, str]) -> None:
        self._on_record(event, details)
        _log.info("%s %s", event, details)
        try:
            self._history.append(event, **{name.replace("-", "_"): text for name, text in details.items()})
        except Fenced:
            raise
        except GreteError as error:
            # history is for people: losing a row must not end a job that works
            _log.warning("history row %s was not written: %s", event, error)


def _ended(container: ContainerId, launch: int, exit_: ContainerExit) -> Event:
    if exit_.may_live:
        return ContainerSilent(container, launch, exit_.reason, left=exit_.left)
    return ContainerExited(container, launch, exit_.exit_code, exit_.reason, exit_.place, left=exit_.left)
