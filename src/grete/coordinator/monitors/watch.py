"""All monitors of a job, made from its configuration, with the readers of their facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from grete.checkpoint.lag import JobLag, active_tasks, measure_lag, read_offsets
from grete.checkpoint.latest_offsets import Offsets
from grete.clock import Clock
from grete.config.rewriters import input_regexes
from grete.config.settings import Settings
from grete.config.settings.coordinator import CoordinatorSettings
from grete.coordinator.monitors.containers import (
    ContainerFacts,
    ContainerLivenessMonitor,
    QueryProgressMonitor,
)
from grete.coordinator.monitors.findings import Finding, LagMeasured
from grete.coordinator.monitors.inputs import InputRegexMonitor, PartitionCountMonitor
from grete.coordinator.monitors.thread import MonitorThread, Poll
from grete.errors import ConfigError, StreamNotFound, StreamUnreachable
from grete.model.ids import ContainerId, SystemStream, TaskName
from grete.model.job import JobModel
from grete.systems.admin import SystemAdmin

_CONTAINERS_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Watched:
    """One job model at work, to be watched.

    `settings` gives those in force, since intervals are live keys; it is asked several times a second, so
    it should give what is kept and not read the stream again. `modelled` are the partition counts that
    the job model was calculated from. `containers` gives what heartbeats have said of the containers that should be
    running now, without their lag.
    """

    settings: Callable[[], Settings]
    model: JobModel
    modelled: Mapping[SystemStream, int]
    systems: Mapping[str, SystemAdmin]
    checkpoints: Callable[[], Mapping[TaskName, Offsets]]
    containers: Callable[[], Mapping[ContainerId, ContainerFacts]]


class Monitors:
    """The monitors of one job model. Make new ones with a new model, and close the old.

    Raises:
        ConfigError: an input regex is wrong.
    """

    def __init__(self, watched: Watched, clock: Clock, on_finding: Callable[[Finding], None]) -> None:
        self._watched = watched
        self.partitions = PartitionCountMonitor(watched.modelled)
        self.inputs = InputRegexMonitor(input_regexes(watched.settings().raw), watched.modelled)
        self._liveness = ContainerLivenessMonitor()
        self._progress = QueryProgressMonitor()
        self.lag: JobLag | None = None
        """The lag measured last."""
        polls = [
            Poll("partition-count", lambda: self._settings().monitor_partitions_s, self._look_at_partitions),
            Poll("lag", lambda: self._settings().monitor_lag_s, self._look_at_lag, at_once=True),
            Poll("containers", lambda: _CONTAINERS_EVERY_S, self._look_at_containers, at_once=True),
        ]
        if self.inputs.regexes:
            polls.append(
                Poll(
                    "input-regex",
                    lambda: self._settings().monitor_regex_s,
                    self._look_at_streams,
                    at_once=True,
                )
            )
        self._thread = MonitorThread(polls, clock, on_finding)

    @property
    def problems(self) -> Mapping[str, str]:
        """See MonitorThread."""
        return self._thread.problems

    def start(self) -> None:
        """Start polling from a thread."""
        self._thread.start()

    def tick(self) -> None:
        """See MonitorThread."""
        self._thread.tick()

    def close(self) -> None:
        """See MonitorThread."""
        self._thread.close()

    def _settings(self) -> CoordinatorSettings:
        return self._watched.settings().coordinator

    # --- looking: read the facts, ask the monitor ---

    def _look_at_partitions(self, now_s: float) -> Sequence[Finding]:
        counts: dict[SystemStream, int] = {}
        missing: StreamNotFound | None = None
        for stream in self._watched.modelled:
            try:
                counts[stream] = self._watched.systems[stream.system].partition_count(stream.stream)
            except StreamNotFound as error:
                missing = error
        found = self.partitions.observe(counts, now_s)
        if missing is not None and not found:
            raise missing  # shown as a problem; the other streams were looked at
        return found

    def _look_at_streams(self, now_s: float) -> Sequence[Finding]:
        systems = {regex.system for regex in self.inputs.regexes}
        return self.inputs.observe({s: self._system(s).streams() for s in systems}, now_s)

    def _system(self, name: str) -> SystemAdmin:
        try:
            return self._watched.systems[name]
        except KeyError:
            raise ConfigError(
                f"an input regex names the system {name!r}, of which the job has no input"
            ) from None

    def measure_lag(self) -> JobLag:
        """Measure now. May be called from any thread."""
        settings = self._watched.settings()
        offsets = read_offsets(settings.task.all_inputs, self._watched.systems)
        tasks = active_tasks(self._watched.model)
        self.lag = measure_lag(settings, tasks, self._watched.checkpoints(), offsets)
        return self.lag

    def _look_at_lag(self, now_s: float) -> Sequence[Finding]:
        lag = self.measure_lag()
        if lag.unreachable:  # shown as a problem; the other partitions were looked at
            waited_for = ", ".join(map(str, lag.unreachable))
            raise StreamUnreachable(
                f"no broker answers for {waited_for}: check that the brokers that hold it run. The job waits for it "
                f"and reads its other partitions"
            )
        return (LagMeasured(lag),)

    def _look_at_containers(self, now_s: float) -> Sequence[Finding]:
        facts = {
            id_: replace(seen, lag=self._lag_of(id_)) for id_, seen in self._watched.containers().items()
        }
        settings = self._settings()
        silent_after_s, stuck_after_s = settings.container_silent_s, settings.query_stuck_s
        found: list[Finding] = []
        if silent_after_s > 0:
            found += self._liveness.observe(facts, now_s, silent_after_s=silent_after_s)
        if stuck_after_s > 0:
            found += self._progress.observe(facts, now_s, stuck_after_s=stuck_after_s)
        return found

    def _lag_of(self, container: ContainerId) -> int | None:
        if self.lag is None or container not in self._watched.model.containers:
            return None
        by_task = self.lag.by_task
        return sum(by_task.get(task, 0) for task in self._watched.model.containers[container].tasks)
