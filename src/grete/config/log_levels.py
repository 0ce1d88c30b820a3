"""How much the processes of a job log: as is set explicitly, else as the application's file says, else as they are.

The file has levels alone: handlers are the framework's, and nothing that a file names is loaded.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from grete.errors import ConfigError

APPLICATIONS_FILE = "logging.toml"


def log_levels(folder: str | None) -> dict[str, str]:
    """Levels by logger that this job's processes are to have, "" for all others; `folder` is the application's.

    What GRETE_LOG_LEVEL says, else what the application's `logging.toml` says, else nothing: it stays as it is.

    Raises:
        ConfigError: the file cannot be read, or names no level.
    """
    explicit = os.environ.get("GRETE_LOG_LEVEL")
    if explicit:
        return {"": explicit.upper()}
    path = Path(folder or "", APPLICATIONS_FILE)
    if not folder or not path.is_file():
        return {}
    try:
        said = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    loggers = said.pop("loggers", {})
    levels = {"": said.pop("level"), **loggers} if "level" in said else dict(loggers)
    known = logging.getLevelNamesMapping()
    wrong = [*said, *(name or "level" for name, level in levels.items() if level not in known)]
    if wrong:
        raise ConfigError(
            f"{path}: {', '.join(wrong)} is no level; it may have `level` and, below [loggers], names of loggers, "
            f"each one of {', '.join(known)}"
        )
    return levels


def levels_beside(folder: str | None) -> dict[str, str | int]:
    """As `log_levels`, for a process of the application's own: where nothing is said, as this process logs.

    Raises:
        ConfigError: see `log_levels`.
    """
    return {"": logging.getLogger().getEffectiveLevel(), **log_levels(folder)}


def set_levels(levels: Mapping[str, str]) -> None:
    """Let loggers have these levels."""
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
