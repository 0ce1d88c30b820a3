"""The way back: a query of plain Spark goes on where a pipeline stands, with the state that the pipeline has.

What it starts from is a copy of Spark's checkpoint location of the job's lineage, which a query takes as its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.checkpoint.task_commit import TaskCommit
from grete.config.key_tables.job import LINEAGE_DIR
from grete.config.places import place_of
from grete.errors import ConfigError, JobError
from grete.migration.spark_query import OldQuery, read_query
from grete.model.ids import JobId, SystemStream, TaskName
from grete.operations.job_handle import JobHandle
from grete.spark.lineage.decision import Checkpointed, LineageInfo
from grete.spark.lineage.files import current_checkpoint
from grete.spark.lineage.location import OnAsking, open_location
from grete.spark.lineage.query_files import copy_all

_STOP = "stop it first: two that go on from here write their outputs twice"
_CHECKPOINT = "--checkpoint"


@dataclass(frozen=True, slots=True)
class WayBack:
    """What a query would go on from: its sources in the order of Spark's log, "" for one that is not grete's."""

    job: JobId
    sources: tuple[str, ...]
    query: OldQuery


def way_back(handle: JobHandle, on_asking: OnAsking) -> WayBack:
    """Look at where the job stands. Writes nothing.

    Raises:
        ConfigError: it is no pipeline of one container, or has inputs that plain Spark cannot read.
        JobError: there is nothing to go on from, or Spark has not noted the last batch yet.
        ConfigError, FilesUnreachable, MissingExtra: see `open_location`.
        SparkLogUnreadable: Spark's logs are damaged.
    """
    job, settings = handle.job, handle.settings
    containers = set(handle.assignments().values())
    if not settings.job.is_pipeline or len(containers) != 1:
        raise ConfigError(
            f"job {job.shown} is no DataFrame pipeline of one container, and only such a one is one query of Spark's"
        )
    [container] = containers
    place = settings.job.container_lineages(job, handle.home, container)
    found = current_checkpoint(open_location(place, LINEAGE_DIR.name, settings, on_asking))
    if found is None:
        raise JobError(
            f"job {job.shown} has no lineage in {place}: it has not run there, or its files are gone"
        )
    lineage, checkpoint = found
    if own := [one for one in lineage.sources if one and not _is_sparks(one, handle)]:
        raise ConfigError(f"plain Spark cannot read {', '.join(own)}: only inputs on Kafka and Event Hubs")
    query = read_query(checkpoint)
    _check_noted(lineage, query, handle.checkpoints.read(), job)
    return WayBack(job, lineage.sources, query)


def _is_sparks(source: str, handle: JobHandle) -> bool:
    return handle.settings.system(SystemStream.parse(source).system).capabilities.spark_connector


def _check_noted(
    lineage: LineageInfo, query: OldQuery, commits: Mapping[TaskName, TaskCommit], job: JobId
) -> None:
    """A query repeats what Spark has not noted, and knows nothing of a checkpoint that was moved."""
    again = "run the job once more, until it has committed a batch, and stop it"
    done = Checkpointed.of(lineage, commits.values())
    if any(commit.lineage != lineage.id for commit in commits.values()) or done is None:
        raise JobError(
            f"checkpoints of job {job.shown} were moved, and Spark has not gone on from there: {again}"
        )
    if done.batch != query.committed:
        raise JobError(
            f"batch {done.batch} of job {job.shown} is committed, and Spark has noted {query.committed}, so a query "
            f"would write it again: {again}"
        )


def execute(found: WayBack, handle: JobHandle, to: str, on_asking: OnAsking) -> None:
    """Copy what the query goes on from to a folder or an address. Durable on return; the job's own stays as it is.

    Raises:
        ConfigError: there is something already.
        HeldByOther: the job runs.
        JobError: it ran meanwhile.
        OSError: there is no room.
    """
    target = open_location(place_of(to), _CHECKPOINT, handle.settings, on_asking)
    if target.is_dir() and any(target.iterdir()):
        raise ConfigError(f"{_CHECKPOINT} {to}: there is something in it already; name a folder of its own")
    with handle.election.stopped(_STOP):
        if way_back(handle, lambda what: None).query != found.query:
            raise JobError(f"job {found.job.shown} ran meanwhile: nothing was written, ask again")
        copy_all(found.query.folder, target)
