"""Containers as children of the coordinator, which end with it."""

from __future__ import annotations

import os
import signal
import subprocess

from grete.environment import CONTAINER_EPOCH, EXIT_FILE
from grete.exit_report import read_report
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.launch.factory import LaunchContext
from grete.model.ids import ContainerId


def open_launcher(context: LaunchContext) -> ChildLauncher:
    return ChildLauncher(context)


class ChildLauncher(Launcher):
    outlives_coordinator = False

    def __init__(self, context: LaunchContext) -> None:
        self._command, self._words = context.command, context.logs
        self._words.mkdir(parents=True, exist_ok=True)
        self._children: dict[tuple[ContainerId, int], subprocess.Popen[bytes]] = {}

    def start(self, container: ContainerStart) -> None:
        id_, epoch = container.container_id, container.epoch
        if any(known == id_ and other >= epoch for known, other in self._children):
            return
        self.kill(id_)
        own = {EXIT_FILE: str(self._words / f"{id_}.json"), CONTAINER_EPOCH: str(epoch)}
        environment = {**os.environ, **container.environment, **own}
        self._children[id_, epoch] = subprocess.Popen(self._command, env=environment)

    def request_stop(self, container_id: ContainerId) -> None:
        self._signal(container_id, signal.SIGTERM)

    def kill(self, container_id: ContainerId) -> None:
        self._signal(container_id, signal.SIGKILL)

    def _signal(self, container_id: ContainerId, number: signal.Signals) -> None:
        for (id_, _), child in self._children.items():
            if id_ == container_id:
                child.send_signal(number)

    def exits(self) -> list[ContainerExit]:
        ended = {key: child for key, child in self._children.items() if child.poll() is not None}
        self._children = {key: child for key, child in self._children.items() if key not in ended}
        return [self._exit(*key, child.returncode) for key, child in ended.items()]

    def _exit(self, id_: ContainerId, epoch: int, code: int) -> ContainerExit:
        if code < 0:
            return ContainerExit(id_, epoch, code, f"killed by signal {-code} ({signal.Signals(-code).name})")
        report = read_report(self._words / f"{id_}.json", epoch)
        if report is None or report.failure is None:
            return ContainerExit(id_, epoch, code, "")
        return ContainerExit(id_, epoch, code, str(report.failure), report.failure.place)

    def handle(self, container_id: ContainerId) -> str:
        return ""

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        return False

    def abandon(self) -> None:
        self.close()

    def close(self) -> None:
        for child in self._children.values():
            child.kill()
            child.wait()
        self._children.clear()
