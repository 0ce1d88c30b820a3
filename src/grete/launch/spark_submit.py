"""Containers as applications of their own, by `spark-submit` in client mode on this machine.

The process is spark-submit's JVM; the container is its child (`spark_driver.py`). So Spark's own ways to say what an
application has apply: spark-defaults.conf, packages, keytabs, whatever a distribution's spark-submit adds.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from grete.config.properties import format_properties
from grete.errors import ConfigError, MissingExtra
from grete.launch.base import ContainerStart
from grete.launch.factory import LaunchContext
from grete.launch.process import ProcessLauncher
from grete.launch.processes import OtherProcess, children_of, name_of
from grete.model.ids import ContainerId
from grete.private_files import private_directory, write_private

_DRIVER = Path(__file__).with_name("spark_driver.py")
_PROPERTIES = "spark-submit.properties"


def open_launcher(context: LaunchContext) -> SparkSubmitLauncher:
    """See `grete.launch.factory`.

    Raises:
        ConfigError, MissingExtra: there is no spark-submit.
    """
    spark = context.settings.spark
    options = {**spark.options, "spark.master": spark.master, "spark.submit.deployMode": "client"}
    return SparkSubmitLauncher(find_spark_submit(os.environ), context.command, options, context.logs)


def spark_home(environment: Mapping[str, str]) -> Path:
    """SPARK_HOME, else the installed PySpark, which is found without importing it.

    Raises:
        MissingExtra: there is neither.
    """
    if named := environment.get("SPARK_HOME"):
        return Path(named)
    # an ApplicationMaster has the modules alone, in an archive before all other places
    folders = [place for place in sys.path if not place.endswith(".zip")]
    found = importlib.machinery.PathFinder.find_spec("pyspark", folders)
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("pyspark", "spark")
    return Path(found.submodule_search_locations[0])


def find_spark_submit(environment: Mapping[str, str]) -> str:
    """The program of `spark_home`.

    Raises:
        ConfigError: there is none.
        MissingExtra: no Spark on this machine.
    """
    found = spark_home(environment) / "bin" / "spark-submit"
    if not os.access(found, os.X_OK):
        raise ConfigError(
            f"{found} is no program: set SPARK_HOME to Spark's folder, or unset it to use PySpark's own"
        )
    return str(found)


class SparkSubmitLauncher(ProcessLauncher):
    """Submits an application for each container: `command`, the words of a Python module, is its driver.

    `options` are Spark's settings. They are in a private file, not in an argument; those that refer to secrets are
    the container's business, which resolves them.
    """

    def __init__(
        self, program: str, command: Sequence[str], options: Mapping[str, str], log_directory: Path
    ) -> None:
        python, module = command[0], command[command.index("-m") + 1 :]
        self._properties = log_directory / _PROPERTIES
        self._options = {key: value for key, value in options.items() if "${" not in value}
        self._options["spark.pyspark.driver.python"] = python
        words = ("--load-spark-defaults", "--properties-file", str(self._properties))
        super().__init__([program, *words, str(_DRIVER), *module], log_directory)

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        private_directory(self._properties.parent)
        write_private(self._properties, format_properties(self._options))
        super().start(container)

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher: SIGTERM to the driver, or to a JVM that has not started it yet.

        The JVM would end under a driver at once.
        """
        with contextlib.closing(_Driver(self.process_id(container_id))) as driver:
            if not driver.send(signal.SIGTERM):
                super().request_stop(container_id)


class _Driver:
    """The container below a JVM of spark-submit, if it was started."""

    def __init__(self, submitted: int | None) -> None:
        self._process: OtherProcess | None = None
        for child in () if submitted is None else children_of(submitted):
            name = name_of(child)
            if name is not None and _runs_driver(child):
                with contextlib.suppress(OSError):
                    self._process = OtherProcess(name)

    def send(self, number: signal.Signals) -> bool:
        """Whether there was one to send it to."""
        if self._process is not None:
            self._process.send(number)
        return self._process is not None

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


def _runs_driver(pid: int) -> bool:
    try:
        return os.fsencode(_DRIVER) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
