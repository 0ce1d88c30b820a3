"""Containers as threads of this process, for debugging an application (Samza's ThreadJobFactory)."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from grete.environment import IN_PROCESS
from grete.launch.base import ContainerExit, ContainerStart, Launcher, RunContainer
from grete.launch.factory import LaunchContext
from grete.model.ending import ContainerEnd, ExitCode, failure_of
from grete.model.ids import ContainerId

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _RunningThread:
    start: ContainerStart
    thread: threading.Thread
    stop: threading.Event = field(default_factory=threading.Event)
    end: int = ExitCode.FAILED


def open_launcher(context: LaunchContext) -> ThreadLauncher:
    """See `grete.launch.factory`."""
    if context.settings.task.java_options is not None:
        _log.warning("task.opts has no effect with job.launcher=thread: there is no process to give it to")
    return ThreadLauncher(context.run)


class ThreadLauncher(Launcher):
    """Runs `run_container` in a thread each. A thread can not be killed: `kill` is a second request to stop."""

    outlives_coordinator = False

    def __init__(self, run_container: RunContainer) -> None:
        self._run_container = run_container
        self._running: dict[ContainerId, _RunningThread] = {}
        self._replaced: list[_RunningThread] = []

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        known = self._running.get(container.container_id)
        if known is not None and known.start.epoch >= container.epoch:
            return
        if known is not None:
            known.stop.set()
            self._replaced.append(self._running.pop(container.container_id))
        name = f"container-{container.container_id}"
        running = _RunningThread(container, threading.Thread(name=name, daemon=True))
        running.thread = threading.Thread(target=self._run, args=(running,), name=name, daemon=True)
        self._running[container.container_id] = running
        running.thread.start()

    def _run(self, running: _RunningThread) -> None:
        environment = {**running.start.environment, IN_PROCESS: "1"}
        try:
            running.end = self._run_container(environment, running.stop)
        except Exception as error:  # noqa: BLE001 - a thread begins here; its end must be reported like any other
            _log.exception("container %s crashed", running.start.container_id)
            running.end = ContainerEnd(ExitCode.FAILED, failure_of(error))

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher."""
        if container_id in self._running:
            self._running[container_id].stop.set()

    def kill(self, container_id: ContainerId) -> None:
        """See Launcher; the best a thread allows."""
        self.request_stop(container_id)

    def exits(self) -> list[ContainerExit]:
        """See Launcher."""
        ended = [id_ for id_, running in self._running.items() if not running.thread.is_alive()]
        replaced = [running for running in self._replaced if not running.thread.is_alive()]
        self._replaced = [running for running in self._replaced if running not in replaced]
        return [_exit(running) for running in (*replaced, *map(self._running.pop, ended))]

    def handle(self, container_id: ContainerId) -> str:
        """See Launcher: a thread ends with its process."""
        return ""

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        """See Launcher."""
        return False

    def abandon(self) -> None:
        """See Launcher."""
        self.close()

    def close(self) -> None:
        """See Launcher."""
        for running in self._running.values():
            running.stop.set()
        for running in (*self._replaced, *self._running.values()):
            running.thread.join(timeout=30)
        self._running.clear()
        self._replaced.clear()


def _exit(running: _RunningThread) -> ContainerExit:
    end, start = running.end, running.start
    failure = end.failure if isinstance(end, ContainerEnd) else None
    if failure is None:
        return ContainerExit(start.container_id, start.epoch, int(end), "")
    return ContainerExit(start.container_id, start.epoch, int(end), str(failure), failure.place)
