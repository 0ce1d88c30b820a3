"""Cases of the job model, its ids and the job coordinator's metadata."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import google_crc32c

from grete.clock import SystemClock
from grete.coordinator.metadata_manager import JobCoordinatorMetadataManager
from grete.keyed_log.base import Entry
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName, ssp_label
from grete.model.job import ContainerModel, JobModel, TaskMode, TaskModel
from grete.model.messages import MessageOrigin
from grete.model.metadata import JobCoordinatorMetadata
from grete.wire import coordinator_message, java_json, job_coordinator_metadata, job_model_json
from grete.wire.java_hash import JavaHashMap
from grete_workbench.samza import store_value
from grete_workbench.vectors.hash_cases import ssp_of, ssp_parts
from grete_workbench.vectors.registry import Case, Difference, checker, has_op, java_utf8, result_of, same

_KEY = '[1,"set-job-coordinator-metadata","YARN"]'


def model_of(given: dict[str, Any]) -> JobModel:
    """A model from its form in the files, in the order of the maps that the file names."""
    in_order: Callable[[Iterable[Any]], Iterable[Any]] = (
        JavaHashMap.of if given["maps"] == "HashMap" else list
    )
    containers = {
        ContainerId(id_): ContainerModel(ContainerId(id_), _tasks(tasks, in_order))
        for id_, tasks in given["containers"]
    }
    ordered = {id_: containers[id_] for id_ in in_order(containers)}
    return JobModel(given["config"], ordered)


def _tasks(tasks: list[Any], in_order: Callable[[Iterable[Any]], Iterable[Any]]) -> dict[TaskName, TaskModel]:
    found = {
        TaskName(name): TaskModel(
            TaskName(name), tuple(in_order([ssp_of(parts) for parts in ssps])), partition, TaskMode(mode)
        )
        for name, ssps, partition, mode in tasks
    }
    return {name: found[name] for name in in_order(found)}


_MODEL_OPS = ("read", "piece", "ssp as map key", "ContainerModel json", "TaskModel json")
_METADATA_OPS = (
    "config_id",
    "job_model_id",
    "raw hashes",
    "generate",
    "decode",
    "changes",
    "read when absent",
    "read garbage",
)


def _is_written_model(case: Case) -> bool:
    return case.get("op") == "write" and "input" in case


def _is_written_metadata(case: Case) -> bool:
    return case.get("op") == "write" and "metadata" in case


@checker("job_model", knows=lambda case: has_op(*_MODEL_OPS)(case) or _is_written_model(case))
def check_job_model(case: Case) -> None:
    """A model written and read, and its pieces."""
    match case["op"]:
        case "write":
            _check_write(case)
        case "read":
            got = result_of(lambda: _reserialised(case["json"]), case["result"], "read")
            same("read", got, case["result"])
        case "piece":
            _check_piece(case)
        case "ssp as map key":
            ssp = ssp_of(case["ssp"])
            same("json", java_json.dumps({str(ssp): "off"}).decode(), case["json"])
            key = next(iter(json.loads(case["json"])))
            got = result_of(
                lambda: ssp_parts(job_model_json.decode_ssp_map_key(key)), case["read"], "map key"
            )
            same("map key read", got, case["read"])
        case "ContainerModel json" | "TaskModel json":
            _check_part(case)
        case op:
            raise Difference(f"unknown op {op!r}")


def _reserialised(text: str) -> str:
    model = job_model_json.decode(java_utf8(text))
    return "null" if model is None else _as_string(model)


def _as_string(model: JobModel) -> str:
    """The model as `writeValueAsString` has it; what is served and hashed is `writeValueAsBytes`."""
    return java_json.dumps(job_model_json.document(model)).decode()


def _check_write(case: Case) -> None:
    model, expected = model_of(case["input"]), case["result"]
    compact = result_of(lambda: _as_string(model), expected, "write")
    if compact is expected:
        return
    same("compact", compact, expected["compact"])
    if "pretty" in expected:
        same("pretty", java_json.pretty(job_model_json.document(model)), expected["pretty"])
    same("job model id", job_coordinator_metadata.job_model_id(model), expected["job_model_id"])
    same("max changelog", model.max_changelog_partitions, expected["max_changelog_partitions"])
    back = result_of(lambda: job_model_json.decode(compact.encode()), expected["reserialized"], "read back")
    if back is expected["reserialized"]:
        return
    assert back is not None
    again = _as_string(back)
    same("reserialised", "same" if again == compact else again, expected["reserialized"])
    same(
        "id of read back", job_coordinator_metadata.job_model_id(back), expected["job_model_id_of_read_back"]
    )


def _check_piece(case: Case) -> None:
    value = json.loads(case["json"])
    match case["kind"]:
        case "ssp":
            ssp = SystemStreamPartition(
                value["system"], value["stream"], value["partition"], value.get("keyBucket", -1)
            )
            same("json", java_json.dumps(job_model_json.ssp_document(ssp)).decode(), case["json"])
            same("toString", ssp_label(ssp), case["toString"])
        case "config":
            got = java_json.dumps(job_model_json.config_document(value)).decode()
            same("json", got, case["json"])
        case "taskMode":
            same("json", java_json.dumps(TaskMode(value).value).decode(), case["json"])
        case _:
            same("json", java_json.dumps(value).decode(), case["json"])


def _check_part(case: Case) -> None:
    """A part written alone; its SSPs come in whatever order its set had."""
    value = json.loads(case["json"])
    if case["op"].startswith("Task"):
        part = job_model_json.task_document(_task_in_order(value))
    else:
        tasks = {TaskName(name): _task_in_order(task) for name, task in value["tasks"].items()}
        part = job_model_json.container_document(ContainerModel(ContainerId(value["processor-id"]), tasks))
    same("json", java_json.dumps(part).decode(), case["json"])


def _task_in_order(value: dict[str, Any]) -> TaskModel:
    ssps = value["system-stream-partitions"]
    return TaskModel(
        TaskName(value["task-name"]),
        tuple(SystemStreamPartition(s["system"], s["stream"], s["partition"], s["keyBucket"]) for s in ssps),
        value["changelog-partition"],
        TaskMode(value["task-mode"]),
    )


@checker(
    "job_coordinator_metadata", knows=lambda case: has_op(*_METADATA_OPS)(case) or _is_written_metadata(case)
)
def check_metadata(case: Case) -> None:
    """Ids, comparison and storage of JobCoordinatorMetadata."""
    match case["op"]:
        case "config_id":
            config = case["config"]
            got = result_of(lambda: job_coordinator_metadata.config_id(config), case["result"], "config id")
            same("config id", got, case["result"])
        case "job_model_id":
            model, expected = model_of(case["input"]), case["result"]
            same("bytes", job_model_json.encode_containers(model).decode(), expected["hashed_bytes_utf8"])
            same("id", job_coordinator_metadata.job_model_id(model), expected["job_model_id"])
        case "raw hashes":
            _check_raw_hashes(case)
        case "generate":
            _check_generate(case)
        case "decode":
            got = result_of(lambda: _recoded(case["json"]), case["result"], "decode")
            same("decode", got, case["result"])
        case "changes":
            _check_changes(case)
        case "read when absent" | "read garbage":
            same("read", _manager(case.get("value_utf8")).read(), case["result"])
        case "write":
            _check_metadata_write(case)
        case op:
            raise Difference(f"unknown op {op!r}")


def _check_raw_hashes(case: Case) -> None:
    text: str = case["input"]
    utf8 = text.encode("utf-8", errors="replace")
    same("crc32c", _signed(google_crc32c.value(utf8)), case["crc32c_utf8_bytes_asInt"])
    utf16 = text.encode("utf-16-le", errors="surrogatepass")
    same("crc32", _signed(zlib.crc32(utf16)), case["crc32_unencoded_chars_asInt"])


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


def _recoded(text: str) -> str:
    return job_coordinator_metadata.encode(job_coordinator_metadata.decode(java_utf8(text))).decode()


def _manager(value: str | None = None, cluster_type: str = "YARN") -> JobCoordinatorMetadataManager:
    log = MemoryKeyedLog(SystemClock())
    if value is not None:
        log.append([Entry(_KEY.encode(), java_utf8(value))])
    return JobCoordinatorMetadataManager(
        CoordinatorStream(log, SystemClock(), source="SamzaContainer"), cluster_type
    )


def _check_generate(case: Case) -> None:
    expected = case["result"]
    model = model_of(case["model"])
    manager = _manager(cluster_type=case["cluster_type"])
    got = result_of(lambda: manager.generate(model, case["config"], case["env"]), expected, "generate")
    if got is expected:
        return
    if _is_samzas_yarn_bug(case):
        same("application id", got.epoch_id, "_".join(case["env"]["CONTAINER_ID"].split("_")[2:4]))
    else:
        same("epoch id", got.epoch_id, expected["epoch_id"])
        same("json", job_coordinator_metadata.encode(got).decode(), expected["json"])
        same("toString", repr(got), expected["toString"])
    same("config id", got.config_id, expected["config_id"])
    same("job model id", got.job_model_id, expected["job_model_id"])


def _is_samzas_yarn_bug(case: Case) -> bool:
    """A container id with an epoch part, where Samza's epoch id is the same for every application (S0-15)."""
    container: str = case["env"].get("CONTAINER_ID", "")
    return case["cluster_type"] == "YARN" and container.startswith("container_e")


def _check_changes(case: Case) -> None:
    """Samza reports every difference; ours are the same set, the first of which is counted."""
    new = JobCoordinatorMetadata(*case["new"])
    previous = None if case["previous"] is None else JobCoordinatorMetadata(*case["previous"])
    same("changes", sorted(job_coordinator_metadata.changes(new, previous)), case["result_sorted"])


def _check_metadata_write(case: Case) -> None:
    meta = case["meta"]
    metadata = JobCoordinatorMetadata(*case["metadata"])
    text = job_coordinator_metadata.encode(metadata).decode()
    origin = MessageOrigin(meta["source"], meta["host"], meta["username"], meta["timestamp"])
    key = coordinator_message.encode_key("set-job-coordinator-metadata", case["cluster_type"])
    same("key", key.decode(), case["key_utf8"])
    value = store_value.encode("set-job-coordinator-metadata", text, origin).decode()
    same("value", value, case["value_utf8"])
    manager = _manager(cluster_type=case["cluster_type"])
    manager.write(metadata)
    same("read back", repr(manager.read()), case["read_back"])
