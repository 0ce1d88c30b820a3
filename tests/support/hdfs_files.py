"""What tests on HDFS ask: of its files, and of grete's commands."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from pyspark.sql import SparkSession

from grete.testing.waiting import patient


def grete(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grete.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=patient(120), check=False)


def files_of(spark: SparkSession, folder: str) -> dict[str, tuple[int, int]]:
    """Every file, with its size and when it was written."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    found = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).listFiles(path, True)
    files = {}
    while found.hasNext():
        status = found.next()
        files[status.getPath().toString()] = status.getLen(), status.getModificationTime()
    return files
