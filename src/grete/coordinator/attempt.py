"""One attempt of a deployment, as the coordinator stream records it: metadata, history, and the state of the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grete.channel.address import ChannelAddress
from grete.coordinator.events import Event
from grete.coordinator.health import JobHealth
from grete.coordinator.metadata_manager import JobCoordinatorMetadataManager, MetadataMetrics
from grete.coordinator.monitors.watch import Monitors
from grete.coordinator.plan import JobPlan
from grete.coordinator.state import State
from grete.failpoints import failpoint
from grete.metadata.change_authors import changed_since_the_last_start, described
from grete.metadata.channels import write_channel
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History, unchanged_attempts
from grete.metadata.job_state import JobState, write_state
from grete.wire.job_coordinator_metadata import epoch_id


@dataclass(frozen=True, slots=True)
class Address:
    """Where a coordinator is served, and the files with the tokens of containers and of readers.

    `channel` is how containers on other machines reach it, if they do.
    """

    url: str
    token_file: Path
    read_token_file: Path
    channel: ChannelAddress | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The process that a job is coordinated in.

    `environment` is its own, `home` that of the job's files. `post` takes events from any thread, which come back as
    answers to `Wait`; `watch` lets monitors look from now on. `trace` is what containers are started for, see
    ContainerEnvironment.
    """

    home: Path
    environment: Mapping[str, str]
    post: Callable[[Event], None]
    watch: Callable[[Monitors], None]
    trace: Callable[[], str] = str


def cluster_type(environment: Mapping[str, str]) -> str:
    """The key of a process's metadata in the stream."""
    return "YARN" if "CONTAINER_ID" in environment else "NON_YARN"


def is_further_attempt(stream: CoordinatorStream, environment: Mapping[str, str]) -> bool:
    """Whether the last attempt that the stream knows was one of the same deployment, which `environment` names."""
    kind = cluster_type(environment)
    before = JobCoordinatorMetadataManager(stream, kind).read()
    return before is not None and before.epoch_id == epoch_id(kind, environment)


class AttemptWriter:
    """Writes what becomes of one incarnation of a coordinator. `environment` names the deployment (S0-31)."""

    def __init__(
        self, stream: CoordinatorStream, run_id: str, epoch: int, environment: Mapping[str, str]
    ) -> None:
        self._stream = stream
        self.run_id = run_id
        self.epoch = epoch
        # outside YARN the run id, unless it is set otherwise
        self._environment = {"SAMZA_EPOCH_ID": run_id, **environment}
        self._manager = JobCoordinatorMetadataManager(stream, cluster_type(environment))
        self.address = Address("", Path(), Path())
        self._has_channel = False

    @property
    def metrics(self) -> MetadataMetrics:
        """The counter and gauges of the attempt."""
        return self._manager.metrics

    def begin(self, plan: JobPlan, reason: str) -> None:
        """Compare with the attempt before, and say whether this is a deployment, a change or an attempt (S0-20)."""
        manager = self._manager
        new, previous = manager.generate(plan.model, plan.settings.raw, self._environment), manager.read()
        event = "attempt"
        if manager.check_for_changes(new, previous):
            event = "deployment" if manager.metrics.newDeployment else "change"
            manager.write(new)
        why = described(self._stream, changed_since_the_last_start(self._stream))
        if reason:
            why["reason"] = reason
        ids = {"config_id": new.config_id, "job_model_id": new.job_model_id}
        history = History(self._stream)
        history.append(event, run_id=self.run_id, epoch_id=new.epoch_id, **ids, **why)
        manager.metrics.applicationAttemptCount = unchanged_attempts(history.rows())
        failpoint("coordinator.metadata-written")

    def change(self, plan: JobPlan, why: Mapping[str, str]) -> None:
        """A running job has another model or configuration: recorded as for a new attempt (S0-20)."""
        manager = self._manager
        new, previous = manager.generate(plan.model, plan.settings.raw, self._environment), manager.read()
        if new != previous:
            manager.check_for_changes(new, previous)
            manager.write(new)
        ids = {"config_id": new.config_id, "job_model_id": new.job_model_id}
        History(self._stream).append("reconfigured", run_id=self.run_id, **ids, **why)

    def run(self, standing: JobHealth, problem: str = "") -> None:
        """The job runs, here, and stands so."""
        message = "; ".join(filter(None, (problem, standing.message)))
        at = self.address
        tokens = str(at.token_file), str(at.read_token_file)
        running = JobState(
            "running", self.run_id, self.epoch, at.url, tokens[0], message, tokens[1], standing.word
        )
        if at.channel is not None and not self._has_channel:
            write_channel(self._stream, at.channel, self.epoch)
            self._has_channel = True
        write_state(self._stream, running)

    def end(self, final: State) -> JobState:
        """Write the terminal state under our epoch; the leadership is released after that, not before (fault 52)."""
        failpoint("coordinator.finishing")
        ended = JobState(final.phase.value, self.run_id, self.epoch, self.address.url, "", final.message)
        write_state(self._stream, ended)
        History(self._stream, urgent=True).append(final.phase.value, message=final.message)
        failpoint("coordinator.finished")
        return ended
