"""Which jobs a coordinator file holds. Stream names cannot be turned back (`_` became `-`)."""

from __future__ import annotations

from pathlib import Path

from grete.errors import JobError
from grete.failpoints import failpoint
from grete.metadata.coordinator_stream import stream_name
from grete.model.ids import JobId
from grete.sqlite_file import SqliteFile, open_file

_SCHEMA = "CREATE TABLE IF NOT EXISTS jobs (stream TEXT PRIMARY KEY, name TEXT NOT NULL, id TEXT NOT NULL)"


def claim_stream(file: SqliteFile, job: JobId) -> None:
    """Register the job as the owner of its coordinator stream.

    Raises:
        JobError: a job of another name has the same stream, as `my_job` and `my-job` would (S1-5).
    """
    stream = stream_name(job)
    with file.transaction() as connection:
        connection.execute(_SCHEMA)
        row = connection.execute("SELECT name, id FROM jobs WHERE stream = ?", (stream,)).fetchone()
        if row is None:
            connection.execute("INSERT INTO jobs VALUES (?, ?, ?)", (stream, job.name, job.id))
        elif JobId(*row) != job:
            raise JobError(
                f"job {job.shown} would share the coordinator stream {stream} with job {JobId(*row).shown}, since "
                f"`_` becomes `-` in its name; choose another job.name or job.id"
            )
        failpoint("submit.claiming")
    failpoint("submit.claimed")


def indexed_jobs(path: Path) -> list[JobId]:
    """Every job registered in the file."""
    file = open_file(path)
    try:
        with file.transaction() as connection:
            connection.execute(_SCHEMA)
            rows = connection.execute("SELECT name, id FROM jobs ORDER BY name, id").fetchall()
    finally:
        file.close()
    return [JobId(name, id_) for name, id_ in rows]
