"""How the JVM of the driver starts other programs.

Hadoop starts `chmod` for each file that it creates, where its native library is absent, as it is in pyspark, and
`readlink` four times for each that it renames through its newer interface. A query creates and renames files of its
offsets and commits in every batch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from grete.spark.jvm import jvm_of

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming"
_MANAGER = "FileSystemBasedCheckpointFileManager"
_MECHANISM = "-Djdk.lang.Process.launchMechanism="
_VERSIONS = range(17, 26)
"""Of Java, that start a program by vfork when asked to. By default they start a helper first, which starts it; later
ones may know no other way, and refuse a name that they do not know."""
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


def quick_starts(options: str, environment: Mapping[str, str], spark_home: Path) -> str:
    """The options of the JVM, and the one for quick starts of programs where its Java has that for certain."""
    settings = Path(environment.get("SPARK_CONF_DIR", spark_home / "conf"))
    if _MECHANISM in options or (settings / "spark-env.sh").exists():  # which may name another Java
        return options
    return f"{options} {_MECHANISM}VFORK".strip() if _version(environment) in _VERSIONS else options


def _version(environment: Mapping[str, str]) -> int | None:
    """Of the Java that Spark's script will run; None when that does not say."""
    home = environment.get("JAVA_HOME")
    command = (
        os.path.join(home, "bin", "java") if home else shutil.which("java", path=environment.get("PATH"))
    )
    if command is None:
        return None
    try:
        found = _RELEASE.search((Path(command).resolve().parents[1] / "release").read_text(errors="replace"))
    except (OSError, IndexError):
        return None
    return int(found[1]) if found else None


def rename_without_programs(session: SparkSession) -> None:
    """Let queries rename files of their checkpoints through Hadoop's older interface, unless it is configured how.

    For lineages on disks alone.

    It renames by one call of the operating system, and starts no program: batches of ten rows took 26 ms, with the
    newer one 63. That one also refuses, in one step, to replace a file of another driver; a lineage has no other one
    (`spark.lineage.files.LineageDirectory.lock`).
    """
    if session.conf.get(FILE_MANAGER, None) is not None:
        return
    jvm = jvm_of(session.sparkContext)
    for package in (f"{_PACKAGE}.checkpointing", _PACKAGE):  # since Spark 4.1, and before
        name = f"{package}.{_MANAGER}"
        try:
            jvm.org.apache.spark.util.Utils.classForName(name, False, True)
        except Py4JError:
            continue
        session.conf.set(FILE_MANAGER, name)
        return
