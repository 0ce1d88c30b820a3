"""Which jobs there are. Stream names cannot be turned back (`_` became `-`), so names are kept beside them.

Jobs of the home's embedded system are in the file that holds their streams. Of a job whose stream is elsewhere the
home keeps where: the coordinator system's configuration, without secrets, in `coordinators/<job>.json`. So a command
finds the job by its name; on another machine it is found with `--config`.
"""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import orjson

from grete.config.settings import Settings
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.errors import JobError
from grete.failpoints import failpoint
from grete.keyed_log.sqlite_coordinator_log import FILE_NAME, coordinator_file
from grete.metadata.coordinator_stream import stream_name
from grete.model.ids import JobId
from grete.private_files import replace_file
from grete.sqlite_file import SqliteFile, open_file

_log = logging.getLogger(__name__)
_FOLDER = "coordinators"
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
            raise shared_stream(job, JobId(*row))
        failpoint("submit.claiming")
    failpoint("submit.claimed")


def register(settings: Settings, job: JobId, home: Path) -> None:
    """Make sure that the job's coordinator stream is no other job's in this home, which finds it by its name then.

    Raises:
        JobError: see `claim_stream`.
    """
    if settings.system(settings.coordinator.system).is_embedded:
        with closing(open_file(coordinator_file(settings, home))) as file:
            claim_stream(file, job)
    remember_submitted(settings, job, home)


def shared_stream(job: JobId, owner: JobId) -> JobError:
    """The refusal of a job whose coordinator stream is another one's."""
    return JobError(
        f"job {job.shown} would share the coordinator stream {stream_name(job)} with job {owner.shown}, since "
        f"`_` becomes `-` in its name; choose another job.name or job.id"
    )


def remember_submitted(settings: Settings, job: JobId, home: Path) -> None:
    """Note where the job's coordinator stream is, unless it is in the home's own embedded system."""
    path = home / _FOLDER / f"{job.key}.json"
    is_embedded = settings.system(settings.coordinator.system).kind == EMBEDDED_SYSTEM
    if is_embedded and coordinator_file(settings, home) == home / "local" / FILE_NAME:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    where = orjson.dumps(settings.coordinator.for_containers, option=orjson.OPT_INDENT_2)
    replace_file(path, where, is_durable=True)
    old = _old_path(job, home)
    if old is not None:
        old.unlink()


def forget_job(settings: Settings, job: JobId, home: Path) -> None:
    """Forget where the job's coordinator stream is. What was never noted is fine."""
    for note in (home / _FOLDER / f"{job.key}.json", _old_path(job, home)):
        if note is not None:
            note.unlink(missing_ok=True)
    path = coordinator_file(settings, home)
    if not path.exists():
        return
    file = open_file(path)
    try:
        with file.transaction() as connection:
            connection.execute(_SCHEMA)
            connection.execute("DELETE FROM jobs WHERE stream = ?", (stream_name(job),))
    finally:
        file.close()


def where_submitted(job: JobId, home: Path) -> Settings:
    """The coordinator system's settings of a job that was submitted from this home; empty when it is our own."""
    path = home / _FOLDER / f"{job.key}.json"
    if path.exists():
        return _read(path)
    old = _old_path(job, home)
    return Settings() if old is None else _read(old)


def _old_path(job: JobId, home: Path) -> Path | None:
    """The job's file as earlier versions named it; None when there is none, or it is of a job that is named so."""
    path = home / _FOLDER / f"{job}.json"
    if job.key == str(job) or not path.exists():
        return None
    return path if _read(path).job.id == job else None


def submitted_jobs(home: Path) -> list[JobId]:
    """The jobs that were submitted from this home to other systems; a damaged note of one hides no other."""
    found = []
    for path in sorted((home / _FOLDER).glob("*.json")):
        try:
            found.append(_read(path).job.id)
        except JobError as error:
            _log.warning("%s", error)
    return found


def _read(path: Path) -> Settings:
    try:
        document = orjson.loads(path.read_bytes())
        found = Settings.of({str(key): str(value) for key, value in document.items()})
    except (orjson.JSONDecodeError, AttributeError) as error:
        raise _damaged(path, repr(error)) from error
    if not found.job.written_id.name:
        raise _damaged(path, "it names no job")
    return found


def _damaged(path: Path, why: str) -> JobError:
    return JobError(f"{path} is damaged ({why}): delete it, and name the job with --config")


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


def jobs(home: Path) -> list[JobId]:
    """The jobs of this home: of its embedded system, and those submitted from here to others; sorted."""
    path = home / "local" / FILE_NAME
    own = indexed_jobs(path) if path.exists() else []
    return sorted({*own, *submitted_jobs(home)})
