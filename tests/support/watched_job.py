"""A coordinated job without its loop: tests let time pass, ask for its events, and serve the models that come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.attempt import AttemptWriter, Surroundings
from grete.coordinator.coordinated import CoordinatedJob
from grete.coordinator.events import Event, ModelChanged
from grete.coordinator.health import JobHealth
from grete.coordinator.plan import Planner
from grete.coordinator.state import ContainerSpec, State
from grete.coordinator.view import View
from grete.errors import StreamUnreachable
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId, JobId
from grete.model.job import JobModel
from grete.systems.local.system import LocalSystem
from grete.testing.clock import ManualClock

JOB = JobId("orders")
CONFIG = {
    "job.name": "orders",
    "task.class": "orders:Orders",
    "task.inputs": "local.orders-eu",
    "stores.totals.factory": "grete.store.sqlite",
    "job.config.rewriters": "inputs,environment",
    "job.config.rewriter.environment.class": "environment",
    "job.config.rewriter.inputs.class": "regex-input",
    "job.config.rewriter.inputs.system": "local",
    "job.config.rewriter.inputs.regex": "orders-.*",
}


ZERO = ContainerId("0")
IN_FORCE = State(RetryPolicy(), specs={ZERO: ContainerSpec()})


class Brokers(LocalSystem):
    """The embedded system, if it had brokers that can be away."""

    are_away = False
    answers_after_s = 0.0

    def stream_uid(self, stream: str) -> str:
        self._ask()
        return super().stream_uid(stream)

    def streams(self) -> Sequence[str]:
        self._ask()
        return super().streams()

    def _ask(self) -> None:
        if self.are_away:
            self._clock.wait(threading.Event(), self.answers_after_s)
            raise StreamUnreachable("no broker answers")


class Watched:
    """A job whose coordinator has served its first model; `step` lets five minutes pass."""

    def __init__(
        self,
        home: Path,
        stack: ExitStack,
        asked: Callable[[CoordinatorStream], object] = lambda stream: None,
        config: Mapping[str, str] = CONFIG,
    ) -> None:
        """`asked` was asked for between the election, under epoch 2, and here."""
        self.clock = ManualClock()
        self.stream = CoordinatorStream(MemoryKeyedLog(self.clock), self.clock, source="test")
        self.stream.write_config(config, run_id="run", reason="")
        asked(self.stream)
        self.brokers = Brokers(home / "local", self.clock)
        stack.callback(self.brokers.close)
        self._home, self._stack = home, stack
        self.lead(2)

    def lead(self, epoch: int) -> ModelChanged:
        """A coordinator takes over, with what the stream has; its first model."""
        self.posted: list[Event] = []
        settings, run_id = self.stream.settings(), self.stream.run_id() or ""
        attempt = AttemptWriter(self.stream, run_id, epoch, {})
        self.view = View(JOB, self.stream, attempt.metrics, run_id, epoch, self.clock)
        planner = Planner(JOB, self._home, self.stream, self.clock, self._stack)
        planner.systems["local"] = self.brokers
        self._job = CoordinatedJob(
            JOB,
            self.stream,
            planner,
            self.view,
            attempt,
            Surroundings(self._home, {}, self.posted.append, lambda monitors: None),
            self.clock,
        )
        first = self._job.begin(planner.plan(settings))
        attempt.run(JobHealth())
        self._serve(first)
        return first

    def _serve(self, model: ModelChanged) -> None:
        self._job.serve(model.revision)
        self._revision = model.revision

    def step(self) -> list[ModelChanged]:
        """Look at everything; the models that the loop gets then."""
        self.look()
        return self.changed_models()

    def fit(self, containers: Sequence[ContainerId]) -> None:
        """There is room for these, and was for as long as it takes to count."""
        self._job.fit(containers)
        self.clock.advance(60)
        self._job.fit(containers)

    def retreat(self) -> None:
        """A container does not get to work."""
        self._job.retreat(ZERO, "container 0 ended")

    def look(self) -> None:
        """Monitors look at everything."""
        assert self.view.monitors is not None
        self.clock.advance(300)
        self.view.monitors.tick()

    def changed_models(self) -> list[ModelChanged]:
        """The models that the loop gets, which are served then."""
        found: list[ModelChanged] = []
        for _ in range(3):
            found += [event for event in self.events() if isinstance(event, ModelChanged)]
        for event in found:
            self._serve(event)
        return found

    def events(self, state: State = IN_FORCE) -> list[Event]:
        """The events that have arrived, while the job stands so with the model that is served."""
        return list(self._job.poll(replace(state, revision=self._revision)))

    @property
    def model(self) -> JobModel:
        """The model that containers are served."""
        return self.view.containers.serving()[1]

    def configure(self) -> None:
        """An operator changes the configuration."""
        self.stream.change_config({"task.max.records.per.batch": "7"}, run_id="run")
