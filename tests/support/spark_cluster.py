"""Spark's standalone cluster for fault tests: a master and workers that can be killed, each with its executors."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyspark

from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually

_HOME = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))


class SparkCluster:
    """A master on loopback, and workers of one core each. A context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        [self._port] = free_ports(1)
        self.master = f"spark://127.0.0.1:{self._port}"
        self._stack = ExitStack()
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        self._start("master", "master.Master", "--port", str(self._port), "--webui-port", "0")
        return self

    def add_worker(self) -> int:
        """Start another worker; returns its number."""
        number = len(self._workers)
        options = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        place = ("--work-dir", str(self._directory / f"work{number}"), self.master)
        self._workers.append(self._start(f"worker{number}", "worker.Worker", *options, *place))
        return number

    def _start(self, name: str, kind: str, *words: str) -> subprocess.Popen[bytes]:
        program = str(_HOME / "bin" / "spark-class")
        command = [program, f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *words]
        environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(_HOME),
        }
        said = self._stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            command, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._stack.callback(_kill, process)
        return process

    def executors(self, worker: int) -> list[int]:
        """The processes of the worker's executors."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                session = int(stat.read_text().rpartition(") ")[2].split()[3])
                words = (stat.parent / "cmdline").read_bytes().split(b"\0")
                if session == self._workers[worker].pid and b"--executor-id" in words:
                    found.append(int(stat.parent.name))
        return found

    def decommission_executors(self, worker: int) -> None:
        """As a cluster does that wants its machine back: they get no tasks any more, and end with those they have."""
        eventually(lambda: self.executors(worker), "an executor")
        for pid in self.executors(worker):
            os.kill(pid, signal.SIGPWR)

    def kill_worker(self, worker: int) -> None:
        """SIGKILL, its executors too: the machine is gone."""
        _kill(self._workers[worker])

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is not None:
        return  # its number may be another group's by now
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
