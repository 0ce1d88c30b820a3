"""Containers that go on while their coordinator is gone: found by their handles, and ended by an operator."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from grete.clock import Deadline, SystemClock
from grete.coordination.base import Leadership
from grete.coordinator.fencing import fence_off
from grete.errors import JobError
from grete.launch.base import ContainerStart
from grete.launch.process import ProcessLauncher
from grete.launch.processes import is_running
from grete.metadata.history import History
from grete.metadata.job_state import JobState, read_state, write_state
from grete.metadata.launches import LaunchRecord, read_broken_off, write_end
from grete.model.fence import Fence, container_epoch, job_scope
from grete.model.ids import ContainerId
from grete.operations.job_handle import JobHandle

_POLL_S = 0.05
Launches = Mapping[ContainerId, LaunchRecord]


def orphans(handle: JobHandle) -> dict[ContainerId, LaunchRecord]:
    """The containers that may run without a coordinator; empty while there is one."""
    return {} if handle.election.holder() is not None else handle.launches()


def running_here(launches: Launches) -> list[ContainerId]:
    """Those of which this machine has the process."""
    return sorted(id_ for id_, record in launches.items() if is_running(record.handle))


def end_orphans(
    handle: JobHandle, containers: Collection[ContainerId], deadline_s: float, reason: str
) -> None:
    """Fence containers off and end them, those that have not ended after `deadline_s` by force.

    Its last coordinator can do nothing more then. A container of another machine is fenced off, so that it
    commits no more and ends by itself. Without containers left the job is stopped.

    Raises:
        HeldByOther: the job has a coordinator.
        JobError: there is no such container.
    """
    known = handle.launches()
    missing = sorted(set(containers) - set(known))
    if missing:
        raise JobError(f"container {missing[0]} of job {handle.job.shown} does not run")
    with handle.election.stopped("ask it to stop them") as leadership:
        scope = job_scope(handle.job)
        handle.stream.write_under(Fence(scope, leadership.epoch))
        launches = {id_: known[id_] for id_ in sorted(containers)}
        _fence_off(handle, _epochs(launches), leadership)
        _end(handle, launches, deadline_s)
        for id_ in launches:
            write_end(handle.stream, id_)
            History(handle.stream).append("orphan-stopped", container=id_, reason=reason)
        if not handle.launches():
            before = read_state(handle.stream)
            run_id = "" if before is None else before.run_id
            write_state(handle.stream, JobState("stopped", run_id, leadership.epoch, message=reason))


def _epochs(launches: Launches) -> dict[ContainerId, int]:
    return {id_: record.fence for id_, record in launches.items()}


def refuse_orphans(handle: JobHandle) -> None:
    """Raises JobError: a container of the job runs here without a coordinator."""
    running = running_here(handle.launches())
    if running:
        raise JobError(
            f"container {', '.join(running)} of job {handle.job.shown} runs on without a coordinator; "
            f"`grete stop` ends it"
        )


def _fence_off(handle: JobHandle, containers: Mapping[ContainerId, int], leadership: Leadership) -> None:
    """Let these containers, wherever they may run yet, commit nothing more under their epochs or lower ones."""
    settings = handle.settings
    with handle.checkpoints.system() as system:
        for number, (id_, fence) in enumerate(containers.items(), 1):
            epoch = max(container_epoch(leadership.epoch, number), fence + 1)
            fence_off(handle.job, id_, epoch, settings, {settings.task.commit_system: system})


def _end(handle: JobHandle, launches: Launches, deadline_s: float) -> None:
    clock, never = SystemClock(), threading.Event()
    launcher = ProcessLauncher([], handle.state_directory / "logs")
    waiting = {
        id_
        for id_, record in launches.items()
        if launcher.adopt(ContainerStart(id_, record.epoch, {}), record.handle)
    }
    for id_ in waiting:
        launcher.request_stop(id_)
    deadline, is_forced = Deadline(clock, deadline_s), False
    while waiting:
        waiting -= {ended.container_id for ended in launcher.exits()}
        if deadline.is_over and not is_forced:
            is_forced = True
            for id_ in waiting:
                launcher.kill(id_)
        clock.wait(never, _POLL_S)


@contextmanager
def standing_still(*handles: JobHandle, way_out: str = "") -> Iterator[None]:
    """Nobody runs these jobs meanwhile, and what a dead coordinator has left commits nothing more.

    Raises:
        HeldByOther: one is running.
        JobError: a container of one runs on without a coordinator.
    """
    with ExitStack() as stack:
        for handle in handles:
            stop = f"stop it first: grete stop --job {handle.job.shown}"
            leadership = stack.enter_context(handle.election.stopped(way_out or stop))
            refuse_orphans(handle)
            if left := {**_epochs(handle.launches()), **read_broken_off(handle.stream)}:
                _fence_off(handle, left, leadership)
        yield
