"""The versions of Spark that grete runs on. Found without importing pyspark, so that a wrong one is named at once."""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from grete.config.choices import LauncherChoice
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.extras import require

WHOLE = ("4.2", "4.3")
"""With these everything runs."""
WITHOUT_EMBEDDED = ("4.0", "4.1")
"""These have no `pyspark.sql.streaming.datasource`, on which the embedded system stands as an input of a pipeline."""
_WITH_OUR_PYTHON = (LauncherChoice.PROCESS, LauncherChoice.THREAD, LauncherChoice.PROCESSORS)
_VERSION = re.compile(r"""^__version__[^=\n]*=\s*["'](\d+\.\d+[^"']*)""", re.MULTILINE)
ARCHIVE = "-XX:SharedArchiveFile"
_OF_CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""The second is set by PySpark in a program that has a session of Spark Connect."""
_WAY_OUT = "install one of these beside grete: pip install 'pyspark~=4.2.0'"


def installed() -> str | None:
    """The version of the pyspark that would be imported; None without one, or where it does not say it."""
    folder = _folder()
    if folder is None:
        return None
    try:
        match = _VERSION.search((folder / "version.py").read_text())
    except OSError:
        return None
    return match[1] if match else None


def _folder() -> Path | None:
    found = importlib.machinery.PathFinder.find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


def _is_client_alone(folder: Path) -> bool:
    """Whether it has sessions of Spark Connect and no contexts: `pyspark-client`, or a vendor's."""
    return not any((folder / name).exists() for name in ("core/context.py", "context.py"))


def class_archive() -> Path:
    """Where `grete.spark.class_archive` writes the archive: in the environment that holds Spark."""
    return Path(sys.prefix) / f"grete-spark-{installed()}.jsa"


def takes_class_archive(*options: str) -> bool:
    """Whether a JVM with these options may start from the archive: not where they say themselves what is shared."""
    own = (ARCHIVE, "-XX:ArchiveClassesAtExit", "-Xshare:off")
    return not any(word in said for word in own for said in options)


def refusal(version: str, settings: Settings | None = None) -> str:
    """Why a job with these settings cannot run on this version, with the way out; empty when it can.

    Without settings: why no job can.
    """
    minor = ".".join(version.split(".")[:2])
    if minor not in (*WHOLE, *WITHOUT_EMBEDDED):
        return (
            f"pyspark {version} is installed, and grete runs on {', '.join(WHOLE)} (and, but for pipelines that read "
            f"the embedded system, on {', '.join(WITHOUT_EMBEDDED)}); {_WAY_OUT}"
        )
    if minor in WITHOUT_EMBEDDED and settings is not None and settings.job.is_pipeline:
        streams = settings.task.all_inputs
        embedded = [str(one) for one in streams if settings.system(one.system).capabilities.is_embedded]
        if embedded:
            return (
                f"pyspark {version} is installed, on which a pipeline cannot read the embedded system "
                f"({', '.join(embedded)}): that takes {' or '.join(WHOLE)}; {_WAY_OUT}"
            )
    return ""


def connect_refusal(settings: Settings, environment: Mapping[str, str] = os.environ) -> str:
    """Why Spark Connect cannot run the job, where the configuration or the program wants it; empty elsewhere.

    Its sessions have no JVM to reach and no tasks to stay in: offsets, commits and shares have no place there.
    """
    wanted = [
        *settings.spark.connect,
        *(f"the variable {name}" for name in _OF_CONNECT if environment.get(name)),
    ]
    if not wanted:
        return ""
    return (
        f"{', '.join(wanted)} asks for Spark Connect, whose sessions have no JVM and no tasks that grete could use. "
        f"Remove it: grete starts Spark by spark.master, or uses the Spark context of its process"
    )


def installed_refusal(settings: Settings | None = None) -> str:
    """Why the job, or without settings any, cannot run on the pyspark that is here; empty when it can, or without."""
    version, folder = installed(), _folder()
    if version is None or folder is None:
        return ""
    if _is_client_alone(folder):
        return (
            f"pyspark {version} in {folder} is the client of Spark Connect alone, which has no Spark that grete "
            f"could start: take it out of this environment, and {_WAY_OUT}"
        )
    return refusal(version, settings)


def check_installed(settings: Settings) -> None:
    """Whether the job can run on what is installed here. Other launchers than ours bring containers elsewhere.

    Raises:
        ConfigError: it cannot on this version of pyspark, or by Spark Connect.
        MissingExtra: there is no pyspark, or not what its Python side needs.
    """
    if settings.job.launcher in _WITH_OUR_PYTHON:
        require("spark")
    if why := connect_refusal(settings):
        raise ConfigError(why)
    if why := installed_refusal(settings):
        raise ConfigError(why)
