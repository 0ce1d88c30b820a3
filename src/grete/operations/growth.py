"""Adding partitions to a stream, and the jobs that read it (SEP-5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grete.config.key_tables.job import SSP_EXPANSION
from grete.grouping.expansion import refused_count
from grete.metadata.assignments import TaskAssignments
from grete.metadata.job_index import jobs
from grete.model.ids import JobId, SystemStream
from grete.operations.job_handle import JobHandle, open_job


@dataclass(frozen=True, slots=True)
class Reader:
    """A job that reads the stream. `problem` says why it could not go on with that many partitions."""

    job: JobId
    is_running: bool
    problem: str | None


def readers_after_growth(
    stream: SystemStream, partitions: int, *, place: str, home: Path
) -> Iterator[Reader]:
    """The jobs of this home that read the stream at this place (`SystemSettings.place`), sorted."""
    for job in jobs(home):
        with open_job(job) as handle:
            settings = handle.settings
            if stream in settings.task.inputs and settings.system(stream.system).place(home) == place:
                yield Reader(job, handle.election.holder() is not None, _problem(handle, stream, partitions))


def _problem(handle: JobHandle, stream: SystemStream, partitions: int) -> str | None:
    settings = handle.settings
    assigned = TaskAssignments(handle.stream).ssps().values()
    before = len({ssp.partition for ssps in assigned for ssp in ssps if ssp.system_stream == stream})
    if before in (0, partitions):
        return None  # it never ran, or nothing changes for it
    if settings.job.is_pipeline or not settings.is_stateful:
        return None  # Spark's state is by key, wherever a record comes from
    if not settings.job.is_expansion_enabled:
        return f"{SSP_EXPANSION.name}=false: keys that move to new partitions leave their state behind"
    return refused_count(stream, previous_count=before, current_count=partitions)
