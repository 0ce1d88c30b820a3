"""The interpreters that Spark starts for its workers, on a local master: the framework's, and an application's own.

Spark puts `pyspark.zip` before the packages of the interpreter, and a jar of 14 MB beside it. Nothing that is
imported from an archive is kept compiled: each of the processes that a pipeline over the embedded system starts
(five) compiled pyspark for 0.4 s of a processor. Where the installed package is the Spark that runs, its modules
are the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from grete.application.beside import interpreter
from grete.config.settings.job import JobSettings
from grete.config.settings.spark import local_cores

VARIABLE = "PYSPARK_PYTHON"
APPLICATION_PYTHON = Path(__file__).with_name("application_python.sh")
ON_EXECUTORS = "grete-application-python"
"""The file that stands in its place among Spark's files, in the working folder of each executor."""
_PROGRAM = Path(__file__).with_name("worker_python.sh")
INTERPRETER = "GRETE_WORKER_PYTHON"


def worker_python(master: str, environment: Mapping[str, str], *, has_jvm: bool = False) -> dict[str, str]:
    """The variables of the driver's process that name it: the program beside this file, else the driver's own.

    Of another interpreter, Spark or machine nothing is known, so what they say stays. Nor has a JVM that somebody has
    started before (`has_jvm`) the variable that the program reads.
    """
    installed = Path(pyspark.__file__).parent
    named = environment.get(VARIABLE, sys.executable)
    if Path(named).name == _PROGRAM.name:  # what a process above has set for workers of its own
        named = sys.executable
    is_own = Path(environment.get("SPARK_HOME", installed)) == installed and named == sys.executable
    is_told = not has_jvm or INTERPRETER in environment
    if local_cores(master) is not None and is_own and is_told and os.access(_PROGRAM, os.X_OK):
        return {VARIABLE: str(_PROGRAM), INTERPRETER: sys.executable}
    return {VARIABLE: named}


def application_python(job: JobSettings, *, is_local: bool) -> dict[str, str]:
    """The variables of the JVM's process, by which functions that come through Spark Connect are evaluated in the
    application's environment; none without one.

    What comes through Connect has the interpreter that the JVM's own variable names. What the driver's Python brings
    has the one that its process was told, so readers, serdes and sinks stay in the framework's.

    Raises:
        ConfigError: see `interpreter`.
    """
    if not (job.is_isolated and job.is_pipeline):
        return {}
    if not is_local:
        return {VARIABLE: f"./{ON_EXECUTORS}"}
    folder = job.modules_folder
    return {
        VARIABLE: str(APPLICATION_PYTHON),
        "GRETE_APPLICATION_PYTHON": interpreter(job.application_environment),
        "GRETE_APPLICATION_PATH": "" if folder is None else str(Path(folder).resolve()),
    }
