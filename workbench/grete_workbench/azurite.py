"""Azure Storage on loopback for tests: Azurite, whose modules `make services` has fetched. 2 s to start, 120 MB.

`move_clock` moves the server's clock, so that a lease ends when a test says so. When it is killed, what was written
last is lost, so it shows nothing about durability.

    python -m grete_workbench.azurite start DIRECTORY     prints the connection string
    python -m grete_workbench.azurite stop DIRECTORY
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from grete.config.settings.azure import EMULATOR
from grete.testing.clock import ManualClock
from grete.testing.server_cluster import ServerCluster, ServerFailed, ServerNode, command_line, jars_directory
from grete.testing.waiting import eventually

VERSION = "3.35.0"
_PROGRAM = Path("node_modules", "azurite", "dist", "src", "azurite.js")
_SHIFT = Path(__file__).with_name("azurite_shift.js")
_READY = ("Blob service is successfully", "Table service is successfully")


def modules_directory() -> Path:
    """Where `make services` puts the modules: `GRETE_AZURITE`, else a folder of the user's cache."""
    return jars_directory("GRETE_AZURITE", f"azurite-{VERSION}")


@dataclass(frozen=True, slots=True)
class AzuriteNode(ServerNode):
    """The server and where it listens."""

    blob_port: int
    queue_port: int
    table_port: int

    @property
    def clock_file(self) -> Path:
        """Milliseconds by which its clock is ahead."""
        return self.directory / "clock"


class Azurite(ServerCluster[AzuriteNode]):
    """One server. `settings` are options of its command line: `cert` and `pwd` for TLS, `oauth`."""

    PORTS_PER_NODE: ClassVar[int] = 3

    @property
    def bootstrap(self) -> str:
        """The connection string, with the account's key."""
        return self.connection()

    def connection(self, *, blob_port: int | None = None, key: bool = True) -> str:
        """A connection string, which may go through a proxy on `blob_port`, or leave the key out."""
        [node] = self.nodes
        account = EMULATOR["AccountName"]
        scheme = "https" if "cert" in self._settings else "http"
        parts = {
            "AccountName": account,
            "AccountKey": EMULATOR["AccountKey"] if key else "",
            "BlobEndpoint": f"{scheme}://127.0.0.1:{blob_port or node.blob_port}/{account}",
            "TableEndpoint": f"{scheme}://127.0.0.1:{node.table_port}/{account}",
        }
        return ";".join(f"{name}={value}" for name, value in parts.items() if value)

    def move_clock(self, seconds: float) -> None:
        """Let so many seconds pass for the server, and wait until it knows."""
        [node] = self.nodes
        pid = node.running_pid()
        assert pid is not None, "a server that does not run has no clock"
        ahead = str(int(node.clock_file.read_text()) + round(seconds * 1000))
        node.clock_file.write_text(ahead)
        done = node.clock_file.with_name("clock.done")
        os.kill(pid, signal.SIGUSR2)
        eventually(lambda: done.exists() and done.read_text() == ahead, "the clock moves")

    def await_saved(self, text: str) -> None:
        """Wait until the file that the server saves every five seconds has this text.

        A stop saves as well, but not always on a busy machine, and then a real service's promise is not kept.
        """
        [node] = self.nodes
        file = node.directory / "data" / "__azurite_db_blob__.json"
        eventually(lambda: file.exists() and text in file.read_text(), "the server saves what it has")

    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> AzuriteNode:
        return AzuriteNode(number, directory, *ports)

    def _prepare(self, node: AzuriteNode) -> None:
        if not (modules_directory() / _PROGRAM).exists():
            raise ServerFailed(f"no Azurite in {modules_directory()}: run make services")
        node.clock_file.write_text("0")

    def _command(self, node: AzuriteNode) -> list[str]:
        program = shutil.which("node")
        if program is None:
            raise ServerFailed("no node on the PATH: install Node.js 18 or newer")
        ports = {"blobPort": node.blob_port, "queuePort": node.queue_port, "tablePort": node.table_port}
        options = {
            **{f"{service}Host": "127.0.0.1" for service in ("blob", "queue", "table")},
            **{name: str(port) for name, port in ports.items()},
            "location": str(node.directory / "data"),
            **self._settings,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        flags = ("--silent", "--disableTelemetry", "--skipApiVersionCheck")
        return [program, "-r", str(_SHIFT), str(modules_directory() / _PROGRAM), *words, *flags]

    def _is_ready(self, node: AzuriteNode) -> bool:
        said = node.log.read_text(errors="replace")
        return all(words in said for words in _READY)


class AzuriteClock(ManualClock):
    """A manual clock that takes the server's along, so that both agree on how long a lease has lasted."""

    def __init__(self, server: Azurite) -> None:
        super().__init__()
        self._server = server

    def advance(self, seconds_s: float) -> None:
        """Let time pass, for the server first."""
        self._server.move_clock(seconds_s)
        super().advance(seconds_s)


if __name__ == "__main__":
    sys.exit(command_line(Azurite, "grete_workbench.azurite"))
