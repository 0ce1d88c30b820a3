"""Cases of the managers over the coordinator stream, of config writing, and a whole stream from a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from grete.clock import Clock, SystemClock
from grete.keyed_log.base import Entry
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.locality import LocalityManager
from grete.model.ids import ContainerId, TaskName
from grete.model.messages import (
    SET_CONTAINER_HOST,
    SET_EXECUTION_ENV_CONTAINER,
    SET_JOB_COORDINATOR_METADATA,
    SET_TASK_CONTAINER,
    SET_TASK_MODE,
    SET_TASK_PARTITION,
    MessageOrigin,
)
from grete.wire import java_json, job_coordinator_metadata, job_model_json
from grete.wire.coordinator_message import decode, encode_key, encode_value
from grete_workbench.samza import locality_json, store_value
from grete_workbench.samza.bootstrap import bootstrap
from grete_workbench.samza.locality_json import ProcessorLocality
from grete_workbench.vectors.hash_cases import ssp_of, ssp_parts
from grete_workbench.vectors.registry import (
    Case,
    Difference,
    checker,
    has_fields,
    has_op,
    java_utf8,
    same,
    story,
    throws,
)

_MAPPING = re.compile(r"([^={},]+)=([^={},]+)")


def _stream(
    log: MemoryKeyedLog, source: str = "SamzaContainer", clock: Clock | None = None
) -> CoordinatorStream:
    return CoordinatorStream(log, clock or SystemClock(), source=source)


def _wrote(log: MemoryKeyedLog, after: int = -1) -> list[Any]:
    """(key, values) of the records, without who wrote them and when."""
    found = []
    for record in log.read(after):
        message = decode(record.key, record.value)
        found.append([record.key.decode(), None if message.values is None else dict(message.values)])
    return found


def _values(records: list[Any]) -> list[Any]:
    return [[key, None if value is None else json.loads(value)["values"]] for key, value in records]


_MANAGER_OPS = (
    "LocalityManager.writeContainerToHostMapping",
    "LocalityManager.readLocality",
    "ExecutionContainerIdManager.write",
    "ExecutionContainerIdManager.read",
    "ChangelogStreamManager",
    "TaskAssignmentManager",
    "TaskPartitionAssignmentManager",
    "LocalityModel json",
    "LocalityModel read",
)
_WRITES = {
    "LocalityManager.writeContainerToHostMapping": SET_CONTAINER_HOST,
    "ExecutionContainerIdManager.write": SET_EXECUTION_ENV_CONTAINER,
}


class _Written:
    """Writes of a file's cases to localities and container ids: they are stories, in the file's order."""

    def __init__(self) -> None:
        self.ever: dict[str, set[tuple[str, str]]] = {kind: set() for kind in _WRITES.values()}
        self.now: dict[str, dict[str, str]] = {kind: {} for kind in _WRITES.values()}

    def before(self, kind: str, read: Mapping[str, str]) -> dict[str, str]:
        """The state when that was read: all that the cases so far have written.

        What no case of the file writes was written before it. In a file whose cases are in another order than the
        story's, what was read is written by some case, and what was not read by a later one.
        """
        ever, now = self.ever[kind], self.now[kind]
        written = {key for key, _ in ever}
        explained = {key: value for key, value in read.items() if key not in written or (key, value) in ever}
        return {key: value for key, value in now.items() if key in read} | explained


_written = _Written()


@story("coordinator_managers")
def begin(cases: Sequence[Case]) -> None:
    """Remember what the file's cases write."""
    global _written  # the cases of one file are checked one after another, and no others meanwhile
    _written = _Written()
    for case in cases:
        kind = _WRITES.get(case.get("op", ""))
        if kind is not None and isinstance(case.get("args"), list) and len(case["args"]) == 2:
            _written.ever[kind].add((case["args"][0], case["args"][1]))


@checker("coordinator_managers", knows=has_op(*_MANAGER_OPS))
def check_manager(case: Case) -> None:
    """Each manager's writes, and what it reads back."""
    match case["op"]:
        case "LocalityManager.writeContainerToHostMapping" | "ExecutionContainerIdManager.write":
            kind = _WRITES[case["op"]]
            _check_single(case, kind)
            key, value = case["args"]
            _written.now[kind][key] = value
        case "LocalityManager.readLocality" | "ExecutionContainerIdManager.read" if throws(case["result"]):
            raise Difference(f"the real one throws {case['result']['throws']}, we read")
        case "LocalityManager.readLocality":
            _check_localities(case)
        case "ExecutionContainerIdManager.read":
            log = MemoryKeyedLog(SystemClock())
            before = _written.before(SET_EXECUTION_ENV_CONTAINER, case["result"])
            _stream(log).put(SET_EXECUTION_ENV_CONTAINER, before)
            same("read", _stream(log).values(SET_EXECUTION_ENV_CONTAINER), case["result"])
        case "ChangelogStreamManager":
            _check_changelog(case)
        case "TaskAssignmentManager":
            _check_assignments(case)
        case "TaskPartitionAssignmentManager":
            _check_partitions(case)
        case "LocalityModel json":
            model = {row[0]: ProcessorLocality(*row) for row in case["input"]}
            same("json", locality_json.encode(model).decode(), case["json"])
            first = next(iter(model.values()))
            same("single", java_json.dumps(locality_json.document(first)).decode(), case["single"])
        case "LocalityModel read":
            read = locality_json.decode(java_utf8(case["json"]))
            same("read", locality_json.encode(read).decode(), case["result"])
        case op:
            raise Difference(f"unknown op {op!r}")


def _check_single(case: Case, message_type: str) -> None:
    key, value = case["args"]
    meta = case["meta"]
    origin = MessageOrigin(meta["source"], meta["host"], meta["username"], meta["timestamp"])
    same("key", encode_key(message_type, key).decode(), case["key_utf8"])
    same("value", store_value.encode(message_type, value, origin).decode(), case["value_utf8"])


def _check_localities(case: Case) -> None:
    log = MemoryKeyedLog(SystemClock())
    for id_, host in _written.before(SET_CONTAINER_HOST, _hosts(case["result"])).items():
        LocalityManager(_stream(log)).write_locality(ContainerId(id_), host)
    same("hosts", LocalityManager(_stream(log)).read_locality(), _hosts(case["result"]))
    model = {id_: ProcessorLocality(*row) for id_, row in case["result"].items()}
    same("json", locality_json.encode(model).decode(), case["json"])


def _hosts(result: dict[str, Any]) -> dict[str, str]:
    return {id_: row[1] for id_, row in result.items()}


def _parse(text: str) -> dict[TaskName, int]:
    return {TaskName(task.strip()): int(partition) for task, partition in _MAPPING.findall(text)}


def _check_changelog(case: Case) -> None:
    """Old assignments win over new ones for the same task; unchanged ones are not written again by us."""
    log = MemoryKeyedLog(SystemClock())
    mapping = ChangelogMapping(_stream(log))
    first, second = _parse(case["a"]), _parse(case["b"])
    mapping.write(first)
    mapping.write({**second, **mapping.read()})
    expected = {key: values for key, values in _values(case["wrote"])}
    same("records", dict(map(tuple, _wrote(log))), expected)
    same("read", mapping.read(), case["read"])


def _check_assignments(case: Case) -> None:
    log = MemoryKeyedLog(SystemClock())
    assignments = TaskAssignments(_stream(log))
    puts = [record for record in _values(case["wrote"]) if record[1] is not None]
    assignments.write((json.loads(key)[1], json.loads(key)[2], values) for key, values in puts)
    gone = case["then_delete"]
    assignments.write([(SET_TASK_CONTAINER, gone, None), (SET_TASK_MODE, gone, None)])
    same("records", sorted(_wrote(log), key=str), sorted(_values(case["wrote"]), key=str))
    same("assignment", assignments.read(), case["assignment"])
    same("modes", {task: mode.value for task, mode in assignments.modes().items()}, case["modes"])


def _check_partitions(case: Case) -> None:
    log = MemoryKeyedLog(SystemClock())
    assignments = TaskAssignments(_stream(log))
    assignments.write(
        (
            SET_TASK_PARTITION,
            java_json.dumps(job_model_json.ssp_document(ssp_of(parts))).decode(),
            {"taskNames": java_json.dumps(tasks).decode()},
        )
        for parts, tasks in case["input"]
    )
    same("records", sorted(_wrote(log), key=str), sorted(_values(case["wrote"]), key=str))
    same("read", _by_ssp(assignments), sorted(case["read"]))


def _by_ssp(assignments: TaskAssignments) -> list[Any]:
    owners: dict[Any, list[str]] = {}
    for task, ssps in sorted(assignments.ssps().items()):
        for ssp in ssps:
            owners.setdefault(ssp, []).append(task)
    return sorted([ssp_parts(ssp), tasks] for ssp, tasks in owners.items())


@checker("coordinator_write_config", knows=has_fields("job_name", "job_id", "steps"))
def check_write_config(case: Case) -> None:
    """Each submit leaves the same configuration, and tombstones exactly what vanished.

    The original writes every key each time; we write what changed, so the records are compared by what they set.
    """
    log = MemoryKeyedLog(SystemClock())
    for number, step in enumerate(case["steps"]):
        before, known = log.end(), _stream(log).config()
        _stream(log, "job-runner").write_config(step["config"], run_id=f"run-{number}")
        wrote = [record for record in _wrote(log, before) if '"set-config"' in record[0]]
        expected = [
            [key, None if value is None else {"value": value}]
            for key, value, _ in step["wrote"]
            if value is None or known.get(json.loads(key)[2]) != value
        ]
        same(f"step {number} records", sorted(wrote, key=str), sorted(expected, key=str))
        same(f"step {number} config", _stream(log).config(), step["stream_config"])
        same(f"step {number} seen by Samza", bootstrap(log.read())[1], step["stream_config"])


@checker("coordinator_stream_kafka_dump", knows=has_fields("records", "read_back"))
def check_dump(case: Case) -> None:
    """A stream that the real one wrote to a real broker: what our readers see is what its readers saw."""
    log = MemoryKeyedLog(SystemClock())
    log.append([Entry(bytes.fromhex(r["key"]), _unhex(r["value"])) for r in case["records"]])
    _check_bytes(case["records"])
    stream, expected = _stream(log), case["read_back"]
    same("nothing is quarantined", [q.reason for q in stream.quarantined], [])
    assignments = TaskAssignments(stream)
    same("config", stream.config(), expected["config"])
    same("config via consumer", bootstrap(log.read())[1], expected["config_via_consumer"])
    same("assignment", assignments.read(), expected["task_assignment"])
    same("modes", {t: mode.value for t, mode in assignments.modes().items()}, expected["task_modes"])
    same("partitions", _by_ssp(assignments), sorted(expected["task_partition_assignments"]))
    same("locality", LocalityManager(stream).read_locality(), expected["locality"])
    same("containers", stream.values(SET_EXECUTION_ENV_CONTAINER), expected["execution_env_container_ids"])
    same("changelog", ChangelogMapping(stream).read(), expected["changelog"])
    stored = stream.values(SET_JOB_COORDINATOR_METADATA).get("YARN")
    metadata = None if stored is None else job_coordinator_metadata.decode(java_utf8(stored))
    same(
        "metadata", "null" if metadata is None else repr(metadata), expected["job_coordinator_metadata_YARN"]
    )
    for text in case["job_models"]:
        model = job_model_json.decode(java_utf8(text))
        assert model is not None
        same("job model", job_model_json.encode(model).decode(), text)


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _check_bytes(records: list[Any]) -> None:
    """Decoding and encoding a record again gives the same bytes."""

    for record in records:
        key, value = bytes.fromhex(record["key"]), _unhex(record["value"])
        message = decode(key, value)
        same("key bytes", encode_key(message.type, message.key, message.version).hex(), key.hex())
        again = encode_value(message)
        same("value bytes", None if again is None else again.hex(), record["value"])
