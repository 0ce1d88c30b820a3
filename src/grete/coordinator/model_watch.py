"""The monitors of the job model in force, and the consequences of what they find."""

from __future__ import annotations

import logging
from collections.abc import Callable

from grete.checkpoint.latest_offsets import LatestOffsets
from grete.checkpoint.names import checkpoint_log_name
from grete.clock import Clock
from grete.config.settings import Settings
from grete.coordinator import events
from grete.coordinator.attempt import Surroundings
from grete.coordinator.monitors.findings import (
    Finding,
    LagMeasured,
    PartitionsChanged,
    QueryStuck,
    SilentContainer,
    StreamsChanged,
)
from grete.coordinator.monitors.watch import Monitors, Watched
from grete.coordinator.plan import JobPlan, Planner
from grete.coordinator.view import View
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.model.ids import JobId

_log = logging.getLogger("grete.coordinator")


class ModelWatch:
    """Watches one model after the other. What is found is kept until the loop has acted on it."""

    def __init__(
        self,
        job: JobId,
        stream: CoordinatorStream,
        planner: Planner,
        view: View,
        surroundings: Surroundings,
        clock: Clock,
    ) -> None:
        self._job = job
        self._stream = stream
        self._planner = planner
        self._view = view
        self._surroundings = surroundings
        self._clock = clock
        self._checkpoints: LatestOffsets | None = None
        self.has_grown = False
        """Whether inputs have more partitions than the model."""
        self.has_new_streams = False
        """Whether the inputs that a pattern chooses are not those of the model."""

    def begin(self, plan: JobPlan, settings: Callable[[], Settings]) -> None:
        """Watch this model from now on; `settings` gives those in force."""
        self.close()
        if self._checkpoints is None:
            log = self._planner.commit_system(plan.settings).checkpoint_log(checkpoint_log_name(self._job))
            self._checkpoints = LatestOffsets(log)
        watched = Watched(
            settings=settings,
            model=plan.model,
            modelled=plan.partitions,
            systems=self._planner.systems,
            checkpoints=self._checkpoints.read,
            containers=self._view.containers.container_facts,
        )
        self._view.monitors = Monitors(watched, self._clock, self._on_finding)
        self._surroundings.watch(self._view.monitors)

    def close(self) -> None:
        """End the monitors."""
        if self._view.monitors is not None:
            self._view.monitors.close()

    def _on_finding(self, finding: Finding) -> None:
        """Called from the monitors' thread."""
        match finding:
            case SilentContainer(container, launch, silent_s):
                reason = f"no heartbeat for {silent_s:.0f} s"
                self._surroundings.post(events.ContainerSilent(container, launch, reason))
            case PartitionsChanged(grown, shrunk):
                for change in shrunk:
                    _log.error("%s has %s partitions, it had %s", change.stream, change.now, change.before)
                if grown:
                    self.has_grown = True
            case StreamsChanged():
                self.has_new_streams = True
            case QueryStuck(container, _, stuck_s, batch_id, lag):
                text = f"container {container} has {lag} records to read and no batch since {stuck_s:.0f} s"
                _log.error("%s, the last was %s", text, batch_id)
                History(self._stream).append("query-stuck", container=container, problem=text)
            case LagMeasured():
                pass  # shown by status and metrics
