"""Containers as child processes of this machine (Samza's ProcessJobFactory)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.model.ids import ContainerId

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "USER", "LOGNAME", "TZ")
_PASSED_ON_PREFIXES = ("GRETE_", "PYSPARK_", "SPARK_", "PYTHON")
_TAIL_BYTES = 4000
_LOG_KEPT_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class _Child:
    start: ContainerStart
    process: subprocess.Popen[bytes]
    log: Path


class ProcessLauncher(Launcher):
    """Starts `command` per container. Its standard input is a pipe that ends when this process does."""

    def __init__(self, command: Sequence[str], log_directory: Path) -> None:
        self._command = list(command)
        self._log_directory = log_directory
        self._children: dict[ContainerId, _Child] = {}

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        running = self._children.get(container.container_id)
        if running is not None and running.start.epoch == container.epoch:
            return
        self._log_directory.mkdir(parents=True, exist_ok=True)
        log = self._log_directory / f"container-{container.container_id}.log"
        if log.exists() and log.stat().st_size > _LOG_KEPT_BYTES:
            log.replace(log.with_suffix(".log.1"))
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                self._command,
                env=_environment(os.environ, container.environment),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._children[container.container_id] = _Child(container, process, log)

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher: SIGTERM."""
        self._signal(container_id, signal.SIGTERM)

    def kill(self, container_id: ContainerId) -> None:
        """See Launcher: SIGKILL; Spark's JVM ends with the pipe that the container held."""
        self._signal(container_id, signal.SIGKILL)

    def _signal(self, container_id: ContainerId, number: signal.Signals) -> None:
        child = self._children.get(container_id)
        if child is not None and child.process.poll() is None:
            child.process.send_signal(number)

    def exits(self) -> list[ContainerExit]:
        """See Launcher."""
        ended = [id_ for id_, child in self._children.items() if child.process.poll() is not None]
        return [self._exit(self._children.pop(id_)) for id_ in ended]

    def _exit(self, child: _Child) -> ContainerExit:
        code = child.process.returncode
        if child.process.stdin is not None:
            child.process.stdin.close()
        reason = "" if code == 0 else _last_error(child.log)
        return ContainerExit(child.start.container_id, child.start.epoch, code, reason)

    def close(self) -> None:
        """See Launcher."""
        for child in self._children.values():
            child.process.kill()
        for child in self._children.values():
            child.process.wait()
            if child.process.stdin is not None:
                child.process.stdin.close()
        self._children.clear()


def _environment(inherited: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """A minimal environment (S2-57): nothing of ours that a container has no business with."""
    kept = {
        name: value
        for name, value in inherited.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    return {**kept, **own}


def _last_error(log: Path) -> str:
    """The last line that reports an error, for people; the whole story is in the log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", errors="replace").strip().splitlines()
    except OSError as error:
        return f"(no log: {error})"
    errors = [line for line in lines if " ERROR " in line]
    return (errors or lines or [""])[-1][:1000]
