"""HDFS on loopback for tests: a NameNode and a DataNode, of the jars that YARN's tests have.

python -m grete_workbench.hdfs start DIRECTORY     prints hdfs://HOST:PORT
python -m grete_workbench.hdfs stop DIRECTORY
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from grete.http_answers import HTTPError, connections, whole_answer
from grete.testing.server_cluster import ServerCluster, ServerFailed, ServerNode, command_line, java
from grete_workbench.yarn import JVM, LOGGING, jars_directory, write_site

_SERVERS = "org.apache.hadoop.hdfs.server"
_MAINS = (f"{_SERVERS}.namenode.NameNode", f"{_SERVERS}.datanode.DataNode")
_CALL_S, _FORMAT_S = 10.0, 120.0
_STATE = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"


@dataclass(frozen=True, slots=True)
class HdfsNode(ServerNode):
    """One server and where it listens; a NameNode has no `transfer_port`."""

    port: int
    web_port: int
    transfer_port: int

    @property
    def is_name_node(self) -> bool:
        """Whether it is the first node."""
        return self.number == 1

    @property
    def configuration(self) -> Path:
        """The folder of its configuration."""
        return self.directory / "conf"


class HdfsCluster(ServerCluster[HdfsNode]):
    """A NameNode and a DataNode in `directory`, whose files have one copy and no owners."""

    PORTS_PER_NODE: ClassVar[int] = 3

    def __init__(self, directory: Path, *, outlives_us: bool = False, **_: Any) -> None:
        """See ServerCluster."""
        super().__init__(directory, nodes=2, settings=None, outlives_us=outlives_us)

    @property
    def bootstrap(self) -> str:
        """The file system's address."""
        return f"hdfs://127.0.0.1:{self.nodes[0].port}"

    def _node(self, number: int, directory: Path, ports: Any) -> HdfsNode:
        return HdfsNode(number, directory, *ports)

    def _prepare(self, node: HdfsNode) -> None:
        if not any(jars_directory().glob("hadoop-client-minicluster-*.jar")):
            raise ServerFailed(f"no jars of HDFS in {jars_directory()}: run make services")
        for folder in ("hdfs", "datanode", "static"):  # pages, which its web server wants to be there
            (node.configuration / "webapps" / folder).mkdir(parents=True, exist_ok=True)
        (node.configuration / "log4j.properties").write_text(LOGGING)
        temporary = str(node.directory / "tmp")
        write_site(
            node.configuration / "core-site.xml",
            {"fs.defaultFS": self.bootstrap, "hadoop.tmp.dir": temporary},
        )
        write_site(node.configuration / "hdfs-site.xml", self._site(node))
        if node.is_name_node and not (node.directory / "name").exists():
            words = [*self._command(node), "-format", "-nonInteractive"]
            made = subprocess.run(words, capture_output=True, timeout=_FORMAT_S, text=True, check=False)  # noqa: S603 - our own command
            if made.returncode:
                raise ServerFailed(f"a NameNode was not formatted: {made.stderr[-1000:]}")

    def _site(self, node: HdfsNode) -> dict[str, str]:
        manager = self.nodes[0]
        return {
            "dfs.namenode.rpc-address": f"127.0.0.1:{manager.port}",
            "dfs.namenode.http-address": f"127.0.0.1:{manager.web_port}",
            "dfs.namenode.name.dir": (node.directory / "name").as_uri(),
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.extension": "0",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.datanode.address": f"127.0.0.1:{node.transfer_port}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{node.port}",
            "dfs.datanode.http.address": f"127.0.0.1:{node.web_port}",
            "dfs.datanode.data.dir": (node.directory / "data").as_uri(),
            "dfs.datanode.du.reserved": "0",
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
        }

    def _command(self, node: HdfsNode) -> list[str]:
        main = _MAINS[0] if node.is_name_node else _MAINS[1]
        logging = f"-Dlog4j.configuration=file:{node.configuration / 'log4j.properties'}"
        options = (*JVM, logging, f"-Dhadoop.home.dir={node.directory}")
        return [java(), *options, "-cp", f"{node.configuration}:{jars_directory()}/*", main]

    def _is_ready(self, node: HdfsNode) -> bool:
        with suppress(HTTPError, KeyError, IndexError, ValueError):
            address = f"http://127.0.0.1:{self.nodes[0].web_port}{_STATE}"
            [state] = whole_answer(connections(), "GET", address, _CALL_S).json()["beans"]
            return node.is_name_node or (state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational")
        return False


if __name__ == "__main__":
    sys.exit(command_line(HdfsCluster, "grete_workbench.hdfs"))
