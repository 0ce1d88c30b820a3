"""Removing a job with everything that is its own: never its inputs and outputs.

Fences and leadership epochs stay: a process that outlives its job must not write for another one of the same name.
The coordinator stream goes last but one, and what names the job last, so that a deletion that was interrupted is
asked for again and done to its end.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grete.config.settings import Settings
from grete.errors import JobError, StreamNotFound
from grete.metadata.coordinator_stream import stream_name
from grete.metadata.job_index import forget_job
from grete.model.ids import JobId
from grete.operations.job_handle import JobHandle
from grete.operations.orphans import running_here


@dataclass(frozen=True, slots=True)
class Belongings:
    """The things that a deletion removes, for people: `system.stream` of logs and streams, and paths."""

    coordinator_stream: str
    checkpoint_log: str
    changelogs: tuple[str, ...]
    folder: str

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "coordinator_stream": self.coordinator_stream,
            "checkpoint_log": self.checkpoint_log,
            "changelogs": list(self.changelogs),
            "folder": self.folder,
        }


def belongings(handle: JobHandle) -> Belongings:
    """Everything there is of the job now."""
    config = handle.config()
    settings = Settings.of(config)
    if not config:
        return Belongings(stream_name(handle.job), "", (), str(handle.state_directory))
    system = settings.task.commit_system
    with handle.commit_system() as opened:
        there = set(opened.streams())
    changelogs = [settings.store(store).changelog_stream(handle.job) for store in settings.store_names]
    return Belongings(
        stream_name(handle.job),
        f"{system}.{handle.checkpoint_log_name}",
        tuple(f"{system}.{name}" for name in sorted(there.intersection(changelogs))),
        str(handle.state_directory),
    )


def delete_job(handle: JobHandle) -> None:
    """Remove all of it.

    Raises:
        HeldByOther: the job runs.
        JobError: a container of it runs on, without a coordinator.
    """
    with handle.stopped("stop it first: grete stop"):
        _refuse_orphans(handle)
        found, config = belongings(handle), handle.config()
        for folder in (found.folder, Settings.of(config).job.standby_directory(handle.job, handle.home)):
            shutil.rmtree(folder, ignore_errors=True)
        if config:
            with handle.commit_system() as system:
                for name in found.changelogs:
                    with suppress(StreamNotFound):  # another process was faster
                        system.delete_stream(name.partition(".")[2])
                system.checkpoint_log(handle.checkpoint_log_name).delete()
        handle.coordinator_log.delete()
    forget_job(config, handle.job, handle.home)


def forget_failed_submit(job: JobId, home: Path) -> None:
    """Forget a job of which nothing was ever written."""
    shutil.rmtree(Settings.of({}).job.state_directory(job, home), ignore_errors=True)
    forget_job({}, job, home)


def _refuse_orphans(handle: JobHandle) -> None:
    running = running_here(handle.launches())
    if running:
        raise JobError(
            f"container {', '.join(running)} of job {handle.job.shown} runs on without a coordinator; "
            f"`grete stop` ends it"
        )
