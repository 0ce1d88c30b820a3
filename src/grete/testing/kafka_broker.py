"""Kafka brokers on loopback for tests: one node or three, of jars that `make services` has fetched.

KRaft, each node broker and controller at once, 256 MB of heap, ports that were free. Every node has a second
listener, `PROXIED`, that redirects clients to `proxied_port`, where a proxy may listen.

    python -m grete.testing.kafka_broker start DIRECTORY [--nodes 3]     prints the bootstrap servers
    python -m grete.testing.kafka_broker stop DIRECTORY
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
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from grete.clock import Deadline, SystemClock
from grete.errors import GreteError
from grete.testing.waiting import patient

VERSION = "4.3.1"
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
_PAUSES_S = (0.05, 0.05)
_START_S = 90.0
_STOP_S = 30.0
_END_S = 10.0
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_ARCHIVE = "broker.jsa"
"""Classes of these jars as `make services` has archived them."""
_SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""For few resources and short tests: the cleaner looks every 100 ms, transactions are timed out within
20 ms, so that a broker that comes back does so before its partitions have leaders, which it does not do well.
Nothing is deleted for its age: records of tests are from 1970, and brokers look half a minute after their start."""


_PORTS = "ports.json"
"""In the cluster's directory: what it listens on, so that a second run of it, or another process, finds the same."""
_PORTS_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT, _LAST_PORT = 10_000, 65_535


class BrokerFailed(GreteError):
    """A broker did not start or stop in time. The message ends with the last lines of its log."""


def jars_directory() -> Path:
    """Where `make services` puts the jars: `GRETE_KAFKA_JARS`, else a folder of the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("GRETE_KAFKA_JARS", cache / "grete" / f"kafka-{VERSION}"))


def free_ports(count: int) -> list[int]:
    """Ports of loopback without a listener, and that the kernel gives to no connection of its own accord.

    From the range that it gives from, a broker's port is taken by some client while the broker is down.
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
    raise BrokerFailed(f"there are not {count} free ports on 127.0.0.1 outside {low} to {high}")


def _recorded_ports(directory: Path, count: int) -> list[int]:
    """The ports of the cluster that was started in `directory`; none when there was none of this size."""
    with suppress(FileNotFoundError):
        ports: list[int] = json.loads((directory / _PORTS).read_text())
        return ports if len(ports) == count else []
    return []


def _die_with_parent() -> None:
    """In the child, before it becomes the broker."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """One node and where it listens. Clients that begin at `direct_port` never see `proxied_port`."""

    number: int
    directory: Path
    direct_port: int
    listener_port: int
    proxied_port: int
    controller_port: int
    further_port: int = 0
    """For a listener that a cluster has besides."""

    @property
    def pid_file(self) -> Path:
        """Holds the process id while the node runs."""
        return self.directory / "pid"

    def running_pid(self) -> int | None:
        """The node's process, None when it has ended."""
        if not self.pid_file.exists():
            return None
        pid = int(self.pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline")
        is_ours = command.exists() and str(self.directory).encode() in command.read_bytes()
        return pid if is_ours else None


class KafkaCluster:
    """One node or several in `directory`, which `start` may find as an earlier run left it."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        outlives_us: bool = False,
    ) -> None:
        """Unless `outlives_us`, the brokers are killed when the thread that started them ends, however it ends."""
        ports = _recorded_ports(directory, 5 * nodes) or free_ports(5 * nodes)
        self._ports = ports
        self._directory = directory
        self._settings = dict(settings or {})
        self._outlives_us = outlives_us
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.nodes = tuple(
            KafkaNode(number + 1, directory / f"node{number + 1}", *ports[5 * number : 5 * number + 5])
            for number in range(nodes)
        )

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of clients."""
        return ",".join(f"127.0.0.1:{node.direct_port}" for node in self.nodes)

    @property
    def is_running(self) -> bool:
        """Whether every node runs, by any parent: a cluster of the same directory is the same cluster."""
        return all(node.running_pid() is not None for node in self.nodes)

    def ensure_running(self) -> None:
        """Start again what a test has killed, and let what it has paused go on.

        Raises:
            BrokerFailed: as `start`.
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

    def start(self) -> None:
        """Format and start every node; returns when all take requests.

        Raises:
            BrokerFailed: no jars, or a node that ended or took too long.
        """
        if not any(jars_directory().glob("kafka_2.13-*.jar")):
            raise BrokerFailed(f"no Kafka jars in {jars_directory()}: run make services")
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / _PORTS).write_text(json.dumps(self._ports))
        for node in self.nodes:
            self._format(node)
        for node in self.nodes:
            self._launch(node)
        for node in self.nodes:
            self._await(node)

    def _format(self, node: KafkaNode) -> None:
        node.directory.mkdir(parents=True, exist_ok=True)
        properties = node.directory / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._properties(node).items()))
        if (node.directory / "log" / "meta.properties").exists():
            return
        words = ("-t", _CLUSTER, "-c", str(properties), *self._format_options())
        command = self._java("kafka.tools.StorageTool", "format", *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
        if done.returncode != 0:
            raise BrokerFailed(f"formatting {node.directory} failed: {done.stdout}{done.stderr}")

    def _format_options(self) -> Sequence[str]:
        """Metadata for the formatting of nodes; for clusters with logins."""
        return ()

    def _properties(self, node: KafkaNode) -> dict[str, str]:
        count = len(self.nodes)
        copies = str(min(3, count))
        in_sync = str(min(2, count))
        at = "127.0.0.1"
        ports = {"PLAINTEXT": node.direct_port, "PROXIED": node.proxied_port}
        heard = {"PLAINTEXT": node.direct_port, "PROXIED": node.listener_port}
        protocols = dict.fromkeys(("CONTROLLER", *ports), "PLAINTEXT")

        def listeners(ports: Mapping[str, int]) -> str:
            return ",".join(f"{name}://{at}:{port}" for name, port in ports.items())

        return {
            "process.roles": "broker,controller",
            "node.id": str(node.number),
            "controller.quorum.voters": ",".join(
                f"{each.number}@{at}:{each.controller_port}" for each in self.nodes
            ),
            "listeners": listeners({**heard, "CONTROLLER": node.controller_port}),
            "advertised.listeners": listeners(ports),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
            "log.dirs": str(node.directory / "log"),
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            **_SETTINGS,
            **self._settings,
        }

    def _java(self, *words: str) -> list[str]:
        java = shutil.which("java")
        if java is None:
            raise BrokerFailed("no java on the PATH: install Java 17 or newer")
        archive = jars_directory() / _ARCHIVE
        sooner = [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []
        return [java, *_JVM, *sooner, "-cp", f"{jars_directory()}/*", *words]

    def _launch(self, node: KafkaNode) -> None:
        with (node.directory / "broker.log").open("wb") as log:
            self._processes[node.number] = subprocess.Popen(  # noqa: S603 - our own words
                self._java("kafka.Kafka", str(node.directory / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=None if self._outlives_us else _die_with_parent,
            )
        node.pid_file.write_text(str(self._processes[node.number].pid))

    def _await(self, node: KafkaNode) -> None:
        log = node.directory / "broker.log"
        deadline = Deadline(SystemClock(), patient(_START_S), pauses_s=_PAUSES_S)
        while b"Kafka Server started" not in log.read_bytes():
            code = self._processes[node.number].poll()
            if code is not None or not deadline.pause():
                how = f"did not start within {_START_S:g} s" if code is None else f"ended with code {code}"
                tail = log.read_text(errors="replace")[-6_000:]
                raise BrokerFailed(f"the broker in {node.directory} {how}:\n{tail}")

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
            raise BrokerFailed(f"the broker in {self.nodes[number - 1].directory} does not run")
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

    def _end(self, node: KafkaNode, how: signal.Signals) -> None:
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
        pid = KafkaNode(0, pid_file.parent, 0, 0, 0, 0).running_pid()
        pid_file.unlink()
        if pid is None:
            continue
        os.kill(pid, signal.SIGTERM)
        deadline = Deadline(SystemClock(), patient(_STOP_S), pauses_s=_PAUSES_S)
        while Path(f"/proc/{pid}/cmdline").exists() and deadline.pause():
            pass
        ended += 1
    return ended


def main(arguments: Sequence[str] | None = None) -> int:
    """The commands of the module's head."""
    parser = argparse.ArgumentParser(prog="python -m grete.testing.kafka_broker")
    parser.add_argument("action", choices=("start", "stop"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=1)
    given = parser.parse_args(arguments)
    directory = given.directory.resolve()
    if given.action == "stop":
        print(f"{stop_directory(directory)} stopped")
        return 0
    cluster = KafkaCluster(directory, nodes=given.nodes, outlives_us=True)
    cluster.start()
    print(cluster.bootstrap)
    return 0


if __name__ == "__main__":
    sys.exit(main())
