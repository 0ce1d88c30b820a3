"""The coordinator's loop between its stream, its launcher, and containers whose heartbeats come at any moment."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from grete.assembly.stop_signals import StopSignals
from grete.config.settings import Settings
from grete.config.settings.coordinator import RetryPolicy
from grete.coordination.memory import MemoryCoordination
from grete.coordinator.events import (
    ContainerPaused,
    ContainerRequested,
    Event,
    ModelChanged,
    ReloadRequested,
    Run,
    Tick,
)
from grete.coordinator.heartbeat_registry import ContainerSlot, HeartbeatRegistry
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.metadata_manager import MetadataMetrics
from grete.coordinator.renewal import Renewal
from grete.coordinator.request_reader import RequestReader
from grete.coordinator.state import ContainerSpec, Phase, State
from grete.coordinator.view import View
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.memory import MemoryKeyedLog
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.metadata.container_requests import ask_container
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.metadata.launches import read_broken_off, read_launches
from grete.model.ending import ExitCode
from grete.model.ids import ContainerId, JobId
from grete.model.job import ContainerModel, JobModel
from grete.testing.clock import ManualClock
from grete.wire.container_protocol import Command, Directive, Heartbeat

JOB = JobId("orders")
ZERO = ContainerId("0")
SPEC = ContainerSpec("tasks", "query", "process")


def nothing() -> None:
    pass


class Log(MemoryKeyedLog):
    """Lets something happen while a record is on its way."""

    meanwhile: Callable[[], None] = staticmethod(nothing)

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        self.meanwhile()
        return super().append(entries, fence=fence, append_id=append_id)


class Registry(HeartbeatRegistry):
    """Lets something happen before a slot is looked at."""

    meanwhile: Callable[[], None] = staticmethod(nothing)

    def slot(self, container: ContainerId) -> ContainerSlot | None:
        self.meanwhile()
        return super().slot(container)


class Containers(Launcher):
    """Containers that end when a test says so."""

    def __init__(self) -> None:
        self.started: list[ContainerStart] = []
        self.asked: list[str] = []
        self.refusals: list[OSError] = []
        self._ended: list[ContainerExit] = []

    def start(self, container: ContainerStart) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.started.append(container)

    def end(self, code: int) -> None:
        last = self.started[-1]
        self._ended.append(ContainerExit(last.container_id, last.epoch, code, ""))

    def exits(self) -> list[ContainerExit]:
        ended, self._ended = self._ended, []
        return ended

    def request_stop(self, container_id: ContainerId) -> None:
        self.asked.append("stop")

    def kill(self, container_id: ContainerId) -> None:
        self.asked.append("kill")

    def handle(self, container_id: ContainerId) -> str:
        return ""

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        return False

    def abandon(self) -> None:
        pass

    def close(self) -> None:
        pass


class Job:
    """Nothing arrives in its stream."""

    def environment(self, container: ContainerId, epoch: int) -> dict[str, str]:
        return {}

    def preferred_host(self, container: ContainerId) -> str:
        return "host-of-its-stores"

    def __init__(self) -> None:
        self.fences: list[tuple[ContainerId, int]] = []

    def fence_off(self, container: ContainerId, epoch: int) -> None:
        self.fences.append((container, epoch))

    def serve(self, revision: int) -> None:
        pass

    def fit(self, containers: Sequence[ContainerId]) -> None:
        pass

    def retreat(self, container: ContainerId, reason: str) -> None:
        pass

    def poll(self, state: State) -> Iterable[ModelChanged]:
        return ()


class Coordinator:
    """A coordinator that has launched the only container of its job."""

    def __init__(self) -> None:
        clock = self.clock = ManualClock()
        coordination = MemoryCoordination(clock)
        leadership = coordination.campaign("job/orders")
        self.log, self.containers = Log(clock), Containers()
        stream = self.stream = CoordinatorStream(self.log, clock, source="test")
        self._posted: list[Event] = []
        self.job = Job()
        self.loop = CoordinatorLoop(
            renewal=Renewal(coordination, leadership, clock, every_s=5, patience_s=600),
            launcher=self.containers,
            stream=stream,
            clock=clock,
            state=State(RetryPolicy()),
            job=self.job,
            post=self._posted.append,
        )
        self.registry = self.loop.registry = Registry()
        self.view = View(JOB, stream, MetadataMetrics(), "run", leadership.epoch, clock)
        self.view.containers.loop = self.loop
        self.serve("first")
        self.loop.handle(ModelChanged(1, {ZERO: SPEC}))

    def serve(self, which: str) -> None:
        self.view.containers.serve(
            Settings.of({"which": which}), JobModel({}, {ZERO: ContainerModel(ZERO, {})})
        )

    def hears(self, serial: int) -> None:
        """A heartbeat of a container that runs its command of this number."""
        self.view.containers.heartbeat(
            ZERO, Heartbeat(self.containers.started[-1].epoch, "running", serial=serial)
        )

    def ends(self, code: int) -> None:
        """The container ends."""
        self.containers.end(code)
        self.turn()

    def turn(self) -> None:
        """Everything that has been posted is handled."""
        posted, self._posted[:] = [*self._posted] or [Tick()], []
        self.loop.turn(posted)


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    made = StopSignals()
    made.listen()
    yield made
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_a_request_over_http_is_looked_at_at_once(coordinator: Coordinator) -> None:
    coordinator.view.requests.write("stop", None, 30, "a test")
    coordinator.view.requests.write("restart", "0", 30, "a test")
    assert coordinator._posted == [Tick(), Tick()]


def test_a_host_that_is_asked_for_counts_for_the_next_incarnation_alone(coordinator: Coordinator) -> None:
    """Without one it is the host of its stores, and any other will do; names that are no host's are passed over."""
    ask_container(coordinator.stream, ZERO, "restart", coordinator.loop._renewal.epoch, 30, "", "no host!")
    reader = RequestReader(coordinator.stream, coordinator.loop._renewal.epoch, 0)
    assert list(reader.of_containers()) == []
    ask_container(coordinator.stream, ZERO, "restart", coordinator.loop._renewal.epoch, 30, "", "node-3")
    [asked] = reader.of_containers()
    coordinator.loop.handle(asked)
    coordinator.ends(0)
    coordinator.ends(6)
    assert [(one.host, one.is_host_required) for one in coordinator.containers.started] == [
        ("host-of-its-stores", False),
        ("node-3", True),
        ("host-of-its-stores", False),
    ]
    [recorded] = [row for row in History(coordinator.stream).rows() if row.event == "container-requested"]
    assert recorded.details["host"] == "node-3"


def test_a_container_that_cannot_be_started_has_failed_and_is_started_again(coordinator: Coordinator) -> None:
    """No descriptor, no process, no space: the coordinator outlives it, and the retry window counts it."""
    coordinator.containers.refusals.append(OSError(24, "Too many open files"))
    coordinator.ends(1)
    for _ in range(5):
        coordinator.clock.advance(30)
        coordinator.turn()
    assert coordinator.containers.refusals == []
    assert coordinator.loop.state.phase is Phase.RUNNING
    assert len(coordinator.containers.started) == 2
    assert coordinator.loop.state.containers[ZERO].running


def test_a_container_that_runs_what_it_was_told_last_and_ends_has_done_it(coordinator: Coordinator) -> None:
    coordinator.loop.handle(ReloadRequested((ZERO,)))
    coordinator.hears(serial=2)
    coordinator.turn()
    coordinator.ends(0)
    assert coordinator.loop.state.phase is Phase.FINISHED


def test_a_job_that_has_ended_leaves_no_container_for_the_next_start_to_take_over(
    coordinator: Coordinator,
) -> None:
    """One whose exit was not seen any more would end the next run for the reason of the one before."""
    assert set(read_launches(coordinator.stream)) == {ZERO}
    coordinator.loop.forget_containers()
    assert read_launches(coordinator.stream) == {}
    assert set(read_broken_off(coordinator.stream)) == {ZERO}, "and it is fenced off: nobody saw it end"


def test_who_broke_off_is_known_to_the_next_coordinator_until_it_is_fenced_off(
    coordinator: Coordinator,
) -> None:
    """A driver was killed: executors that have not noticed would commit while others have their tasks."""
    [launched] = coordinator.containers.started
    coordinator.loop.handle(ContainerRequested(ZERO, "stop", 30, "a test"))
    coordinator.ends(-9)
    coordinator.ends(-9)
    assert (read_launches(coordinator.stream), read_broken_off(coordinator.stream)) == (
        {},
        {ZERO: launched.epoch},
    )
    coordinator.loop.forget_containers()
    assert set(read_broken_off(coordinator.stream)) == {ZERO}, "the job's end is not theirs"
    coordinator.job.fences.clear()
    coordinator.loop.adopt()
    [(container, epoch)] = coordinator.job.fences
    assert (container, epoch > launched.epoch) == (ZERO, True)
    assert read_broken_off(coordinator.stream) == {}


@pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.STOPPED])
def test_of_one_that_ended_by_itself_nothing_is_left(coordinator: Coordinator, code: ExitCode) -> None:
    coordinator.loop.handle(ContainerRequested(ZERO, "stop", 30, "a test"))
    coordinator.ends(code)
    assert (read_launches(coordinator.stream), read_broken_off(coordinator.stream)) == ({}, {})


@pytest.mark.parametrize("moves", [True, False])
def test_who_broke_off_is_forgotten_when_it_is_fenced_off_or_runs_again(
    coordinator: Coordinator, moves: bool
) -> None:
    coordinator.loop.handle(ContainerRequested(ZERO, "stop", 30, "a test"))
    coordinator.ends(1)
    assert set(read_broken_off(coordinator.stream)) == {ZERO}
    if moves:
        coordinator.loop.handle(ModelChanged(2, {ZERO: replace(SPEC, tasks="others")}))
        assert [container for container, _ in coordinator.job.fences] == [ZERO]
    else:
        coordinator.loop.handle(ContainerRequested(ZERO, "start", 30, "a test"))
        coordinator.loop.handle(ContainerRequested(ZERO, "stop", 30, "a test"))
        coordinator.ends(0)
    assert (read_launches(coordinator.stream), read_broken_off(coordinator.stream)) == ({}, {})


def test_a_heartbeat_that_comes_while_something_else_is_about_to_be_told_does_not_speak_of_that(
    coordinator: Coordinator,
) -> None:
    """Else the end of what the container ran before was taken for the end of a rewind that it never began."""
    coordinator.log.meanwhile = lambda: coordinator.hears(serial=1)
    coordinator.loop.handle(ReloadRequested((ZERO,)))
    coordinator.log.meanwhile = nothing
    coordinator.turn()
    coordinator.ends(0)
    assert coordinator.loop.state.phase is Phase.RUNNING
    assert len(coordinator.containers.started) == 2


def test_a_container_is_never_given_an_older_model_under_a_newer_number(coordinator: Coordinator) -> None:
    """It would not look again, since it has that number already."""

    def changes() -> None:
        coordinator.registry.meanwhile = nothing
        coordinator.serve("second")
        coordinator.loop._execute(Run(ZERO))

    coordinator.registry.meanwhile = changes
    assignment = coordinator.view.containers.assignment(ZERO)
    assert assignment is not None
    assert (assignment.serial, assignment.config) == (2, {"which": "second"})


def test_one_that_gets_ready_is_given_no_task_before_its_record_has_them(coordinator: Coordinator) -> None:
    """Not though the model that has its tasks is served: a successor would believe that it holds none."""
    one = ContainerId("1")
    apart = {ZERO: replace(SPEC, tasks="fewer"), one: replace(SPEC, tasks="the others")}
    coordinator.loop.handle(ModelChanged(2, apart))
    coordinator.view.containers.coming = Settings.of({"which": "second"})
    model = {id_: ContainerModel(id_, {}) for id_ in apart}
    coordinator.view.containers.serve(Settings.of({"which": "second"}), JobModel({}, model))
    ready = coordinator.view.containers.assignment(one)
    assert ready is not None
    assert (ready.warms_up, ready.config, ready.tasks) == (True, {"which": "second"}, ())
    assert read_launches(coordinator.stream)[one].tasks == ""
    answer = coordinator.view.containers.heartbeat(one, Heartbeat(ready.epoch))
    assert answer == Directive(Command.PAUSE, 2)
    for id_ in (one, ZERO):
        coordinator.loop.handle(ContainerPaused(id_, coordinator.loop.state.containers[id_].launch, 2))
    assert read_launches(coordinator.stream)[one].tasks == "the others"
    runs = coordinator.view.containers.assignment(one)
    assert runs is not None
    assert (runs.warms_up, runs.serial) == (False, ready.serial + 2)


def test_a_signal_that_came_before_there_was_a_loop_stops_the_job_and_the_next_one_kills(
    coordinator: Coordinator, signals: StopSignals
) -> None:
    signal.raise_signal(signal.SIGTERM)
    coordinator.loop.turn([*signals.requests(30), Tick()])
    assert coordinator.loop.state.phase is Phase.STOPPING
    assert coordinator.containers.asked == ["stop"]
    coordinator.loop.turn([*signals.requests(30), Tick()])
    assert coordinator.containers.asked == ["stop"]
    signal.raise_signal(signal.SIGINT)
    coordinator.loop.turn([*signals.requests(30), Tick()])
    assert coordinator.containers.asked == ["stop", "kill"]
