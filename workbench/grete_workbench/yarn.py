"""YARN on loopback for tests: a ResourceManager and NodeManagers, of jars that `make services` has fetched.

The first node is the ResourceManager, every other a NodeManager of 4 GB and 4 cores. There is no HDFS: files are
staged in the directory, which every process sees. Applications have two attempts.

    python -m grete_workbench.yarn start DIRECTORY [--nodes 1]     prints the folder of a client's configuration
    python -m grete_workbench.yarn stop DIRECTORY
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from xml.sax.saxutils import escape

from grete.http_answers import HTTPError, connections, whole_answer
from grete.testing import server_cluster
from grete.testing.server_cluster import ServerCluster, ServerFailed, ServerNode, command_line, java

VERSION = "3.5.0"
_CALL_S = 10.0
_SERVERS = "org.apache.hadoop.yarn.server"
_CLIENT = "org.apache.hadoop.yarn.client.cli"
_MAINS = (f"{_SERVERS}.resourcemanager.ResourceManager", f"{_SERVERS}.nodemanager.NodeManager")
JVM = (
    *("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "--add-opens=java.base/java.lang=ALL-UNNAMED",  # for its injection of dependencies
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
LOGGING = """log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c{1} %m%n
"""
_SETTINGS = {
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.resourcemanager.scheduler.class": f"{_SERVERS}.resourcemanager.scheduler.fifo.FifoScheduler",
    "yarn.resourcemanager.am.max-attempts": "2",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
}
"""For few resources and short tests. After how long masters and nodes are lost stays YARN's own."""


def jars_directory() -> Path:
    """Where `make services` puts the jars: `GRETE_YARN_JARS`, else a folder of the user's cache."""
    return server_cluster.jars_directory("GRETE_YARN_JARS", f"yarn-{VERSION}")


@dataclass(frozen=True, slots=True)
class YarnNode(ServerNode):
    """One server and where it listens: a ResourceManager has five ports, a NodeManager uses three of them."""

    port: int
    web_port: int
    scheduler_port: int
    tracker_port: int
    admin_port: int

    @property
    def is_resource_manager(self) -> bool:
        """Whether it is the first node."""
        return self.number == 1

    @property
    def configuration(self) -> Path:
        """The folder of its configuration."""
        return self.directory / "conf"

    @property
    def container_logs(self) -> Path:
        """A folder for each application, with one for each of its containers."""
        return self.directory / "logs"


class YarnCluster(ServerCluster[YarnNode]):
    """A ResourceManager and one NodeManager or more in `directory`. `settings` are of yarn-site.xml."""

    PORTS_PER_NODE: ClassVar[int] = 5

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        outlives_us: bool = False,
        file_system: str = "file://",
    ) -> None:
        """See ServerCluster; `nodes` are NodeManagers, and files are staged on the file system of that address."""
        self._file_system = file_system
        super().__init__(directory, nodes=1 + nodes, settings=settings, outlives_us=outlives_us)

    @property
    def bootstrap(self) -> str:
        """`HADOOP_CONF_DIR` of clients."""
        return str(self.nodes[0].configuration)

    @property
    def address(self) -> str:
        """The ResourceManager's web services."""
        return f"http://127.0.0.1:{self.nodes[0].web_port}"

    @property
    def staging(self) -> str:
        """`spark.yarn.stagingDir`."""
        return f"{self._file_system}{self._directory / 'staging'}"

    def kill_machine(self, number: int) -> None:
        """SIGKILL to a NodeManager and to everything that its containers run, until nothing of it is left."""
        self.kill(number)
        while found := _working_below(self.nodes[number - 1].directory):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def decommission(self, number: int) -> None:
        """Let a node go when what runs on it has ended, as `yarn rmadmin -refreshNodes -g` does."""
        manager = self.nodes[0]
        _excluded(manager).write_text(f"{_host(self.nodes[number - 1])}\n")
        words = ["-cp", f"{manager.configuration}:{jars_directory()}/*", f"{_CLIENT}.RMAdminCLI"]
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            [java(), *JVM, *words, "-refreshNodes", "-g", "600", "-server"], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise ServerFailed(f"a node cannot be decommissioned: {done.stderr[-2000:]}")

    def ask(self, path: str) -> Any:
        """The document at a path of the ResourceManager's web services.

        Raises:
            ServerFailed: an error.
        """
        answer = whole_answer(connections(), "GET", f"{self.address}/ws/v1/cluster/{path}", _CALL_S)
        if answer.status != 200:
            raise ServerFailed(f"{path}: {answer.status} {answer.text[:500]}")
        return answer.json()

    def logs_of(self, application: str) -> str:
        """All that containers of an application have written, for a test that fails."""
        found = sorted(
            log
            for node in self.nodes
            for log in node.container_logs.glob(f"{application}/*/std*")
            if log.stat().st_size
        )
        ends = ((log, log.read_text(errors="replace")[-6_000:]) for log in found)
        return "\n".join(f"--- {log.parent.name} {log.name}\n{end}" for log, end in ends)

    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> YarnNode:
        return YarnNode(number, directory, *ports)

    def _prepare(self, node: YarnNode) -> None:
        if not any(jars_directory().glob("hadoop-client-minicluster-*.jar")):
            raise ServerFailed(f"no YARN jars in {jars_directory()}: run make services")
        for folder in ("cluster", "node", "static"):  # pages, which its web server wants to be there
            (node.configuration / "webapps" / folder).mkdir(parents=True, exist_ok=True)
        (node.configuration / "log4j.properties").write_text(LOGGING)
        core = {
            "fs.defaultFS": f"{self._file_system}/",
            "hadoop.tmp.dir": str(node.directory / "tmp"),
            "hadoop.http.filter.initializers": "org.apache.hadoop.http.lib.StaticUserWebFilter",
            "hadoop.http.staticuser.user": "tests",
        }
        write_site(node.configuration / "core-site.xml", core)
        _excluded(node).touch()
        write_site(node.configuration / "yarn-site.xml", self._site(node))

    def _site(self, node: YarnNode) -> dict[str, str]:
        manager = self.nodes[0]
        own = {} if node.is_resource_manager else _node_manager(node)
        return {
            **_SETTINGS,
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.bind-host": "127.0.0.1",
            "yarn.resourcemanager.address": f"127.0.0.1:{manager.port}",
            "yarn.resourcemanager.webapp.address": f"127.0.0.1:{manager.web_port}",
            "yarn.resourcemanager.scheduler.address": f"127.0.0.1:{manager.scheduler_port}",
            "yarn.resourcemanager.resource-tracker.address": f"127.0.0.1:{manager.tracker_port}",
            "yarn.resourcemanager.admin.address": f"127.0.0.1:{manager.admin_port}",
            "yarn.resourcemanager.nodes.exclude-path": str(_excluded(manager)),
            "yarn.application.classpath": f"{jars_directory()}/*",
            **own,
            **self._settings,
        }

    def _command(self, node: YarnNode) -> list[str]:
        main = _MAINS[0] if node.is_resource_manager else _MAINS[1]
        logging = f"-Dlog4j.configuration=file:{node.configuration / 'log4j.properties'}"
        options = (*JVM, logging, f"-Dhadoop.home.dir={node.directory}")
        return [java(), *options, "-cp", f"{node.configuration}:{jars_directory()}/*", main]

    def _is_ready(self, node: YarnNode) -> bool:
        with suppress(HTTPError, ServerFailed):
            if node.is_resource_manager:
                return bool(self.ask("info"))
            found = (self.ask("nodes")["nodes"] or {}).get("node", ())
            return any(one["id"].endswith(f":{node.port}") and one["state"] == "RUNNING" for one in found)
        return False


def _working_below(folder: Path) -> list[int]:
    """The processes whose working folder is there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # has ended, or is a zombie
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def _excluded(manager: YarnNode) -> Path:
    """The file of the hosts that are to go."""
    return manager.configuration / "excluded"


def _host(node: YarnNode) -> str:
    """A machine of its own, as far as YARN can tell."""
    return f"127.0.0.{node.number}"


def _node_manager(node: YarnNode) -> dict[str, str]:
    own = _host(node)
    return {
        "yarn.nodemanager.hostname": own,
        "yarn.nodemanager.bind-host": own,
        "yarn.nodemanager.address": f"{own}:{node.port}",
        "yarn.nodemanager.webapp.address": f"{own}:{node.web_port}",
        "yarn.nodemanager.localizer.address": f"{own}:{node.scheduler_port}",
        "yarn.nodemanager.local-dirs": str(node.directory / "local"),
        "yarn.nodemanager.log-dirs": str(node.container_logs),
        "yarn.nodemanager.delete.debug-delay-sec": "3600",
    }


def write_site(path: Path, properties: Mapping[str, str]) -> None:
    """Write a file of Hadoop's configuration."""
    lines = (
        f"<property><name>{key}</name><value>{escape(value)}</value></property>"
        for key, value in properties.items()
    )
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


if __name__ == "__main__":
    sys.exit(command_line(YarnCluster, "grete_workbench.yarn"))
