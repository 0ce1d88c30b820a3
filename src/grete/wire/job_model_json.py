"""The job model as JSON (SamzaObjectMapper of Samza 1.8.0)."""

from __future__ import annotations

from typing import Any

from grete.model.ids import SystemStreamPartition
from grete.model.job import ContainerModel, JobModel, TaskModel
from grete.wire import java_json


def _ssp(ssp: SystemStreamPartition) -> dict[str, Any]:
    return {
        "system": ssp.system,
        "partition": ssp.partition,
        "stream": ssp.stream,
        "keyBucket": ssp.key_bucket,
    }


def _task(task: TaskModel) -> dict[str, Any]:
    return {
        "task-name": task.name,
        "system-stream-partitions": [_ssp(ssp) for ssp in task.ssps],
        "changelog-partition": task.changelog_partition,
        "task-mode": task.mode.value,
    }


def _container(container: ContainerModel) -> dict[str, Any]:
    return {
        "processor-id": container.id,
        "tasks": {name: _task(task) for name, task in container.tasks.items()},
    }


def containers_document(model: JobModel) -> dict[str, Any]:
    """The containers as a JSON-able document."""
    return {id_: _container(container) for id_, container in model.containers.items()}


def encode_containers(model: JobModel) -> bytes:
    """The JSON of the containers map alone, over which the job model's id is computed."""
    return java_json.dumps(containers_document(model))


def encode(model: JobModel) -> bytes:
    """The whole document, as `GET /` serves it."""
    return java_json.dumps(
        {
            "config": dict(model.config),
            "containers": containers_document(model),
            "max-change-log-stream-partitions": model.max_changelog_partitions,
        }
    )
