"""Mistakes in what the coordinator decides, and in how it hands containers over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grete.container.epochs import Epoch
from grete.container.process_state import EndedEpoch
from grete.coordinator import coordinator, loop, reconfigure, warm_up
from grete.coordinator import decide as deciding
from grete.coordinator.coordinated import CoordinatedJob
from grete.coordinator.events import Kill, Launch
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.state import ContainerSpec, ContainerState, State
from grete.metadata import launches
from grete.model.ending import ExitCode
from grete.model.ids import ContainerId
from grete.systems.local import segment_rows
from grete_workbench.simulator import container as container_program
from grete_workbench.simulator import coordinator as program
from grete_workbench.simulator.launcher import SimulatedLauncher
from grete_workbench.simulator.plants import Plant, Replaced


def _granted_too_early(replaced: Replaced) -> None:
    """Containers are asked to let go, and it is granted without their answer, or a fence."""

    def grant(state: State, now_s: float) -> reconfigure.Decision:
        return (state, ()) if state.pending is None else reconfigure._grant(state, state.pending, now_s)

    replaced(reconfigure, "grant_when_free", grant)
    _not_fenced(replaced)


def _not_fenced(replaced: Replaced) -> None:
    """A container that gives tasks away is believed when it reports that it has paused."""
    replaced(reconfigure, "_raise_fences", lambda state, pending: (state, ()))


def _broken_off_not_fenced(replaced: Replaced) -> None:
    """Only containers that run are fenced off before others are served their tasks."""
    fences = reconfigure._raise_fences

    def of_running(state: State, pending: Any) -> Any:
        whole = {id_: replace(one, broke_off=False) for id_, one in state.containers.items()}
        return fences(replace(state, containers=whole), pending)

    replaced(reconfigure, "_raise_fences", of_running)


def _believed(replaced: Replaced) -> None:
    """As `_not_fenced`, on a system that takes changelog records wherever they end, as brokers do."""
    _not_fenced(replaced)
    replaced(segment_rows, "check_first", lambda segment, end: None)


def _never_adopted(replaced: Replaced) -> None:
    replaced(SimulatedLauncher, "adopt", lambda self, container, handle: False)


def _adopted_as_wanted(replaced: Replaced) -> None:
    """Believe that an adopted container runs whatever the new model wants of it."""
    handle = CoordinatorLoop.handle

    def believing(self: CoordinatorLoop, event: Any) -> None:
        if isinstance(event, reconfigure.ModelChanged) and event.revision == 1:
            containers = {
                id_: replace(one, spec=event.specs.get(id_, one.spec))
                for id_, one in self.state.containers.items()
            }
            self.state = replace(self.state, containers=containers)
        handle(self, event)

    replaced(CoordinatorLoop, "handle", believing)


def _lost_not_fenced(replaced: Replaced) -> None:
    """Forget containers of an earlier coordinator that can not be found, without fencing them off."""

    def adopt(self: CoordinatorLoop, *, untried: bool = False) -> None:
        for container, record in launches.read_launches(self._stream).items():
            start = program_start(container, record.epoch)
            if record.handle and self._launcher.adopt(start, record.handle):
                self._serial = max(self._serial, record.serial)
                self._take_in(container, self.state.launches + 1, record, untried=untried)

    replaced(CoordinatorLoop, "adopt", adopt)


def _lost_share_not_refused(replaced: Replaced) -> None:
    """Let a container end well that has lost an executor, which stands still."""

    def end(self: Epoch) -> EndedEpoch | None:
        return EndedEpoch(self._started.epoch, self.known) if self.has_ended_well else None

    replaced(Epoch, "end", end)


def program_start(container: ContainerId, epoch: int) -> Any:
    from grete.launch.base import ContainerStart

    return ContainerStart(container, epoch, {})


def _any_incarnation(replaced: Replaced) -> None:
    exited = deciding._exited

    def unchecked(state: State, event: Any, now_s: float) -> Any:
        container = state.containers.get(event.container)
        if container is not None:
            event = replace(event, launch=container.launch)
        return exited(state, event, now_s)

    replaced(deciding, "_exited", unchecked)


def _launch_number_reused(replaced: Replaced) -> None:
    launch = reconfigure.launch

    def again(
        state: State, id_: ContainerId, spec: ContainerSpec | None = None, barrier: int = 0
    ) -> tuple[State, Launch]:
        before = state.containers.get(id_, ContainerState())
        if before.launch == 0:
            return launch(state, id_, spec, barrier)
        state, action = launch(state, id_, spec, barrier)
        state = reconfigure.fields(state, id_, launch=before.launch)
        return state, replace(action, launch=before.launch)

    replaced(warm_up, "launch", again)
    replaced(reconfigure, "launch", again)
    replaced(deciding, "launch", again)


def _killed_without_fence(replaced: Replaced) -> None:
    def cut_off(state: State, id_: ContainerId) -> Any:
        return state, (Kill(id_),)

    replaced(reconfigure, "cut_off", cut_off)
    replaced(deciding, "cut_off", cut_off)


def _resurrected(replaced: Replaced) -> None:
    for module in (program, coordinator, deciding):
        replaced(module, "FINAL", ())


def _stopped_counts_as_drained(replaced: Replaced) -> None:
    """Reports of an adopted container are doubted until it reports what it runs, which hides this: also gone."""
    replaced(container_program, "_STOPPED", ExitCode.OK)
    replaced(loop, "ContainerState", lambda **known: ContainerState(**{**known, "unsure": False}))


def _undelivered_when_adopted(replaced: Replaced) -> None:
    begin = CoordinatedJob.begin

    def forget(self: CoordinatedJob, plan: Any) -> Any:
        self._startpoints, self._looked_s = self._seen.startpoints, float("inf")
        return begin(self, plan)

    replaced(CoordinatedJob, "begin", forget)


PLANTS = {
    "granted-before-let-go": Plant(
        "a task is given away before its container has let go of it", _granted_too_early, ("container-count",)
    ),
    "pause-is-believed": Plant(
        "a container that says it has paused may still commit",
        _believed,
        ("forged-pause", "container-count"),
        seeds=120,
    ),
    "broke-off-and-not-fenced": Plant(
        "a container that was killed may still commit when others have its tasks",
        _broken_off_not_fenced,
        ("container-count", "kill-container", "delayed"),
    ),
    "lost-share-not-refused": Plant(
        "a container ends well though a share of it that was taken for lost may still commit",
        _lost_share_not_refused,
        ("lose-share", "container-count", "delayed", "pause-share"),
    ),
    "never-adopted": Plant(
        "a new coordinator restarts everything",
        _never_adopted,
        ("kill-coordinator",),
    ),
    "adopted-without-comparing": Plant(
        "an adopted container is believed to run the new model",
        _adopted_as_wanted,
        ("container-count", "kill-coordinator"),
    ),
    "lost-container-not-fenced": Plant(
        "a container that can not be found is forgotten",
        _lost_not_fenced,
        ("kill-coordinator", "pause-container", "container-count", "two-hosts", "kills-lost"),
    ),
    "exit-of-another-incarnation": Plant(
        "the exit of a replaced incarnation counts", _any_incarnation, ("container-count", "pause-container")
    ),
    "launch-number-reused": Plant("a container is started again under its old epoch", _launch_number_reused),
    "killed-without-fence": Plant(
        "a container that does not pause is killed and not fenced off",
        _killed_without_fence,
        ("container-count", "pause-container", "kills-lost"),
    ),
    "stopped-counts-as-drained": Plant(
        "a container that was asked to stop says that everything is read",
        _stopped_counts_as_drained,
        ("kill-coordinator", "pause-container", "stop-and-run"),
    ),
    "startpoint-before-adoption-forgotten": Plant(
        "adopted containers do not get startpoints from before",
        _undelivered_when_adopted,
        ("rewind", "kill-coordinator"),
    ),
    "terminal-not-final": Plant(
        "a job that has ended is run on by the next coordinator", _resurrected, ("stop-and-run",)
    ),
}
