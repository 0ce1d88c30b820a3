"""Where a job keeps what is a machine's: lineages, store files, logs, tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grete.model.ids import JobId


def state_folder(config: Mapping[str, str], home: Path) -> Path:
    """What holds a folder for each job."""
    return Path(config.get("job.state.dir", str(home / "jobs")))


def standby_folder(config: Mapping[str, str], home: Path) -> Path:
    """What holds a folder for each job, of its standby containers."""
    named = config.get("job.standbytasks.state.dir")
    return Path(named) if named else state_folder(config, home)


def state_directory(config: Mapping[str, str], job: JobId, home: Path) -> Path:
    """The folder of a job's lineages, store files, logs and token."""
    return state_folder(config, home) / job.key


def standby_directory(config: Mapping[str, str], job: JobId, home: Path) -> Path:
    """The folder of a job's copies of store files."""
    return standby_folder(config, home) / job.key
