"""A running coordinator as the HTTP server and the progress display show it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

from grete.checkpoint.applied_startpoints import read_applied
from grete.checkpoint.lag import JobLag, active_tasks
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import read_commits
from grete.clock import Clock, SystemClock
from grete.config.redact import redact
from grete.config.settings import Settings
from grete.coordinator.events import ContainerCommitted, ContainerLoaded, ContainerPaused, Tick
from grete.coordinator.health import JobHealth, standing
from grete.coordinator.heartbeat_registry import ContainerSlot
from grete.coordinator.lag import RecentLag, job_lag
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.metadata_manager import MetadataMetrics
from grete.coordinator.metrics import MetricFacts, job_metrics
from grete.coordinator.monitors.containers import ContainerFacts
from grete.coordinator.monitors.watch import Monitors
from grete.coordinator.progress import ContainerProgress, ReportedProgress
from grete.coordinator.renewal import Renewal, RenewalFigures
from grete.environment import grete_home
from grete.errors import CoordinatorUnavailable, GreteError, WireError
from grete.keyed_log.base import KeyedLog
from grete.metadata.container_requests import CONTAINER_REQUESTS, ask_container
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import GIVEN_UP, STOPPED, History
from grete.metadata.input_streams import read_input_uids
from grete.metadata.job_state import (
    Request,
    RequestKind,
    StopRequest,
    write_request,
    write_stop_request,
)
from grete.metadata.quarantine import SHOWN
from grete.metadata.startpoint_hand_over import AppliedTimes, StartpointHandOver
from grete.model.ids import ContainerId, JobId, TaskName
from grete.model.job import ContainerModel, JobModel
from grete.model.startpoint import PendingStart
from grete.suggestions import or_one_of
from grete.wire import job_model_json, prometheus_text
from grete.wire.container_protocol import (
    AssignmentMessage,
    Command,
    Directive,
    Heartbeat,
    Partition,
    PendingRequest,
    Task,
    document,
)
from grete.wire.coordinator_api import HistoryRow, Job, Requested

_log = logging.getLogger("grete.coordinator")
_CLOCK_WAS_SET_S = 2.0


class View:
    """Implements `server.app.CoordinatorView`. Thread-safe: the model is immutable, the rest guards itself."""

    def __init__(
        self,
        job: JobId,
        stream: CoordinatorStream,
        metrics: MetadataMetrics,
        run_id: str,
        epoch: int,
        clock: Clock | None = None,
    ) -> None:
        self._job = job
        self._served: tuple[Settings, JobModel] | None = None
        self._encoded: tuple[JobModel, bytes] | None = None
        self._stream = stream
        self._metrics = metrics
        self._run_id = run_id
        self._epoch = epoch
        self._clock = SystemClock() if clock is None else clock
        self._wall_ahead_s = self._clock.wall_ms() / 1000 - self._clock.monotonic_s()
        self._progress = ReportedProgress(self._clock)
        self._home = grete_home()
        self._lag = RecentLag(self._measure_lag, self._clock)
        self.monitors: Monitors | None = None
        self.renewal: Renewal | None = None
        self.problem = ""
        self._startpoints = StartpointHandOver(stream, self._clock, self._applied_startpoints)
        self.until_drained = False
        self.loop: CoordinatorLoop | None = None
        self.checkpoint_log: Callable[[str], KeyedLog] | None = None

    def is_ready(self) -> bool:
        """Whether containers can be served."""
        return self.loop is not None and self._served is not None

    def serve(self, settings: Settings, model: JobModel) -> None:
        """From now on, this is what containers run."""
        self._served = (settings, model)

    @property
    def served_config(self) -> Mapping[str, str]:
        """The configuration that containers are given.

        Raises:
            CoordinatorUnavailable: nothing is served yet.
        """
        return self._serving()[0].raw

    def _serving(self) -> tuple[Settings, JobModel]:
        if self._served is None:
            raise CoordinatorUnavailable("the coordinator has only just started; ask again")
        return self._served

    def job_model_document(self) -> bytes:
        """See CoordinatorView. Secrets are masked in the configuration it carries."""
        _, model = self._serving()
        if self._encoded is None or self._encoded[0] is not model:
            shown = JobModel(redact(model.config), model.containers, model.max_changelog_partitions)
            self._encoded = (model, job_model_json.encode(shown))  # 10,000 tasks take 30 ms, for every reader
        return self._encoded[1]

    def assignment(self, container_id: str) -> AssignmentMessage | None:
        """See CoordinatorView."""
        # the number first: a container that has an older number than its model is commanded to read again, and
        # never the other way round
        slot = None if self.loop is None else self.loop.registry.slot(ContainerId(container_id))
        settings, model = self._serving()
        container = model.containers.get(ContainerId(container_id))
        if container is None or slot is None:
            return None
        pending = self._pending_starts(container)
        return AssignmentMessage(
            job=self._job,
            container_id=container.id,
            epoch=slot.epoch,
            fence_epoch=slot.fence,
            serial=slot.serial,
            run_id=self._run_id,
            until_drained=self.until_drained,
            config=dict(settings.raw),
            input_uids={str(one): uid for one, uid in read_input_uids(self._stream).items()},
            tasks=tuple(
                Task(
                    task.name,
                    tuple(map(Partition.of, task.ssps)),
                    task.changelog_partition,
                    PendingRequest.of(pending.get(task.name, PendingStart())),
                    task.mode,
                )
                for task in container.tasks.values()
            ),
        )

    def _pending_starts(self, container: ContainerModel) -> dict[TaskName, PendingStart]:
        """The startpoints that the container's tasks have to apply."""
        settings, model = self._serving()
        if not settings.job.is_startpoint_enabled:
            return {}
        return self._startpoints.pending(active_tasks(model), container.tasks)

    def _applied_startpoints(self) -> AppliedTimes:
        if self.checkpoint_log is None:
            return {}
        applied = read_applied(self.checkpoint_log(checkpoint_log_name(self._job)).read())
        return {task: one.created_ms for task, one in applied.items()}

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        """See CoordinatorView."""
        return self._take(self._coordinating(), ContainerId(container_id), heartbeat).directive

    def stop_holding(self) -> None:
        """Answer heartbeats at once from now on, those that wait for their answer too."""
        if self.loop is not None:
            self.loop.registry.close()

    def next_directive(self, container_id: str, heartbeat: Heartbeat) -> Future[Directive]:
        """See CoordinatorView."""
        loop, container = self._coordinating(), ContainerId(container_id)
        slot = self._take(loop, container, heartbeat)
        if slot.directive == heartbeat.known:
            return loop.registry.next_directive(container, slot)
        answered: Future[Directive] = Future()
        answered.set_result(slot.directive)
        return answered

    def _coordinating(self) -> CoordinatorLoop:
        if self.loop is None:
            raise CoordinatorUnavailable("the coordinator has only just started; ask again")
        return self.loop

    def _take(self, loop: CoordinatorLoop, container: ContainerId, heartbeat: Heartbeat) -> ContainerSlot:
        """Record a heartbeat, and post what it means to the loop."""
        slot = loop.registry.record_heartbeat(container, heartbeat.epoch, loop.clock.monotonic_s())
        self._progress.record(container, heartbeat)
        if slot.directive.action is Command.PAUSE and heartbeat.paused == slot.directive.number:
            loop.post(ContainerPaused(container, slot.launch, slot.directive.number))
        known = loop.state.containers.get(container)
        if known is not None and known.unsure and heartbeat.serial == slot.serial:
            loop.post(ContainerLoaded(container, slot.launch, slot.serial))
        if known is not None and not known.committed and heartbeat.commits > 0:
            loop.post(ContainerCommitted(container, slot.launch))
        return slot

    def containers_with_startpoints(self) -> tuple[ContainerId, ...]:
        """The containers of which a task has a startpoint that it does not know of."""
        if self._served is None:
            return ()
        settings, model = self._served
        if not settings.job.is_startpoint_enabled:
            return ()
        tasks = self._startpoints.undelivered(active_tasks(model))
        return tuple(sorted(c.id for c in model.containers.values() if tasks.intersection(c.tasks)))

    def request(self, what: str, container: str | None, deadline_s: float, reason: str) -> Requested:
        """See CoordinatorView."""
        requested = self._write_request(what, container, deadline_s, reason)
        if self.loop is not None:
            self.loop.post(Tick())  # it looks at the stream now, not at its next turn
        return requested

    def _write_request(self, what: str, container: str | None, deadline_s: float, reason: str) -> Requested:
        if container is None:
            if what == "drain":
                write_request(self._stream, Request(RequestKind.DRAIN, self._epoch, reason))
            elif what == "step-down":
                write_request(self._stream, Request(RequestKind.STEP_DOWN, self._epoch, reason))
            else:
                write_stop_request(self._stream, StopRequest(self._epoch, deadline_s, reason))
            return Requested(what)
        if what not in CONTAINER_REQUESTS:
            raise WireError(f"what is one of {', '.join(CONTAINER_REQUESTS)}, got {what!r}")
        known = self._serving()[1].containers
        if ContainerId(container) not in known:
            raise WireError(f"the job has no container {container!r}{or_one_of(container, known)}")
        id_ = ask_container(self._stream, ContainerId(container), what, self._epoch, deadline_s, reason)
        return Requested(what, container, id_)

    def progress(self) -> dict[str, ContainerProgress]:
        """The last report of each container."""
        return self._progress.by_container()

    def container_facts(self) -> dict[ContainerId, ContainerFacts]:
        """The facts that monitors need of the containers that should be running."""
        reported = self.progress()
        found = {}
        for id_, slot in ({} if self.loop is None else self.loop.registry.slots()).items():
            one = reported.get(id_)
            if one is None or one.heartbeat.epoch != slot.epoch:
                found[id_] = ContainerFacts(slot.launch)
            else:
                found[id_] = ContainerFacts(
                    slot.launch,
                    one.at_s,
                    one.heartbeat.state,
                    one.heartbeat.batch_id,
                    message=one.heartbeat.message,
                )
        return found

    def standing(self) -> JobHealth:
        """How the job stands."""
        if self.loop is None:
            return JobHealth()
        return standing(self.loop.state, self.container_facts(), self._clock_time)

    def _clock_time(self, at_s: float) -> str:
        """When a time of the monotonic clock is; the same words whenever it is asked, unless the clock was set."""
        ahead_s = self._clock.wall_ms() / 1000 - self._clock.monotonic_s()
        if abs(ahead_s - self._wall_ahead_s) > _CLOCK_WAS_SET_S:
            self._wall_ahead_s = ahead_s
        return f"{datetime.fromtimestamp(at_s + self._wall_ahead_s, UTC):%H:%M:%S} UTC"

    def job(self) -> Job:
        """See CoordinatorView."""
        stands = self.standing()
        state = self.loop.state if self.loop is not None else None
        return Job(
            job=self._job,
            state="starting" if state is None else state.phase.value,
            run_id=self._run_id,
            epoch=self._epoch,
            standing=stands.word,
            message=stands.message,
            problem=self.problem,
            metrics={name: getattr(self._metrics, name) for name in MetadataMetrics.__slots__},
            containers=self._containers(),
            quarantined=[str(one) for one in self._stream.quarantined[:SHOWN]],
            quarantined_count=self._stream.quarantined_count(),
            monitor_problems={} if self.monitors is None else dict(self.monitors.problems),
        )

    def _containers(self) -> dict[str, dict[str, Any]]:
        """The last heartbeat of each, and what its engine says of a pipeline; of one that was given up or stopped,
        with the state that was decided.
        """
        reported = {
            id_: {**document(one.heartbeat), **({"spark": one.engine} if one.engine else {})}
            for id_, one in self.progress().items()
        }
        resting = {str(id_): {**reported.get(id_, {}), "state": why} for id_, why in self._resting().items()}
        return {**reported, **resting}

    def _resting(self) -> dict[ContainerId, str]:
        containers = {} if self.loop is None else self.loop.state.containers
        return {
            id_: GIVEN_UP if one.given_up else STOPPED
            for id_, one in sorted(containers.items())
            if (one.given_up or one.held) and not one.running
        }

    def not_ready(self) -> str:
        """See CoordinatorView."""
        if not self.is_ready():
            return "the coordinator has only just started"
        return ", ".join(f"container {id_} {why}" for id_, why in self._resting().items())

    def config(self) -> dict[str, str]:
        """See CoordinatorView."""
        return redact(self._stream.config())

    def history(self) -> list[dict[str, Any]]:
        """See CoordinatorView."""
        return [
            {**document(HistoryRow(row.number, row.timestamp_ms, row.event)), **row.details}
            for row in History(self._stream).rows()
        ]

    def checkpoints(self) -> dict[str, dict[str, str]]:
        """See CoordinatorView."""
        if self.checkpoint_log is None:
            return {}
        commits = read_commits(self.checkpoint_log(checkpoint_log_name(self._job)).read())
        return {
            task: {str(s): o for s, o in sorted(c.offsets.items())} for task, c in sorted(commits.items())
        }

    def lag(self) -> dict[str, Any]:
        """See CoordinatorView."""
        return self.measured_lag().document()

    def measured_lag(self) -> JobLag:
        """How far the job is behind, measured a moment ago at most.

        Raises:
            GreteError: a system does not answer.
        """
        return self._lag.get()

    def _measure_lag(self) -> JobLag:
        if self.monitors is not None:
            return self.monitors.measure_lag()
        settings, tasks = self._stream.settings(), active_tasks(self._serving()[1])
        return job_lag(self._job, settings, tasks, self._home, self._clock)

    def _known_lag(self) -> JobLag | None:
        try:
            return self._lag.get()
        except GreteError as error:
            _log.warning("the lag cannot be measured: %s", error)  # the other metrics can
            return None

    def metrics(self) -> str:
        """See CoordinatorView."""
        facts = MetricFacts(
            job=self._job,
            metadata=self._metrics,
            epoch=self._epoch,
            state=self.loop.state if self.loop is not None else None,
            container_count=0 if self._served is None else len(self._served[1].containers),
            progress=self.progress(),
            now_s=self._clock.monotonic_s(),
            lag=self._known_lag(),
            quarantined=self._stream.quarantined_count(),
            monitors=self.monitors,
            lease=RenewalFigures() if self.renewal is None else self.renewal.figures,
            events=[row.event for row in History(self._stream).rows()],
            processors=0 if self.loop is None else len(self.loop.room),
        )
        return prometheus_text.encode(job_metrics(facts))
