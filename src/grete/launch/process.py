"""Containers as processes of this machine (Samza's ProcessJobFactory).

They are in sessions of their own and outlive this process: a container goes on while its coordinator is replaced, and
the next one adopts it. One that finds no coordinator for long enough ends itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grete.clock import SystemClock
from grete.environment import CONFIGURED, CONTAINER_EPOCH, EXIT_FILE
from grete.exit_report import read_report
from grete.failpoints import failpoint
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.launch.exits import exit_of
from grete.launch.factory import LaunchContext
from grete.launch.log_files import LOOK_S, cut
from grete.launch.processes import OtherProcess, name_of, parse_name
from grete.model.ids import ContainerId
from grete.private_files import private_directory, private_opener

_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME", "TZ"),
    *("JAVA_HOME", "SPARK_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "LD_LIBRARY_PATH"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("IDENTITY_ENDPOINT", "IDENTITY_HEADER"),
)
_PASSED_ON_PREFIXES = ("GRETE_", "PYSPARK_", "SPARK_", "PYTHON", "AWS_", "AZURE_", "OTEL_", "KRB5")
"""Of the last ones libraries read how this machine reaches others, and who it is there."""
_PATHS = (
    *("PATH", "PYTHONPATH", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR"),
    *("YARN_CONF_DIR", "GRETE_SPARK_KAFKA_JARS", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("REQUESTS_CA_BUNDLE", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_CONFIG_FILE", "KRB5_CONFIG"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE"),
)
_COMMANDS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""Paths only where they have a slash, as in a shell."""
_KILLED = -9


@dataclass(slots=True)
class _RunningProcess:
    start: ContainerStart
    process: subprocess.Popen[bytes] | OtherProcess | None
    """None for one that had ended, and said how, before it was adopted."""
    descriptor: int | None = None
    """Readable once a process of our own has ended; None when there was no descriptor left for it."""

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
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def descriptors(self) -> Iterator[int]:
        if isinstance(self.process, OtherProcess):
            yield self.process.fileno()
        elif self.descriptor is not None:
            yield self.descriptor


def open_launcher(context: LaunchContext) -> ProcessLauncher:
    """See `grete.launch.factory`."""
    return ProcessLauncher(context.command, context.logs)


class ProcessLauncher(Launcher):
    """Starts `command` per container; logs and exit files go to `log_directory`."""

    def __init__(self, command: Sequence[str], log_directory: Path) -> None:
        self._command = list(command)
        self._directory = log_directory
        self._running: dict[ContainerId, _RunningProcess] = {}
        self._replaced: list[_RunningProcess] = []
        self._clock = SystemClock()
        self._looks_at_s = 0.0

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        known = self._running.get(container.container_id)
        if known is not None and known.start.epoch >= container.epoch:
            return
        if known is not None:
            known.send(signal.SIGKILL)
            self._replaced.append(self._running.pop(container.container_id))
        private_directory(self._directory)
        log = self._log(container.container_id)
        cut(log)
        own = {
            **container.environment,
            EXIT_FILE: str(self._exit_file(container.container_id)),
            CONTAINER_EPOCH: str(container.epoch),
        }
        with open(log, "ab", opener=private_opener) as output:
            process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                self._command,
                env=container_environment(os.environ, own),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        failpoint("launch.started")
        self._running[container.container_id] = running = _RunningProcess(container, process)
        with contextlib.suppress(OSError):
            running.descriptor = os.pidfd_open(process.pid)

    def _log(self, container_id: ContainerId) -> Path:
        return self._directory / f"container-{container_id}.log"

    def _exit_file(self, container_id: ContainerId) -> Path:
        return self._directory / f"container-{container_id}.exit.json"

    def process_id(self, container_id: ContainerId) -> int | None:
        """The process that was started for the container, None where there is none."""
        running = self._running.get(container_id)
        return None if running is None or running.process is None else running.process.pid

    def handle(self, container_id: ContainerId) -> str:
        """See Launcher: boot, process id and start time."""
        pid = self.process_id(container_id)
        return "" if pid is None else str(name_of(pid) or "")

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        """See Launcher. One that has ended is adopted too when it said how, so that its exit is reported.

        Anything that writes into the coordinator stream can claim a handle: the process is taken for the container
        only if it was started with that container's exit file and epoch in its environment.
        """
        name = parse_name(handle)
        if name is None:
            return False
        process: OtherProcess | None = None
        with contextlib.suppress(OSError):
            process = OtherProcess(name)
        if process is not None and not self._is_ours(process, container):
            is_another = process.is_running()
            process.close()
            if is_another:
                return False
            process = None
        if process is None and read_report(self._exit_file(container.container_id), container.epoch) is None:
            return False
        self._running[container.container_id] = _RunningProcess(container, process)
        return True

    def _is_ours(self, process: OtherProcess, container: ContainerStart) -> bool:
        given = process.environment()
        exit_file = given.get(EXIT_FILE, "")
        return Path(exit_file).resolve() == self._exit_file(container.container_id).resolve() and given.get(
            CONTAINER_EPOCH
        ) == str(container.epoch)

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

    def descriptors(self) -> list[int]:
        """See Launcher."""
        known = (*self._replaced, *self._running.values())
        return [descriptor for running in known for descriptor in running.descriptors()]

    def exits(self) -> list[ContainerExit]:
        """See Launcher."""
        self._cut_logs()
        ended = [id_ for id_, running in self._running.items() if running.has_ended()]
        replaced = [running for running in self._replaced if running.has_ended()]
        self._replaced = [running for running in self._replaced if running not in replaced]
        return [self._exit(running) for running in (*replaced, *map(self._running.pop, ended))]

    def _cut_logs(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._looks_at_s:
            return
        self._looks_at_s = now_s + LOOK_S
        for container_id in self._running:
            cut(self._log(container_id))

    def _exit(self, running: _RunningProcess) -> ContainerExit:
        report = read_report(self._exit_file(running.start.container_id), running.start.epoch)
        running.release()
        if isinstance(running.process, subprocess.Popen):
            code: int = running.process.returncode
        else:
            code = _KILLED if report is None else int(report)  # only a kill leaves no report
        return exit_of(running.start, code, report)

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


def container_environment(inherited: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """A minimal environment (S2-57): nothing of ours that a container has no business with.

    It has business with what its configuration refers to, whose names are in `own`. Paths are absolute, since the
    container works in another folder than this process.
    """
    always = {name for name in inherited if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)}
    configured = sorted(inherited.keys() & set(own.get(CONFIGURED, "").split(",")) - always)
    kept = {name: _absolute(name, inherited[name]) for name in (*always, *configured)}
    return {**kept, **own, CONFIGURED: ",".join(configured)}


def _absolute(name: str, value: str) -> str:
    if value and (name in _PATHS or (name in _COMMANDS and os.sep in value)):
        return os.pathsep.join(map(os.path.abspath, value.split(os.pathsep)))
    return value
