"""Servers on loopback for tests: one node or several, each a JVM of jars that `make services` has fetched.

A cluster lives in a directory, which holds its ports and the process ids of its nodes: a second run of it, or another
process, finds the same. A command line starts one that outlives the command, and ends it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from grete.clock import Deadline, SystemClock
from grete.errors import GreteError
from grete.testing.waiting import patient

_PAUSES_S = (0.05, 0.05)
_START_S = 90.0
_STOP_S = 30.0
_END_S = 10.0
_PORTS = "ports.json"
_PORTS_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT, _LAST_PORT = 10_000, 65_535


class ServerFailed(GreteError):
    """A server did not start or stop in time. The message ends with the last lines of its log."""


def jars_directory(variable: str, folder: str) -> Path:
    """Where `make services` puts jars: what the environment variable names, else a folder of the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get(variable, cache / "grete" / folder))


def java() -> str:
    """The path of Java.

    Raises:
        ServerFailed: there is none.
    """
    found = shutil.which("java")
    if found is None:
        raise ServerFailed("no java on the PATH: install Java 17 or newer")
    return found


def free_ports(count: int) -> list[int]:
    """Ports of loopback without a listener, and that the kernel gives to no connection of its own accord.

    From the range that it gives from, a server's port is taken by some client while the server is down.
    """
    low, high = map(int, _PORTS_GIVEN.read_text().split())
    outside = [*range(_FIRST_PORT, low), *range(high + 1, _LAST_PORT + 1)]
    random.shuffle(outside)
    sockets: list[socket.socket] = []
    with ExitStack() as stack:
        for port in outside:
            each = stack.enter_context(socket.socket())
            with suppress(OSError):
                each.bind(("127.0.0.1", port))
                sockets.append(each)
            if len(sockets) == count:
                return [found.getsockname()[1] for found in sockets]
    raise ServerFailed(f"there are not {count} free ports on 127.0.0.1 outside {low} to {high}")


def _recorded_ports(directory: Path, count: int) -> list[int]:
    """The ports of the cluster that was started in `directory`; none when there was none of this size."""
    with suppress(FileNotFoundError):
        ports: list[int] = json.loads((directory / _PORTS).read_text())
        return ports if len(ports) == count else []
    return []


def _die_with_parent() -> None:
    """In the child, before it becomes the server."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ServerNode:
    """One node."""

    number: int
    directory: Path

    @property
    def pid_file(self) -> Path:
        """Holds the process id while the node runs."""
        return self.directory / "pid"

    @property
    def log(self) -> Path:
        """The last run's output."""
        return self.directory / "server.log"

    def running_pid(self) -> int | None:
        """The node's process, None when it has ended."""
        if not self.pid_file.exists():
            return None
        pid = int(self.pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline")
        is_ours = command.exists() and str(self.directory).encode() in command.read_bytes()
        return pid if is_ours else None


Node = TypeVar("Node", bound=ServerNode)


class ServerCluster(ABC, Generic[Node]):
    """One node or several in `directory`, which `start` may find as an earlier run left it."""

    PORTS_PER_NODE: ClassVar[int]

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        outlives_us: bool = False,
    ) -> None:
        """Unless `outlives_us`, servers are killed when the thread that started them ends, however it ends."""
        each = self.PORTS_PER_NODE
        self._ports = _recorded_ports(directory, each * nodes) or free_ports(each * nodes)
        self._directory = directory
        self._settings = dict(settings or {})
        self._outlives_us = outlives_us
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.nodes: tuple[Node, ...] = tuple(
            self._node(n + 1, directory / f"node{n + 1}", self._ports[each * n : each * n + each])
            for n in range(nodes)
        )

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The addresses for clients."""

    @abstractmethod
    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> Node:
        """The node of this number; its name is in the command that runs it."""

    @abstractmethod
    def _prepare(self, node: Node) -> None:
        """Write its files, before it is started for the first time.

        Raises:
            ServerFailed: no jars, or the node cannot be made.
        """

    @abstractmethod
    def _command(self, node: Node) -> list[str]:
        """The command that runs it in the foreground."""

    @abstractmethod
    def _is_ready(self, node: Node) -> bool:
        """Whether a node that was started takes requests."""

    @property
    def is_running(self) -> bool:
        """Whether every node runs, by any parent: a cluster of the same directory is the same cluster."""
        return all(node.running_pid() is not None for node in self.nodes)

    def start(self) -> None:
        """Make and start every node; returns when all take requests.

        Raises:
            ServerFailed: no jars, or a node that ended or took too long.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / _PORTS).write_text(json.dumps(self._ports))
        for node in self.nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
            self._prepare(node)
        for nodes in self._in_order():
            for node in nodes:
                self._launch(node)
            for node in nodes:
                self._await(node)

    def _in_order(self) -> Sequence[Sequence[Node]]:
        """The nodes in groups, each of which is started when the one before takes requests."""
        return [self.nodes]

    def ensure_running(self) -> None:
        """Start again what a test has killed, and let what it has paused go on.

        Raises:
            ServerFailed: as `start`.
        """
        for node in self.nodes:
            if node.running_pid() is None:
                self._forget(node.number)
                self._launch(node)
            else:
                self.resume(node.number)
        for node in self.nodes:
            if node.number in self._processes:
                self._await(node)

    def _launch(self, node: Node) -> None:
        with node.log.open("wb") as log:
            self._processes[node.number] = subprocess.Popen(  # noqa: S603 - our own words
                self._command(node),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=None if self._outlives_us else _die_with_parent,
            )
        node.pid_file.write_text(str(self._processes[node.number].pid))

    def _await(self, node: Node) -> None:
        deadline = Deadline(SystemClock(), patient(_START_S), pauses_s=_PAUSES_S)
        while not self._is_ready(node):
            code = self._processes[node.number].poll()
            if code is not None or not deadline.pause():
                how = f"did not start within {_START_S:g} s" if code is None else f"ended with code {code}"
                tail = node.log.read_text(errors="replace")[-6_000:]
                raise ServerFailed(f"the server in {node.directory} {how}:\n{tail}")

    def restart(self, number: int = 1) -> None:
        """Start a node again that was stopped or killed, on the same ports with the same data."""
        node = self.nodes[number - 1]
        self._launch(node)
        self._await(node)

    def kill(self, number: int = 1) -> None:
        """SIGKILL to one node."""
        self._end(self.nodes[number - 1], signal.SIGKILL)

    def pause(self, number: int = 1) -> None:
        """SIGSTOP to one node, until `resume`."""
        self._signal(number, signal.SIGSTOP)

    def resume(self, number: int = 1) -> None:
        """SIGCONT to one node."""
        self._signal(number, signal.SIGCONT)

    def _signal(self, number: int, what: signal.Signals) -> None:
        pid = self.nodes[number - 1].running_pid()
        if pid is None:
            raise ServerFailed(f"the server in {self.nodes[number - 1].directory} does not run")
        os.kill(pid, what)

    def _forget(self, number: int) -> None:
        """Take in the end of a process that has died."""
        process = self._processes.pop(number, None)
        if process is not None:
            process.wait()

    def stop(self) -> None:
        """Ask every node to end, kill what does not within 10 s, as the last of several; remove nothing."""
        for process in self._processes.values():
            process.terminate()
        for node in self.nodes:
            self._end(node, signal.SIGTERM)

    def _end(self, node: Node, how: signal.Signals) -> None:
        process = self._processes.pop(node.number, None)
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        node.pid_file.unlink(missing_ok=True)


def stop_directory(directory: Path) -> int:
    """End the nodes that another process started in `directory`, by their pid files; returns how many."""
    ended = 0
    for pid_file in sorted(directory.glob("node*/pid")):
        pid = ServerNode(0, pid_file.parent).running_pid()
        pid_file.unlink()
        if pid is None:
            continue
        os.kill(pid, signal.SIGTERM)
        deadline = Deadline(SystemClock(), patient(_STOP_S), pauses_s=_PAUSES_S)
        while Path(f"/proc/{pid}/cmdline").exists() and deadline.pause():
            pass
        ended += 1
    return ended


def command_line(make: type[ServerCluster[Node]], module: str, arguments: Sequence[str] | None = None) -> int:
    """`start DIRECTORY [--nodes 3]` prints the addresses for clients, `stop DIRECTORY` ends what was started."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("action", choices=("start", "stop"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=1)
    given = parser.parse_args(arguments)
    directory = given.directory.resolve()
    if given.action == "stop":
        print(f"{stop_directory(directory)} stopped")
        return 0
    cluster = make(directory, nodes=given.nodes, outlives_us=True)
    cluster.start()
    print(cluster.bootstrap)
    return 0
