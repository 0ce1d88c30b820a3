"""Where everything is kept: GRETE_HOME, `.grete` in the current folder by default."""

from __future__ import annotations

import os
from pathlib import Path

from grete.errors import JobError
from grete.keyed_log.sqlite_coordinator_log import FILE_NAME
from grete.model.ids import JobId


def grete_home() -> Path:
    """The home directory, absolute; it may not exist yet."""
    return Path(os.environ.get("GRETE_HOME", ".grete")).resolve()


def jobs(home: Path) -> list[JobId]:
    """The jobs that this home knows: of its embedded system, and those submitted from here to others; sorted."""
    from grete.metadata.job_index import indexed_jobs, submitted_jobs

    path = home / "local" / FILE_NAME
    own = indexed_jobs(path) if path.exists() else []
    return sorted({*own, *submitted_jobs(home)})


def parse_job(text: str) -> JobId:
    """`name` or `name:id`.

    Raises:
        JobError: empty.
    """
    name, _, id_ = text.partition(":")
    if not name:
        raise JobError(f"--job {text!r}: write the job's name, or name:id")
    return JobId(name, id_ or "1")
