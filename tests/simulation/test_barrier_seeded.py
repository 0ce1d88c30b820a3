"""Reconfiguration under random events from a seed: never two containers that may commit for one task."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.decide import decide
from grete.coordinator.events import (
    Action,
    ContainerExited,
    ContainerPaused,
    ContainerRequested,
    ContainerSilent,
    Event,
    FenceOff,
    Grant,
    Kill,
    Launch,
    ModelChanged,
    Pause,
    RaiseFence,
    ReloadRequested,
    RequestStop,
    Run,
    Tick,
)
from grete.coordinator.state import FINAL, ContainerSpec, State
from grete.model.ids import ContainerId

SEEDS = 20_000 if os.environ.get("GRETE_NIGHTLY") == "1" else 2_000
STEPS = 150
TASKS = "abcdef"


@dataclass
class Incarnation:
    """A process. It commits for the tasks that it was served, while it is neither paused, fenced off nor ended."""

    container: ContainerId
    launch: int
    tasks: frozenset[str]
    query: str
    process: str
    commands: list[Action] = field(default_factory=list)
    paused: int = 0
    fenced: bool = False
    asked: int = 0
    """The barrier for which it was asked to pause, 0 when it got another command since."""
    raised: bool = False
    """Its fence is above what it was served."""
    running: bool = True
    lingers: bool = False
    """It was killed, and its shares in other processes go on for a while."""

    def may_commit(self) -> bool:
        return (self.running or self.lingers) and not self.fenced and not self.raised and not self.paused


class World:
    """The real processes: answers come late or never, processes die or hang."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.models: dict[int, dict[ContainerId, ContainerSpec]] = {}
        self.served: dict[ContainerId, ContainerSpec] = {}
        self.incarnations: list[Incarnation] = []
        self.reports: list[Event] = []
        self.restarts = 0

    def model(self) -> ModelChanged:
        count = self.chance.choice([1, 1, 2, 3])
        shares: list[str] = [""] * count
        for task in TASKS:
            shares[self.chance.randrange(count)] += task
        query, process = (self.chance.choice("xy") for _ in range(2))
        specs = {ContainerId(str(i)): ContainerSpec(share, query, process) for i, share in enumerate(shares)}
        revision = len(self.models) + 1
        self.models[revision] = specs
        return ModelChanged(revision, specs, self.chance.choice([3.0, 30.0]))

    def alive(self, container: ContainerId) -> Incarnation | None:
        found = [one for one in self.incarnations if one.container == container and one.running]
        return found[-1] if found else None

    def fence(self, container: ContainerId) -> None:
        for one in self.incarnations:
            one.fenced = one.fenced or one.container == container

    def act(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case Grant(revision):
                    self.served = self.models[revision]
                case Launch(container, launch, barrier=barrier):
                    self.fence(container)  # it does so before anything else
                    self.launch(container, launch, barrier)
                case FenceOff(container, _):
                    self.fence(container)
                case RaiseFence(container, _):
                    for one in self.incarnations:
                        one.raised = one.raised or one.container == container
                case Kill(container):
                    if self.chance.random() < 0.8:
                        self.end(self.alive(container), -9)
                case Pause(container) | Run(container) | RequestStop(container):
                    self.send(container, action)

    def launch(self, container: ContainerId, launch: int, barrier: int) -> None:
        """One that gets ready has no task; the query and the process are those of the model that waits."""
        spec = (self.models[barrier] if barrier else self.served)[container]
        tasks = frozenset() if barrier else frozenset(spec.tasks)
        one = Incarnation(container, launch, tasks, spec.query, spec.process)
        if barrier:
            one.commands, one.asked = [Pause(container, barrier)], barrier
        self.incarnations.append(one)

    def send(self, container: ContainerId, word: Action) -> None:
        """Only the last word is on the board."""
        one = self.alive(container)
        if one is not None:
            one.commands = [word]
            one.asked = word.revision if isinstance(word, Pause) else 0

    def end(self, one: Incarnation | None, code: int) -> None:
        if one is None:
            return
        one.running, one.lingers = False, code not in (0, 6)
        report = ContainerExited(one.container, one.launch, code)
        self.reports += [report] * self.chance.choice([1, 1, 2])

    def happen(self) -> None:
        """One process does something."""
        running = [one for one in self.incarnations if one.running]
        if not running:
            return
        one = self.chance.choice(running)
        if self.chance.random() < 0.05:
            self.end(one, self.chance.choice([1, 5, -9]))
        else:
            self.obey(one)

    def obey(self, one: Incarnation) -> None:
        """Do the last command."""
        match one.commands.pop() if one.commands else None:
            case Pause(container, revision):
                one.paused = revision
                self.reports += [ContainerPaused(container, one.launch, revision)] * self.chance.choice(
                    [1, 2]
                )
            case Run(container):
                spec = self.served[container]
                one.tasks, one.query, one.paused, one.raised = frozenset(spec.tasks), spec.query, 0, False
            case RequestStop():
                self.end(one, 0)

    def event(self) -> Event:
        choice = self.chance.random()
        if self.reports and choice < 0.5:
            return self.reports.pop(self.chance.randrange(len(self.reports)))
        if choice < 0.58:
            return self.model()
        containers = [ContainerId(str(i)) for i in range(3)]
        if choice < 0.62:
            return ContainerRequested(
                self.chance.choice(containers), self.chance.choice(["stop", "start", "restart"])
            )
        if choice < 0.65:
            return ReloadRequested(tuple(containers))
        if choice < 0.67 and self.incarnations:
            one = self.chance.choice(self.incarnations)
            return ContainerSilent(one.container, one.launch, "no heartbeat for 10 s")
        if choice < 0.72 and self.incarnations:
            one = self.chance.choice(self.incarnations)
            if one.asked:  # and another one reports that it has
                return ContainerPaused(one.container, one.launch, one.asked)
        return Tick()

    def check(self, seed: int) -> None:
        seen: set[str] = set()
        for one in self.incarnations:
            if one.may_commit():
                assert not seen & one.tasks, f"seed {seed}: two containers commit for {seen & one.tasks}"
                seen |= one.tasks


@pytest.mark.parametrize("block", range(8))
def test_no_task_is_ever_in_two_containers(block: int) -> None:
    for seed in range(block, SEEDS, 8):
        world, state, now_s = World(seed), State(RetryPolicy(-1)), 0.0
        state, actions = decide(state, world.model(), now_s)
        world.act(actions)
        for _ in range(STEPS):
            now_s += world.chance.random() * 2
            world.happen()
            world.check(seed)
            state, actions = decide(state, world.event(), now_s)
            world.act(actions)
            world.check(seed)
            if state.phase in FINAL:
                break
        if state.phase not in FINAL:
            _settles(world, state, now_s, seed)


def _settles(world: World, state: State, now_s: float, seed: int) -> None:
    """Left alone, the job comes to run exactly the last model, whatever had happened before."""
    state, actions = decide(state, world.model(), now_s)
    world.act(actions)
    for _ in range(400):
        now_s += 1
        for container in [id_ for id_, one in state.containers.items() if one.held]:
            state, actions = decide(state, ContainerRequested(container, "start"), now_s)
            world.act(actions)
        for one in [one for one in world.incarnations if one.running]:
            world.obey(one)
        for event in [*world.reports, Tick()]:
            state, actions = decide(state, event, now_s)
            world.act(actions)
        world.reports.clear()
        world.check(seed)
    wanted = world.models[max(world.models)]
    assert state.specs == wanted, f"seed {seed}"
    running = {one.container: one for one in world.incarnations if one.running and one.may_commit()}
    for container, spec in wanted.items():
        assert container in running, f"seed {seed}: {container} does not run, {state.containers[container]}"
        one = running[container]
        runs = ContainerSpec("".join(sorted(one.tasks)), one.query, one.process)
        assert runs == spec, f"seed {seed}"
