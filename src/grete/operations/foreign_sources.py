"""What Spark alone has of a pipeline, in its lineage's files: offsets of sources that are not grete's, and state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from grete.checkpoint.task_commit import TaskCommit
from grete.config.key_tables.job import LINEAGE_DIR
from grete.model.ids import ContainerId, TaskName
from grete.operations.job_handle import JobHandle
from grete.spark.lineage.files import foreign_offsets, kept_by
from grete.spark.lineage.location import OnAsking, open_location


def foreign_of_tasks(
    handle: JobHandle, commits: Mapping[TaskName, TaskCommit], on_asking: OnAsking
) -> dict[TaskName, dict[str, str]]:
    """Of each task's last batch: where sources of Spark's own ended, by their number in the plan.

    Only of tasks whose container has such sources and its lineage on this machine, in a folder that it mounts, or on
    a file system of Hadoop's. There Spark is asked, and only where a commit says that there are such sources.

    Raises:
        SparkLogUnreadable: Spark's offset log is damaged.
        ConfigError, FilesUnreachable, JobError, MissingExtra: see `open_location`.
    """
    job, containers = handle.settings.job, handle.assignments()
    place = job.lineage_place(handle.job, handle.home)
    asked = {
        task: commit
        for task, commit in commits.items()
        if commit.lineage and task in containers and (isinstance(place, Path) or commit.has_foreign_sources)
    }
    if not job.is_pipeline or not asked:
        return {}
    root = open_location(place, LINEAGE_DIR.name, handle.settings, on_asking)

    @cache  # the tasks of a container end their batches together
    def of_batch(container: ContainerId, lineage: str, batch: int) -> dict[str, str] | None:
        return foreign_offsets(root / f"container-{container}" / "lineages", lineage, batch)

    found = {
        task: of_batch(containers[task], commit.lineage, commit.batch_id) for task, commit in asked.items()
    }
    return {task: offsets for task, offsets in found.items() if offsets is not None}


def kept_in_spark(handle: JobHandle, commits: Mapping[TaskName, TaskCommit]) -> str | None:
    """What the tasks' lineages have in Spark alone, "" for nothing; None where that is not known on this machine."""
    place, containers = handle.settings.job.lineage_place(handle.job, handle.home), handle.assignments()
    begun = {task: commit.lineage for task, commit in commits.items() if commit.lineage}
    if not isinstance(place, Path) or begun.keys() - containers.keys():
        return None if begun else ""
    found = {
        kept_by(place / f"container-{containers[task]}" / "lineages", lineage)
        for task, lineage in begun.items()
    }
    return None if None in found else "; ".join(sorted(kept for kept in found if kept))
