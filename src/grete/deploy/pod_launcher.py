"""Containers as pods of their own: the launcher of a coordinator that Kubernetes runs (`grete.launch.base`).

Each incarnation of a container is a pod, which is never started again: another incarnation has another epoch, and so
another pod. They belong to the StatefulSet of the coordinator and not to its pod, so they go on while that is
replaced, and end with the deployment.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grete.clock import Clock, Deadline
from grete.deploy.container_pods import (
    ContainerPod,
    ContainerPods,
    container_number,
    end_of,
    epoch_of,
    gone,
    has_ended,
    host_refused,
    is_unplaced,
    killed_before,
    not_started,
    unheard,
    why_it_waits,
)
from grete.deploy.objects import Object
from grete.errors import GreteError, JobError
from grete.failpoints import failpoint
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.model.fence import leadership_of
from grete.model.ids import ContainerId

_log = logging.getLogger("grete.coordinator")
_HANDLE = "pod"
_SECONDS = 1
"""What a pod has for its end that is killed: the node's kubelet sends SIGKILL after it."""
_SILENT_S = 10.0
"""A pod that is there for longer than its end may take is on a node of which nobody hears."""
_PLACED_WITHIN_S = 30.0
"""So long a container waits for the host that an operator has named."""
_AGAIN_S, _WATCH_S = 1.0, 30.0
_END_S = 30.0


@dataclass(slots=True)
class PodLauncher(Launcher):
    """Starts containers as pods, from the coordinator's loop and from a thread of its own that watches them.

    While the API server does not answer, nothing is started or ended, and no container is taken for gone: what was
    asked meanwhile is asked of it later. `request_stop` is the coordinator's answer to a heartbeat.
    """

    pods: ContainerPods
    clock: Clock
    leadership: int
    _known: dict[ContainerId, ContainerPod] = field(default_factory=dict)
    _replaced: list[ContainerPod] = field(default_factory=list)
    _ended: deque[ContainerExit] = field(default_factory=deque)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _broke: Exception | None = None
    _said: str = ""

    # --- called by the coordinator's loop ---

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        with self._lock:
            known = self._known.get(container.container_id)
            if known is not None and known.start.epoch >= container.epoch:
                return
            if known is not None:
                known.is_killed = True
                self._replaced.append(self._known.pop(container.container_id))
            self._known[container.container_id] = ContainerPod(container, self.pods.name(container))
            self._ask()
        self._begin()

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher: the directive that the coordinator gives besides says so."""

    def kill(self, container_id: ContainerId) -> None:
        """See Launcher. Whether it has ended is the node's to say; one of which nobody hears is to be fenced off."""
        with self._lock:
            known = self._known.get(container_id)
            if known is not None:
                known.is_killed, known.gone_by_s = True, None
                self._ask()

    def exits(self) -> list[ContainerExit]:
        """See Launcher.

        Raises:
            JobError: the thread has ended by an error of its own, so nobody looks at pods any more.
        """
        self._begin()
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def handle(self, container_id: ContainerId) -> str:
        """See Launcher: the pod, and its uid, which no other of its name has."""
        known = self._known.get(container_id)
        return f"{_HANDLE}/{known.name}/{known.uid}" if known is not None and known.uid else ""

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        """See Launcher. Anything that writes into the coordinator stream can claim a handle: the pod has to say so.

        Raises:
            CoordinationUnreachable: the API server does not answer.
        """
        kind, _, rest = handle.partition("/")
        name, _, uid = rest.partition("/")
        if kind != _HANDLE or name != self.pods.name(container):
            return False
        there = self.pods.namespace.read("Pod", name)
        if there is None or there.metadata.uid != uid or epoch_of(there) != container.epoch:
            return False
        with self._lock:
            self._known[container.container_id] = ContainerPod(container, name, uid)
        return True

    def abandon(self) -> None:
        """See Launcher."""
        self._closed.set()
        with self._lock:
            self._known.clear()
            self._replaced.clear()
        self._ended.clear()

    def close(self) -> None:
        """See Launcher."""
        with self._lock:
            for known in self._known.values():
                known.is_killed, known.gone_by_s = True, None
            self._ask()
        deadline = Deadline(self.clock, _END_S, pauses_s=(0.05, 0.5))
        while (self._known or self._replaced) and self._broke is None and deadline.pause():
            pass
        self.abandon()

    # --- the thread's ---

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
            self._thread.start()
        elif self._broke is not None:
            raise JobError(
                f"the coordinator cannot look at its pods any more: {self._broke}"
            ) from self._broke

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._look()
        except Exception as error:  # noqa: BLE001 - a thread begins here; the leader must not lead on without it
            self._broke = error
        finally:
            self.pods.namespace.server.close()

    def _look(self) -> None:
        """Look once, and wait until there is something new to see or to do."""
        try:
            version, watch_s = self.turn()
            self.pods.watch(version, watch_s)
        except GreteError as error:
            self._say(error)
            self.clock.wait(self._closed, _AGAIN_S)

    def turn(self) -> tuple[str, float]:
        """Ask for what is wanted, and see what became of it; returns the sight's version, and when the next is due.

        Raises:
            GreteError: the API server does not answer, or refuses.
        """
        with self._lock:
            self._ask()
            found, version = self.pods.seen()
            self._judge({pod.metadata.name: pod for pod in found})
            self._tidy(found)
            self._said = ""
            return version, self._next_look_s()

    def _say(self, error: GreteError) -> None:
        """The first time of an outage."""
        level = logging.DEBUG if str(error) == self._said else logging.WARNING
        self._said = str(error)
        _log.log(level, "the pods of containers cannot be looked at: %s", error)

    def _next_look_s(self) -> float:
        asked = (*self._known.values(), *self._replaced)
        if any(pod.is_pending or (pod.gone_by_s, pod.unplaced_s) != (None, None) for pod in asked):
            return _AGAIN_S
        return _WATCH_S

    def _ask(self) -> None:
        """Ask the API server for what is wanted, as far as it answers."""
        for pod in (*self._replaced, *self._known.values()):
            if not pod.is_pending:
                continue
            try:
                self._make(pod) if not pod.uid else self._kill(pod)
            except GreteError as error:
                if error.may_pass:
                    self._say(error)
                    return
                self._report(pod, not_started(pod, error))

    def _make(self, pod: ContainerPod) -> None:
        """Make it, unless it was made by an earlier attempt whose answer was lost."""
        if pod.is_killed:
            self._report(pod, killed_before(pod))
            return
        namespace = self.pods.namespace
        namespace.create(self.pods.manifest(pod.start))
        failpoint("launch.started")
        there = namespace.read("Pod", pod.name)
        if there is not None:
            pod.uid = there.metadata.uid
            _log.info("container %s is pod %s", pod.start.container_id, pod.name)

    def _kill(self, pod: ContainerPod) -> None:
        self.pods.remove(pod.name, pod.uid, _SECONDS)
        pod.gone_by_s = self.clock.monotonic_s() + _SECONDS + _SILENT_S

    def _judge(self, found: Mapping[str, Object]) -> None:
        for pod in (*self._replaced, *self._known.values()):
            if not pod.uid:
                continue
            there = found.get(pod.name)
            if there is None or there.metadata.uid != pod.uid:
                self._report(pod, gone(pod))
                continue
            end = end_of(pod, there)
            if end is not None:
                self._report(pod, end)
            elif self._is_overdue(pod, there):
                node = there.spec.node_name or "no node"
                self._report(pod, unheard(pod, f"pod {pod.name} does not end: nothing is heard of {node}"))
                self.pods.remove(pod.name, pod.uid, 0)
            elif self._is_unplaced_for_long(pod, there):
                self._report(pod, host_refused(pod))
                self.pods.remove(pod.name, pod.uid, 0)
            else:
                self._tell_why_it_waits(pod, there)

    def _is_overdue(self, pod: ContainerPod, there: Object) -> bool:
        """Whether somebody ends the pod, and it should have ended."""
        if there.metadata.deletion_timestamp is None:
            return False
        if pod.gone_by_s is None:
            pod.is_sent_away = not pod.is_killed
            grace_s = there.metadata.deletion_grace_period_seconds
            pod.gone_by_s = self.clock.monotonic_s() + grace_s + _SILENT_S
        return self.clock.monotonic_s() > pod.gone_by_s

    def _is_unplaced_for_long(self, pod: ContainerPod, there: Object) -> bool:
        """Whether the host that an operator wants has not taken it."""
        if not (pod.start.is_host_required and is_unplaced(there)):
            return False
        if pod.unplaced_s is None:
            pod.unplaced_s = self.clock.monotonic_s()
        return self.clock.monotonic_s() > pod.unplaced_s + _PLACED_WITHIN_S

    def _report(self, pod: ContainerPod, end: ContainerExit) -> None:
        self._ended.append(end)
        if pod in self._replaced:
            self._replaced.remove(pod)
        else:
            self._known.pop(pod.start.container_id, None)

    def _tidy(self, found: Sequence[Object]) -> None:
        """End what is nobody's: started by an earlier leader and not adopted, or followed by another incarnation.

        So of those that have ended the last stays.
        """
        ours = {pod.uid for pod in (*self._known.values(), *self._replaced)}
        last: dict[int | None, int] = {}
        for pod in found:
            number = container_number(pod)
            last[number] = max(last.get(number, 0), epoch_of(pod))
        for pod in found:
            if pod.metadata.uid in ours or pod.metadata.deletion_timestamp is not None:
                continue
            is_of_another = leadership_of(epoch_of(pod)) < self.leadership and not has_ended(pod)
            if is_of_another or epoch_of(pod) < last[container_number(pod)]:
                self.pods.remove(pod.metadata.name, pod.metadata.uid, _SECONDS)

    @staticmethod
    def _tell_why_it_waits(pod: ContainerPod, there: Object) -> None:
        said = why_it_waits(there)
        if said and said != pod.said:
            _log.warning("container %s: pod %s waits: %s", pod.start.container_id, pod.name, said)
        pod.said = said
