"""A job of the real Samza in a container of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from grete.testing.waiting import patient
from grete_workbench.real_samza import JVM, SamzaFailed, jars_directory, java, write_properties


def runner_jars_directory() -> Path:
    """Where `make services` puts the jars of jobs in real containers: `GRETE_RUNNER_JARS`, else beside the others."""
    return Path(os.environ.get("GRETE_RUNNER_JARS", jars_directory().with_name("samza-runner-1.8.0")))


class SamzaJob:
    """A job in a real container of Samza's (`grete.interop.Views`), in a process of its own, until it is ended.

    Use it in a `with`, which kills it when it still runs. What it logs is in `log`.
    """

    def __init__(self, config: Mapping[str, str], directory: Path, *, jvm: Sequence[str] = JVM) -> None:
        """Start it; it is ready when its first output comes.

        Raises:
            SamzaFailed: no jars or no Java.
        """
        jars = runner_jars_directory()
        command = [java(jars), *jvm, "-cp", f"{jars}/classes:{jars}/*", "grete.interop.Views"]
        directory.mkdir(parents=True, exist_ok=True)
        properties = write_properties(config, directory / "samza.properties")
        self.log = directory / "samza.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, str(properties)], stdout=log, stderr=subprocess.STDOUT, cwd=directory
            )

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to stop, and wait until it has: Samza closes its tasks and commits nothing."""
        self._end(signal.SIGTERM)

    def check(self) -> None:
        """Whether it still runs.

        Raises:
            SamzaFailed: it has ended by itself; with the end of its log.
        """
        if self._process.poll() is not None:
            raise SamzaFailed(f"the job has ended: {self.log.read_text()[-4_000:]}")

    def _end(self, how: signal.Signals) -> None:
        self.check()
        self._process.send_signal(how)
        self._process.wait(patient(60))

    def __enter__(self) -> SamzaJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(patient(60))
