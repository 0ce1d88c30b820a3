"""The records by which a job model's assignments are remembered (JobModelManager.updateTaskAssignments). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.coordinator.job_model import Remembered
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.job import JobModel, TaskMode
from grete.model.messages import SET_TASK_CONTAINER, SET_TASK_MODE, SET_TASK_PARTITION
from grete.wire import java_json
from grete.wire.job_model_json import ssp_document

AssignmentRecord = tuple[str, str, Mapping[str, str] | None]
"""(message type, key, values); None deletes."""


def ssp_key(ssp: SystemStreamPartition) -> str:
    """An SSP as the key of a set-task-partition-assignment message: its JSON."""
    return java_json.dumps(ssp_document(ssp)).decode()


def assignment_records(model: JobModel, remembered: Remembered) -> Iterator[AssignmentRecord]:
    """Deletions first, when the number of tasks or the standby tasks changed; then every assignment.

    Of a partition that has other buckets of keys now the ones before go, too. In Samza they stay, and with the factor
    of elasticity that made them their tasks would seem to have gone on reading.
    """
    yield from _deletions(model, remembered)
    owners: dict[SystemStreamPartition, list[TaskName]] = {}
    for container in model.containers.values():
        for task in container.tasks.values():
            yield SET_TASK_CONTAINER, task.name, {"containerId": container.id}
            yield SET_TASK_MODE, task.name, {"taskMode": task.mode.value}
            for ssp in task.ssps:
                owners.setdefault(ssp, []).append(task.name)
    for ssp, tasks in owners.items():
        yield SET_TASK_PARTITION, ssp_key(ssp), {"taskNames": java_json.dumps(tasks).decode()}


def _deletions(model: JobModel, remembered: Remembered) -> Iterator[AssignmentRecord]:
    tasks = model.tasks.values()
    active = {task.name for task in tasks if task.mode is TaskMode.ACTIVE}
    standby = {task.name for task in tasks if task.mode is TaskMode.STANDBY}
    before = remembered.active
    if len(active) != len(before):
        for task_name in before:
            yield from _delete_task(task_name)
        for ssp in {ssp: None for task in tasks for ssp in task.ssps}:
            yield SET_TASK_PARTITION, ssp_key(ssp), None
    present = {ssp for task in tasks for ssp in task.ssps}
    gone = {ssp for ssps in remembered.ssps.values() for ssp in ssps} - present
    partitions = {ssp.whole for ssp in present} if gone else set()
    for ssp in sorted(one for one in gone if one.whole in partitions):
        yield SET_TASK_PARTITION, ssp_key(ssp), None
    standby_before = {task for task, mode in remembered.modes.items() if mode is TaskMode.STANDBY}
    if standby != standby_before:
        for task_name in sorted(standby_before):
            yield from _delete_task(task_name)


def _delete_task(task: TaskName) -> Iterator[AssignmentRecord]:
    yield SET_TASK_CONTAINER, task, None
    yield SET_TASK_MODE, task, None
