"""Spark's standalone cluster on loopback for tests: a master and workers, from the installed pyspark's jars.

Workers may be isolated: each is in a mount namespace of its own, in which folders of the driver's machine are empty.
So one machine shows what happens on several, where executors have neither the home of the driver nor the
application's folder.

    python -m grete_workbench.spark_cluster start DIRECTORY [--nodes 3]     prints the master's address
    python -m grete_workbench.spark_cluster stop DIRECTORY
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from grete.launch.spark_submit import spark_home
from grete.spark.session.versions import class_archive
from grete.testing.server_cluster import ServerCluster, ServerFailed, ServerNode, command_line, java

MASTER = 1
"""The number of the node that is the master; all others are workers."""
_JVM = ("-Xms32m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class SparkNode(ServerNode):
    """The master or a worker, and where it listens."""

    port: int
    web_port: int


@dataclass(frozen=True, slots=True)
class Hidden:
    """Folders that a worker finds empty: `folders`, save for `seen` below them, which it shares with everybody."""

    folders: Sequence[Path] = ()
    seen: Sequence[Path] = ()


class SparkCluster(ServerCluster[SparkNode]):
    """A master, and workers of one core each unless `cores` says otherwise: two more nodes are two workers.

    `hidden` is what no worker sees, `hidden_of` what the worker of a number sees instead. Hiding needs to be root, or
    a kernel that lets users have namespaces.
    """

    PORTS_PER_NODE: ClassVar[int] = 2

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        settings: Mapping[str, str] | None = None,
        outlives_us: bool = False,
        cores: int = 1,
        memory: str = "1g",
        hidden: Hidden | None = None,
        hidden_of: Mapping[int, Hidden] | None = None,
    ) -> None:
        self._cores, self._memory = cores, memory
        self._hidden, self._hidden_of = hidden or Hidden(), dict(hidden_of or {})
        super().__init__(directory, nodes=nodes, settings=settings, outlives_us=outlives_us)

    @property
    def bootstrap(self) -> str:
        """`spark.master` of applications."""
        return f"spark://127.0.0.1:{self.nodes[0].port}"

    @property
    def workers(self) -> tuple[int, ...]:
        """The numbers of the workers."""
        return tuple(node.number for node in self.nodes if node.number != MASTER)

    def _in_order(self) -> Sequence[Sequence[SparkNode]]:
        return [self.nodes[:1], self.nodes[1:]]  # a worker that finds no master waits for ten seconds

    @property
    def shared(self) -> Path:
        """A folder of the cluster's own, for what all machines see."""
        return self._directory / "shared"

    def hide(self, worker: int, hidden: Hidden) -> None:
        """Let a worker see something else when it starts again."""
        self._hidden_of[worker] = hidden

    def executors(self, worker: int) -> list[int]:
        """The processes of the worker's executors."""
        return [
            pid
            for pid, words in self._processes_of(worker)
            if b"--executor-id" in words and b"java" in words[0]
        ]

    def decommission_executors(self, worker: int) -> None:
        """Let a worker's executors take no more tasks, and end with those they have, as a cluster does before it
        goes.
        """
        for pid in self.executors(worker):
            os.kill(pid, signal.SIGPWR)

    def kill_machine(self, worker: int) -> None:
        """SIGKILL to a worker, its executors and their Python workers, all at once."""
        found = [pid for pid, _ in self._processes_of(worker)]
        self.kill(worker)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pause_machine(self, worker: int, what: signal.Signals = signal.SIGSTOP) -> None:
        """SIGSTOP, or SIGCONT, to a worker, its executors and their Python workers."""
        for pid, _ in self._processes_of(worker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, what)

    def _processes_of(self, worker: int) -> list[tuple[int, list[bytes]]]:
        """All processes of the worker's session, with their command lines."""
        own, found = self.nodes[worker - 1].running_pid(), []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError):
                session = int(stat.read_text().rpartition(") ")[2].split()[3])
                if session == own:
                    found.append((int(stat.parent.name), (stat.parent / "cmdline").read_bytes().split(b"\0")))
        return found

    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> SparkNode:
        return SparkNode(number, directory, *ports)

    def _prepare(self, node: SparkNode) -> None:
        spark = spark_home(os.environ)
        if not any((spark / "jars").glob("spark-core_*.jar")):
            raise ServerFailed(f"no Spark in {spark}: install grete[spark], or set SPARK_HOME")
        for folder in (*self._hidden_for(node).folders, *self._hidden_for(node).seen):
            folder.mkdir(parents=True, exist_ok=True)

    def _hidden_for(self, node: SparkNode) -> Hidden:
        return Hidden() if node.number == MASTER else self._hidden_of.get(node.number, self._hidden)

    def _command(self, node: SparkNode) -> list[str]:
        kind = "master.Master" if node.number == MASTER else "worker.Worker"
        spark = spark_home(os.environ)
        home = {"SPARK_HOME": str(spark), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
        words = [
            *("env", *(f"{name}={value}" for name, value in home.items())),
            *(java(), *_JVM, f"-XX:SharedArchiveFile={class_archive()}", "-Xlog:disable"),
            *(f"-Dgrete.node={node.directory}", "-cp", _class_path(spark)),
            *(f"-D{key}={value}" for key, value in self._settings.items()),
            f"org.apache.spark.deploy.{kind}",
            *("--host", "127.0.0.1", "--port", str(node.port), "--webui-port", str(node.web_port)),
        ]
        if node.number != MASTER:
            room = ("--cores", str(self._cores), "--memory", self._memory)
            words += [*room, "--work-dir", str(node.directory / "work"), self.bootstrap]
        return _isolated(words, self._hidden_for(node))

    def _is_ready(self, node: SparkNode) -> bool:
        state = self._state()
        if node.number == MASTER or state is None:
            return state is not None
        return any(one["port"] == node.port and one["state"] == "ALIVE" for one in state["workers"])

    def _state(self) -> dict[str, Any] | None:
        """What the master says of itself; None while it does not answer."""
        url = f"http://127.0.0.1:{self.nodes[0].web_port}/json/"
        beginning = (OSError, ValueError)  # for a moment it has pages, and not this one
        with contextlib.suppress(*beginning), urllib.request.urlopen(url, timeout=_ANSWER_S) as said:
            state: dict[str, Any] = json.loads(said.read())
            return state
        return None


def _isolated(words: Sequence[str], hidden: Hidden) -> list[str]:
    """The command in a mount namespace of its own, in which the hidden folders are empty. It keeps its process id."""
    if not hidden.folders:
        return list(words)
    kept = {10 + place: shlex.quote(str(folder)) for place, folder in enumerate(hidden.seen)}
    lines = [
        "set -eu",
        *(f"exec {number}<{folder}" for number, folder in kept.items()),
        *(f"mount -t tmpfs tmpfs {shlex.quote(str(folder))}" for folder in hidden.folders),
        *(
            f"mkdir -p {folder} && mount -c --bind /proc/self/fd/{number} {folder} && exec {number}<&-"
            for number, folder in kept.items()
        ),
        'exec "$@"',
    ]
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    own = ["unshare", "--mount", "--propagation", "private", *as_root]
    return [*own, "bash", "-c", "\n".join(lines), "worker", *words]


def _class_path(spark: Path) -> str:
    """That of Spark's own scripts: the archive of its classes holds for no other one."""
    first = [str(jar) for jar in sorted((spark / "jars").glob("slf4j-api-*.jar"))]
    return ":".join([str(spark / "conf"), *first, f"{spark / 'jars'}/*"])


if __name__ == "__main__":
    sys.exit(command_line(SparkCluster, "grete_workbench.spark_cluster"))
