"""Removing a job with everything that is its own: never its inputs and outputs.

Fences stay, and no epoch of its leaders comes again: a process that outlives its job must not write for another one
of the same name. The coordinator stream goes behind all that it names, then the leadership, and what names the job
last, so that a deletion that was interrupted is asked for again and done to its end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grete.checkpoint.store import CheckpointStore
from grete.config.key_tables.job import LINEAGE_DIR
from grete.config.places import without_user
from grete.diagnostics.streams import JOB_COORDINATOR, diagnostics_config, log_stream_name
from grete.errors import ConfigError, GreteError, StreamNotFound
from grete.metadata.coordinator_stream import stream_name
from grete.metadata.job_index import forget_job, jobs, where_submitted
from grete.model.ids import JobId, SystemStream, TaskName
from grete.operations.job_handle import JobHandle
from grete.operations.orphans import refuse_orphans
from grete.spark.lineage.location import OnAsking, reach_address
from grete.tasks.stores.snapshot_places import open_place

if TYPE_CHECKING:
    from grete.spark.lineage.hadoop_files import HadoopLocation


@dataclass(frozen=True, slots=True)
class Belongings:
    """The things that a deletion removes, for people: `system.stream` of logs and streams, and paths."""

    coordinator_stream: str
    checkpoint_log: str
    changelogs: tuple[str, ...]
    folder: str
    checkpoint_copies: tuple[str, ...] = ()
    log_stream: str = ""
    left: tuple[str, ...] = ()
    """Streams of logs and diagnostics that stay, since other jobs may write them."""
    lineages: str = ""
    """The address of a pipeline's lineages on a file system of Hadoop's."""
    snapshots: str = ""
    """The folder of the stores' snapshots."""

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "coordinator_stream": self.coordinator_stream,
            "checkpoint_log": self.checkpoint_log,
            "changelogs": list(self.changelogs),
            "folder": self.folder,
            "checkpoint_copies": list(self.checkpoint_copies),
            "log_stream": self.log_stream,
            "left": list(self.left),
            "lineages": self.lineages,
            "snapshots": self.snapshots,
        }


def belongings(handle: JobHandle) -> Belongings:
    """Everything there is of the job now."""
    settings = handle.settings
    if not settings.raw:
        return Belongings(stream_name(handle.job), "", (), str(handle.state_directory))
    system = settings.task.commit_system
    with handle.checkpoints.system() as opened:
        there = set(opened.streams())
    changelogs = [settings.store(store).changelog_stream(handle.job) for store in settings.store_names]
    lineages = settings.job.lineage_place(handle.job, handle.home)
    is_elsewhere = settings.job.is_pipeline and isinstance(lineages, str)
    return Belongings(
        stream_name(handle.job),
        f"{system}.{handle.checkpoints.log_name}",
        tuple(f"{system}.{name}" for name in sorted(there.intersection(changelogs))),
        str(handle.state_directory),
        tuple(_checkpoint_copies(handle)),
        *_log_streams(handle),
        str(lineages) if is_elsewhere else "",
        without_user(settings.job.snapshot_location or ""),
    )


@contextmanager
def _checkpoint_store(handle: JobHandle) -> Iterator[CheckpointStore | None]:
    """The store of copies; None also where its place is not there any more, and what it held neither."""
    with ExitStack() as stack:
        store = None
        with suppress(ConfigError):
            store = handle.checkpoints.open_store()
        if store is not None:
            stack.enter_context(closing(store))
        yield store


def _checkpoint_copies(handle: JobHandle) -> list[str]:
    with _checkpoint_store(handle) as store:
        return [] if store is None else store.places(_tasks(handle))


def _tasks(handle: JobHandle) -> set[TaskName]:
    """Every task there ever was, as far as the stream knows."""
    return {*handle.assignments(), *handle.changelog_mapping()}


def _log_streams(handle: JobHandle) -> tuple[str, tuple[str, ...]]:
    """The stream of logs that is this job's alone, empty without one; those of logs and diagnostics that stay."""
    streams = diagnostics_config(handle.settings, handle.job, JOB_COORDINATOR, handle.home)
    own, left = "", []
    if streams.logs is not None and _is_there(handle, streams.logs.stream):
        others = {log_stream_name(job) for job in jobs(handle.home) if job != handle.job}
        if streams.logs.stream.stream in others:
            left.append(str(streams.logs.stream))
        else:
            own = str(streams.logs.stream)
    if streams.events is not None and _is_there(handle, streams.events.stream):
        left.append(str(streams.events.stream))
    return own, tuple(left)


def _is_there(handle: JobHandle, stream: SystemStream) -> bool:
    with handle.system(stream.system) as system:
        return stream.stream in system.streams()


def delete_job(handle: JobHandle, on_asking: OnAsking) -> str:
    """Remove all of it; returns why lineages on a file system of Hadoop's had to stay, empty where none did.

    `on_asking` is called before Spark is asked for them, whose JVM starts. Where that is in vain the job goes all the
    same: what cannot be reached any more must not keep it.

    Raises:
        HeldByOther: the job runs.
        JobError: a container of it runs on, without a coordinator.
    """
    elsewhere, why_left = _lineages_elsewhere(handle, on_asking)
    with handle.election.stopped("stop it first: grete stop") as leadership:
        refuse_orphans(handle)
        found, settings = belongings(handle), handle.settings
        job = settings.job
        standby, lineages = (of(handle.job, handle.home) for of in (job.standby_directory, job.lineage_place))
        for folder in (Path(found.folder), standby, lineages):
            if isinstance(folder, Path):
                shutil.rmtree(folder, ignore_errors=True)
        if job.snapshot_location is not None:
            try:
                open_place(job.snapshot_location, settings.azure).remove_all()
            except (OSError, GreteError) as error:
                why_left = "; ".join(filter(None, (why_left, f"{found.snapshots}: {error}")))
        if elsewhere is not None:
            try:
                elsewhere.remove()
            except GreteError as error:
                why_left = "; ".join(filter(None, (why_left, str(error))))
        with _checkpoint_store(handle) as store:
            if store is not None:
                store.delete(_tasks(handle))
        if found.log_stream:
            stream = SystemStream.parse(found.log_stream)
            with handle.system(stream.system) as system, suppress(StreamNotFound):
                system.delete_stream(stream.stream)
        if settings.raw:
            with handle.checkpoints.system() as system:
                for name in found.changelogs:
                    with suppress(StreamNotFound):  # another process was faster
                        system.delete_stream(name.partition(".")[2])
                system.checkpoint_log(handle.checkpoints.log_name).delete()
        handle.coordinator_log.delete()
        handle.election.forget(leadership)
    forget_job(settings, handle.job, handle.home)
    return why_left


def _lineages_elsewhere(handle: JobHandle, on_asking: OnAsking) -> tuple[HadoopLocation | None, str]:
    """Lineages on a file system of Hadoop's, or why they cannot be reached.

    A JVM starts, and waits up to a minute for an answer: longer than the lease under which the job is removed, so it
    is done before.
    """
    address = belongings(handle).lineages
    try:
        place = reach_address(address, LINEAGE_DIR.name, handle.settings, on_asking) if address else None
    except GreteError as error:
        return None, str(error)
    return place, ""


def forget_failed_submit(job: JobId, home: Path) -> None:
    """Forget a job of which nothing was ever written."""
    settings = where_submitted(job, home)
    shutil.rmtree(settings.job.state_directory(job, home), ignore_errors=True)
    forget_job(settings, job, home)
