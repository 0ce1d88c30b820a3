"""Containers as processes of this machine (Samza's ProcessJobFactory).

They are in sessions of their own and outlive this process: a container goes on while its coordinator is replaced, and
the next one adopts it. One that finds no coordinator for long enough ends itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from grete.failpoints import failpoint
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.launch.processes import OtherProcess, name_of, parse_name
from grete.model.ids import ContainerId

EXIT_FILE = "GRETE_EXIT_FILE"
"""Where a container leaves `{"epoch": n, "code": n}` as the last thing it does, for a launcher that adopted it."""
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME", "TZ"),
    *("JAVA_HOME", "SPARK_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
_PASSED_ON_PREFIXES = ("GRETE_", "PYSPARK_", "SPARK_", "PYTHON")
_TAIL_BYTES = 4000
_LOG_KEPT_BYTES = 32 * 1024 * 1024
_KILLED = -9


@dataclass(slots=True)
class _Running:
    start: ContainerStart
    process: subprocess.Popen[bytes] | OtherProcess | None
    """None for one that had ended, and said how, before it was adopted."""

    def has_ended(self) -> bool:
        if self.process is None:
            return True
        if isinstance(self.process, OtherProcess):
            return not self.process.is_running()
        return self.process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        if isinstance(self.process, OtherProcess):
            self.process.send(number)
        elif self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def release(self) -> None:
        if isinstance(self.process, OtherProcess):
            self.process.close()


class ProcessLauncher(Launcher):
    """Starts `command` per container; logs and exit files go to `log_directory`."""

    def __init__(self, command: Sequence[str], log_directory: Path) -> None:
        self._command = list(command)
        self._directory = log_directory
        self._running: dict[ContainerId, _Running] = {}
        self._replaced: list[_Running] = []

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        known = self._running.get(container.container_id)
        if known is not None and known.start.epoch >= container.epoch:
            return
        if known is not None:
            known.send(signal.SIGKILL)
            self._replaced.append(self._running.pop(container.container_id))
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._log(container.container_id)
        if log.exists() and log.stat().st_size > _LOG_KEPT_BYTES:
            log.replace(log.with_suffix(".log.1"))
        own = {**container.environment, EXIT_FILE: str(self._exit_file(container.container_id))}
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                self._command,
                env=_environment(os.environ, own),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        failpoint("launch.started")
        self._running[container.container_id] = _Running(container, process)

    def _log(self, container_id: ContainerId) -> Path:
        return self._directory / f"container-{container_id}.log"

    def _exit_file(self, container_id: ContainerId) -> Path:
        return self._directory / f"container-{container_id}.exit.json"

    def handle(self, container_id: ContainerId) -> str:
        """See Launcher: boot, process id and start time."""
        running = self._running.get(container_id)
        if running is None or running.process is None:
            return ""
        return str(name_of(running.process.pid) or "")

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        """See Launcher. One that has ended is adopted too when it said how, so that its exit is reported."""
        name = parse_name(handle)
        if name is None:
            return False
        process: OtherProcess | None = None
        try:
            process = OtherProcess(name)
        except OSError:
            if self._reported(container.container_id, container.epoch) is None:
                return False
        self._running[container.container_id] = _Running(container, process)
        return True

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher: SIGTERM."""
        self._signal(container_id, signal.SIGTERM)

    def kill(self, container_id: ContainerId) -> None:
        """See Launcher: SIGKILL; Spark's JVM ends with the pipe that the container held."""
        self._signal(container_id, signal.SIGKILL)

    def _signal(self, container_id: ContainerId, number: signal.Signals) -> None:
        running = self._running.get(container_id)
        if running is not None:
            running.send(number)

    def exits(self) -> list[ContainerExit]:
        """See Launcher."""
        ended = [id_ for id_, running in self._running.items() if running.has_ended()]
        replaced = [running for running in self._replaced if running.has_ended()]
        self._replaced = [running for running in self._replaced if running not in replaced]
        return [self._exit(running) for running in (*replaced, *map(self._running.pop, ended))]

    def _exit(self, running: _Running) -> ContainerExit:
        id_, epoch = running.start.container_id, running.start.epoch
        if isinstance(running.process, subprocess.Popen):
            code: int = running.process.returncode
        else:
            running.release()
            reported = self._reported(id_, epoch)
            code = _KILLED if reported is None else reported  # only a kill leaves no word
        reason = "" if code == 0 else _last_error(self._log(id_))
        return ContainerExit(id_, epoch, code, reason)

    def _reported(self, container_id: ContainerId, epoch: int) -> int | None:
        """The exit code that the incarnation left behind."""
        try:
            document = orjson.loads(self._exit_file(container_id).read_bytes())
            return int(document["code"]) if document["epoch"] == epoch else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def abandon(self) -> None:
        """See Launcher."""
        for running in (*self._replaced, *self._running.values()):
            running.release()
        self._replaced.clear()
        self._running.clear()

    def close(self) -> None:
        """See Launcher."""
        for running in (*self._replaced, *self._running.values()):
            running.send(signal.SIGKILL)
            if isinstance(running.process, subprocess.Popen):
                running.process.wait()
        self.abandon()


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
