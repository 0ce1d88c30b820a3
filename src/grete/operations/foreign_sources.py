"""Offsets of a pipeline's sources that are not grete's: Spark alone has them, in the files of the lineage."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from grete.checkpoint.task_commit import TaskCommit
from grete.model.ids import ContainerId, TaskName
from grete.operations.job_handle import JobHandle
from grete.spark.lineage_files import foreign_offsets


def foreign_of_tasks(
    handle: JobHandle, commits: Mapping[TaskName, TaskCommit]
) -> dict[TaskName, dict[str, str]]:
    """Of each task's last batch: where sources of Spark's own ended, by their number in the plan.

    Only of tasks whose container has such sources and its lineage on this machine, or in a folder that it mounts:
    file systems of Hadoop's are reached by Spark alone.

    Raises:
        SparkLogUnreadable: Spark's offset log is damaged.
    """
    job = handle.settings.job
    folder = job.lineage_place(handle.job, handle.home)
    if not job.is_pipeline or isinstance(folder, str):
        return {}
    containers = handle.assignments()

    @cache  # the tasks of a container end their batches together
    def of_batch(container: ContainerId, lineage: str, batch: int) -> dict[str, str]:
        return foreign_offsets(folder / f"container-{container}" / "lineages", lineage, batch)

    found = {
        task: of_batch(containers[task], commit.lineage, commit.batch_id)
        for task, commit in commits.items()
        if commit.lineage and task in containers
    }
    return {task: offsets for task, offsets in found.items() if offsets}
