"""The job model as JSON (SamzaObjectMapper of Samza 1.8.0, `writeValueAsBytes`).

Written: config, containers, max-change-log-stream-partitions; configuration in the order of a java.util.HashMap,
containers, tasks and SSPs in the order of the model. Read: SSP sets take HashSet order, as they do there; older
forms are accepted (`container-id`, SSPs as the keys of a map of offsets, a missing task mode).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from grete.errors import WireError
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName
from grete.model.job import ContainerModel, JobModel, TaskMode, TaskModel
from grete.wire import jackson_bytes, java_json
from grete.wire.java_hash import JavaHashMap

_OLD_SSPS = "system-stream-partitions-offsets"


def ssp_document(ssp: SystemStreamPartition) -> dict[str, Any]:
    """An SSP as a JSON-able document."""
    return {
        "system": ssp.system,
        "partition": ssp.partition,
        "stream": ssp.stream,
        "keyBucket": ssp.key_bucket,
    }


def task_document(task: TaskModel) -> dict[str, Any]:
    """A task as a JSON-able document."""
    return {
        "task-name": task.name,
        "system-stream-partitions": [ssp_document(ssp) for ssp in task.ssps],
        "changelog-partition": task.changelog_partition,
        "task-mode": task.mode.value,
    }


def container_document(container: ContainerModel) -> dict[str, Any]:
    """A container as a JSON-able document."""
    return {
        "processor-id": container.id,
        "tasks": {name: task_document(task) for name, task in container.tasks.items()},
    }


def config_document(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration in the order of Samza's MapConfig, a HashMap filled at once."""
    return {key: config[key] for key in JavaHashMap.copy_of(config)}


def containers_document(model: JobModel) -> dict[str, Any]:
    """The containers as a JSON-able document."""
    return {id_: container_document(container) for id_, container in model.containers.items()}


def document(model: JobModel) -> dict[str, Any]:
    """The whole model as a JSON-able document."""
    return {
        "config": config_document(model.config),
        "containers": containers_document(model),
        "max-change-log-stream-partitions": model.max_changelog_partitions,
    }


def encode_containers(model: JobModel) -> bytes:
    """The JSON of the containers map alone, over which the job model's id is computed.

    The same as `jackson_bytes.dumps` of `containers_document`, written directly: a job of 100,000 tasks would make
    400,000 dicts.
    """
    containers = (
        _CONTAINER % (_quoted(id_), _quoted(container.id), b",".join(_tasks_json(container)))
        for id_, container in model.containers.items()
    )
    return b"{%b}" % b",".join(containers)


def _tasks_json(container: ContainerModel) -> Iterator[bytes]:
    for name, task in container.tasks.items():
        ssps = [_SSP % (_quoted(s.system), s.partition, _quoted(s.stream), s.key_bucket) for s in task.ssps]
        key = jackson_bytes.dumps(name)
        own = key if task.name == name else jackson_bytes.dumps(task.name)
        yield _TASK % (key, own, b",".join(ssps), task.changelog_partition, _quoted(task.mode.value))


_CONTAINER = b'%b:{"processor-id":%b,"tasks":{%b}}'
_TASK = b'%b:{"task-name":%b,"system-stream-partitions":[%b],"changelog-partition":%d,"task-mode":%b}'
_SSP = b'{"system":%b,"partition":%d,"stream":%b,"keyBucket":%d}'
_quoted = lru_cache(maxsize=4096)(jackson_bytes.dumps)


def encode(model: JobModel) -> bytes:
    """The whole document, as `GET /` serves it."""
    return b'{"config":%b,"containers":%b,"max-change-log-stream-partitions":%d}' % (
        jackson_bytes.dumps(config_document(model.config)),
        encode_containers(model),
        model.max_changelog_partitions,
    )


def decode(data: bytes) -> JobModel | None:
    """Read a model; JSON null is None.

    Raises:
        WireError: naming what is missing or wrong.
    """
    read = java_json.loads(data)
    if read is None:
        return None
    try:
        containers = [_container(one) for one in read["containers"].values()]
        given = read.get("max-change-log-stream-partitions")
        return JobModel(
            {key: read["config"][key] for key in JavaHashMap.copy_of(read["config"])},
            {container.id: container for container in containers},
            given if isinstance(given, int) else -1,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not a job model: {error!r}") from error


def _container(read: Mapping[str, Any]) -> ContainerModel:
    id_ = read.get("processor-id", read.get("container-id"))
    if id_ is None:
        raise WireError(
            "JobModel was missing processor-id and container-id. This should never happen. JobModel corrupt!"
        )
    tasks = [_task(one) for one in read["tasks"].values()]
    return ContainerModel(ContainerId(str(id_)), {task.name: task for task in tasks})


def _task(read: Mapping[str, Any]) -> TaskModel:
    partition = read.get("changelog-partition")
    return TaskModel(
        TaskName(read["task-name"]),
        tuple(JavaHashMap.of(_ssps(read))),
        partition if isinstance(partition, int) else 0,
        TaskMode(read.get("task-mode") or TaskMode.ACTIVE),
    )


def _ssps(read: Mapping[str, Any]) -> list[SystemStreamPartition]:
    if _OLD_SSPS in read:
        return [SystemStreamPartition.parse(text) for text in read[_OLD_SSPS]]
    return [
        SystemStreamPartition(ssp["system"], ssp["stream"], int(ssp["partition"]), ssp.get("keyBucket", -1))
        for ssp in read["system-stream-partitions"]
    ]


def survives_map_key(ssp: SystemStreamPartition) -> bool:
    """Whether Samza gets the SSP back from a map's key: neither name has a dot (`decode_ssp_map_key`)."""
    return "." not in ssp.system and "." not in ssp.stream


def decode_ssp_map_key(text: str) -> SystemStreamPartition:
    """An SSP as a JSON map key, as the real deserialiser reads it: split at every dot, so names have none.

    Raises:
        WireError: the third part is no number.
    """
    parts = text.split(".")
    if len(parts) < 3 or not parts[2].isdigit():
        raise WireError(f'For input string: "{parts[2] if len(parts) > 2 else text}"')
    return SystemStreamPartition(parts[0], parts[1], int(parts[2]))
