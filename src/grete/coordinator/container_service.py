"""What a running coordinator gives its containers: assignments, and the answers to their heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

from msgspec.structs import replace

from grete.checkpoint.applied_startpoints import read_applied
from grete.checkpoint.lag import active_tasks
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, last_commits
from grete.clock import Clock
from grete.config.settings import Settings
from grete.coordinator.events import ContainerAtWork, ContainerCommitted, ContainerLoaded, ContainerPaused
from grete.coordinator.heartbeat_registry import ContainerSlot
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.monitors.containers import ContainerFacts
from grete.coordinator.progress import ContainerProgress, ReportedProgress
from grete.errors import CoordinatorUnavailable
from grete.keyed_log.base import KeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import GIVEN_UP, STOPPED
from grete.metadata.input_streams import read_input_uids
from grete.metadata.startpoint_hand_over import AppliedTimes, StartpointHandOver
from grete.model.ending import ContainerEnd
from grete.model.ids import ContainerId, JobId, TaskName
from grete.model.job import ContainerModel, JobModel
from grete.model.startpoint import PendingStart
from grete.wire.container_protocol import (
    AssignmentMessage,
    Command,
    Directive,
    Heartbeat,
    PendingRequest,
    Task,
)


class ContainerService:
    """Implements `server.app.ServedContainers`. Thread-safe: the model is immutable, the rest guards itself."""

    def __init__(self, job: JobId, stream: CoordinatorStream, run_id: str, clock: Clock) -> None:
        self._job = job
        self._stream = stream
        self._run_id = run_id
        self._served: tuple[Settings, JobModel] | None = None
        self.coming = Settings()
        """The configuration of the model that is to be served next: containers get ready for it."""
        self._progress = ReportedProgress(clock)
        self._startpoints = StartpointHandOver(stream, clock, self._applied_startpoints)
        self.until_drained = False
        self.loop: CoordinatorLoop | None = None
        """Once there is one."""
        self.checkpoint_log: Callable[[str], KeyedLog] | None = None
        """Opens a log of checkpoints, once the configuration says where they are."""

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
        return self.serving()[0].raw

    @property
    def count(self) -> int:
        """How many containers the job is to have; 0 when nothing is served yet."""
        return 0 if self._served is None else len(self._served[1].containers)

    def serving(self) -> tuple[Settings, JobModel]:
        """What containers run, once there is something.

        Raises:
            CoordinatorUnavailable: nothing is served yet.
        """
        if self._served is None:
            raise CoordinatorUnavailable("the coordinator has only just started; ask again")
        return self._served

    def assignment(self, container_id: str) -> AssignmentMessage | None:
        """See server.app.ServedContainers."""
        # the number first: a container that has an older number than its model is commanded to read again, and
        # never the other way round
        slot = None if self.loop is None else self.loop.registry.slot(ContainerId(container_id))
        settings, model = self.serving()
        if slot is None:
            return None
        assigned = AssignmentMessage(
            job=self._job,
            container_id=ContainerId(container_id),
            epoch=slot.epoch,
            fence_epoch=slot.fence,
            serial=slot.serial,
            run_id=self._run_id,
            config=dict(settings.raw),
            tasks=(),
        )
        if not slot.has_tasks:
            return replace(assigned, config=dict(self.coming.raw), warms_up=True)
        container = model.containers.get(assigned.container_id)
        if container is None:
            return None
        pending = self._pending_starts(container)
        return replace(
            assigned,
            until_drained=self.until_drained,
            input_uids={str(one): uid for one, uid in read_input_uids(self._stream).items()},
            tasks=tuple(
                Task.of(task, PendingRequest.of(pending.get(task.name, PendingStart())))
                for task in container.tasks.values()
            ),
        )

    def _pending_starts(self, container: ContainerModel) -> dict[TaskName, PendingStart]:
        """The startpoints that the container's tasks have to apply."""
        settings, model = self.serving()
        if not settings.job.is_startpoint_enabled:
            return {}
        return self._startpoints.pending(active_tasks(model), container.tasks)

    def _applied_startpoints(self) -> AppliedTimes:
        applied = {} if self._checkpoints is None else read_applied(self._checkpoints.read())
        return {task: one.created_ms for task, one in applied.items()}

    def commits(self) -> Mapping[TaskName, TaskCommit]:
        """The last commit of each task in the checkpoint log as it is now."""
        return {} if self._checkpoints is None else last_commits(self._checkpoints)

    @property
    def _checkpoints(self) -> KeyedLog | None:
        return None if self.checkpoint_log is None else self.checkpoint_log(checkpoint_log_name(self._job))

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        """See server.app.ServedContainers."""
        return self._take(self._coordinating(), ContainerId(container_id), heartbeat).directive

    def stop_holding(self) -> None:
        """Answer heartbeats at once from now on, those that wait for their answer too."""
        if self.loop is not None:
            self.loop.registry.close()

    def next_directive(self, container_id: str, heartbeat: Heartbeat) -> Future[Directive]:
        """See server.app.ServedContainers."""
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
        if known is not None and known.untried and heartbeat.is_at_work and heartbeat.serial == slot.serial:
            loop.post(ContainerAtWork(container, slot.launch, slot.serial))
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

    def progress(self) -> dict[str, ContainerProgress]:
        """The last report of each container."""
        return self._progress.by_container()

    def last_words(self, container: ContainerId, epoch: int) -> ContainerEnd | None:
        """What an incarnation has said that it ends with; None where it said nothing, as one that was killed."""
        reported = self.progress().get(container)
        return None if reported is None or reported.heartbeat.epoch != epoch else reported.end

    def container_facts(self) -> dict[ContainerId, ContainerFacts]:
        """The facts that monitors need of the containers that should be running."""
        reported = self.progress()
        awaited = {} if self.loop is None else self.loop.awaited
        found = {}
        for id_, slot in ({} if self.loop is None else self.loop.registry.slots()).items():
            one = reported.get(id_)
            if one is None or one.heartbeat.epoch != slot.epoch:
                found[id_] = ContainerFacts(
                    slot.launch, is_awaited=id_ in awaited, message=awaited.get(id_, "")
                )
            else:
                found[id_] = ContainerFacts(
                    slot.launch,
                    one.at_s,
                    one.heartbeat.state,
                    one.heartbeat.batch_id,
                    message=one.heartbeat.message,
                )
        return found

    def resting(self) -> dict[ContainerId, str]:
        """The containers that were given up or stopped and do not run, with which of both."""
        containers = {} if self.loop is None else self.loop.state.containers
        return {
            id_: GIVEN_UP if one.given_up else STOPPED
            for id_, one in sorted(containers.items())
            if (one.given_up or one.held) and not one.running
        }
