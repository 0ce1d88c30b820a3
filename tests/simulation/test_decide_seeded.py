"""The coordinator's decisions under random events from a seed: whatever comes in whatever order, this holds."""

from __future__ import annotations

import os
import random

import pytest

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.decide import decide
from grete.coordinator.events import (
    Action,
    ContainerExited,
    Event,
    Kill,
    Launch,
    ModelChanged,
    RequestStop,
    StopRequested,
    Tick,
)
from grete.coordinator.state import FINAL, ContainerSpec, Phase, State
from grete.model.ids import ContainerId

SEEDS = 20_000 if os.environ.get("GRETE_NIGHTLY") == "1" else 2_000
CONTAINERS = tuple(ContainerId(str(i)) for i in range(3))


class World:
    """The real processes, as the launcher would have them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.running: dict[ContainerId, int] = {}
        self.launched: list[int] = []
        self.reports: list[ContainerExited] = []

    def act(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, Launch):
                assert action.container not in self.running, "two incarnations of one container at once"
                assert action.launch not in self.launched, "a launch number was used twice"
                self.running[action.container] = action.launch
                self.launched.append(action.launch)
            elif isinstance(action, Kill) and action.container in self.running:
                self.end(action.container, -9)
            elif isinstance(action, RequestStop) and self.chance.random() < 0.5:
                self.end(action.container, 0)

    def end(self, container: ContainerId, code: int) -> None:
        if container in self.running:
            report = ContainerExited(container, self.running.pop(container), code)
            self.reports += [report] * self.chance.choice([1, 1, 2])

    def event(self) -> Event:
        choice = self.chance.random()
        if self.reports and choice < 0.6:
            return self.reports.pop(self.chance.randrange(len(self.reports)))
        if self.running and choice < 0.8:
            self.end(self.chance.choice(list(self.running)), self.chance.choice([0, 0, 1, 2, 3, 5, -9, -11]))
        if choice > 0.97:
            return StopRequested(self.chance.choice([0.0, 5.0]))
        return Tick()


@pytest.mark.parametrize("block", range(8))
def test_the_invariants_hold_for_every_seed(block: int) -> None:
    for seed in range(block, SEEDS, 8):
        chance = random.Random(seed)
        policy = RetryPolicy(chance.choice([-1, 0, 1, 3]), chance.choice([1.0, 50.0]), chance.random() < 0.8)
        world, state, now_s = World(chance), State(policy), 0.0
        state, actions = decide(
            state, ModelChanged(1, {id_: ContainerSpec(id_) for id_ in CONTAINERS}), now_s
        )
        world.act(actions)
        for _ in range(120):
            before = state
            now_s += chance.random() * 3
            state, actions = decide(state, world.event(), now_s)
            world.act(actions)
            assert before.phase not in FINAL or (state, actions) == (before, ()), f"seed {seed}"
            assert before.phase is not Phase.STOPPING or not any(isinstance(a, Launch) for a in actions), seed
        if state.phase in (Phase.FINISHED, Phase.STOPPED):
            assert not any(container.running for container in state.containers.values()), f"seed {seed}"
