"""The interpreter that Spark starts for its workers, on a local master.

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

from grete.config.settings.spark import local_cores

_PROGRAM = Path(__file__).with_name("worker_python.sh")
_INTERPRETER = "GRETE_WORKER_PYTHON"


def worker_python(master: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the driver's process that name it: the program beside this file, else the driver's own.

    Of another interpreter, Spark or machine nothing is known, so what they say stays.
    """
    installed = Path(pyspark.__file__).parent
    named = environment.get("PYSPARK_PYTHON", sys.executable)
    if Path(named).name == _PROGRAM.name:  # what a process above has set for workers of its own
        named = sys.executable
    is_own = Path(environment.get("SPARK_HOME", installed)) == installed and named == sys.executable
    if local_cores(master) is not None and is_own and os.access(_PROGRAM, os.X_OK):
        return {"PYSPARK_PYTHON": str(_PROGRAM), _INTERPRETER: sys.executable}
    return {"PYSPARK_PYTHON": named}
