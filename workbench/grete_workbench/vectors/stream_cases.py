"""Cases of the coordinator stream: names, messages, serdes, bootstrap, store operations, managers."""

from __future__ import annotations

import json
import re
from typing import Any

from grete.clock import SystemClock
from grete.keyed_log.base import Entry
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.model.ids import JobId
from grete.model.messages import CoordinatorMessage, MessageOrigin
from grete.wire import coordinator_message as codec
from grete.wire import java_json
from grete_workbench.samza import store_key, store_value
from grete_workbench.samza.bootstrap import bootstrap, of_type
from grete_workbench.samza.namespaced_store import NamespacedStore
from grete_workbench.vectors.registry import (
    Case,
    Difference,
    checker,
    has_fields,
    has_op,
    java_utf8,
    result_of,
    same,
    throws,
)

_VALUES: dict[str, list[str]] = {
    "SetConfig": ["value"],
    "SetTaskContainerMapping": ["containerId"],
    "SetContainerHostMapping": ["host", "jmx-url", "jmx-tunneling-url"],
    "SetExecutionEnvContainerIdMapping": ["execution-env-container-id"],
    "SetChangelogMapping": ["Partition"],
    "SetTaskModeMapping": ["taskMode"],
    "SetTaskPartitionMapping": ["taskNames"],
    "SetJobCoordinatorMetadataMessage": ["meta-key"],
}
_TYPES = {
    "SetConfig": "set-config",
    "SetTaskContainerMapping": "set-task-container-assignment",
    "SetContainerHostMapping": "set-container-host-assignment",
    "SetExecutionEnvContainerIdMapping": "set-execution-env-container-id-mapping",
    "SetChangelogMapping": "set-changelog",
    "SetTaskModeMapping": "set-task-mode-assignment",
    "SetTaskPartitionMapping": "set-task-partition-assignment",
    "SetJobCoordinatorMetadataMessage": "set-job-coordinator-metadata",
    "SetMigrationMetaMessage": "set-migration-info",
}


def _is_store_story(case: Case) -> bool:
    steps = case.get("steps")
    return isinstance(steps, list) and all(isinstance(step.get("op"), list) for step in steps)


@checker("coordinator_stream_names", knows=has_fields("job_name", "job_id", "stream"))
def check_name(case: Case) -> None:
    """A stream's name."""
    name = result_of(lambda: stream_name(JobId(case["job_name"], case["job_id"])), case["stream"], "stream")
    same("stream", name, case["stream"])


@checker("coordinator_messages", knows=has_fields("class", "args"))
def check_message(case: Case) -> None:
    """A message written and read back."""
    message = _message(case)
    same("type", message.type, case["type"])
    same("key", message.key, case["key"])
    same("is_delete", message.is_delete, case["is_delete"])
    key = codec.encode_key(message.type, message.key, message.version)
    same("key bytes", key.hex(), case["key_hex"])
    value = codec.encode_value(message)
    same("value bytes", None if value is None else value.hex(), case["value_hex"])
    if "�" not in case["key"] and not _has_surrogate(json.dumps(case["args"])):
        same("read back", codec.decode(key, value), message)


def _has_surrogate(text: str) -> bool:
    return re.search(r"\\ud[89a-f]", text) is not None


def _message(case: Case) -> CoordinatorMessage:
    origin = MessageOrigin(case["source"], case["host"], case["username"], case["timestamp"])
    if not case["class"].startswith("Delete") and case["class"] not in _TYPES:
        raise Difference(
            f"no check for messages of the class {case['class']!r}; known are {', '.join(_TYPES)}"
        )
    name, arguments = case["class"], case["args"]
    if name.startswith("Delete"):
        version = arguments[3] if len(arguments) > 3 else 1
        return CoordinatorMessage(arguments[2], arguments[1], None, origin, version)
    if name == "SetMigrationMetaMessage":
        return CoordinatorMessage(_TYPES[name], "migration-info", {arguments[1]: arguments[2]}, origin)
    texts = (str(a) if isinstance(a, int) else a for a in arguments[2:])
    given = dict(zip(_VALUES[name], texts, strict=False))
    if name == "SetContainerHostMapping":
        given = {field: given.get(field, "") for field in ("jmx-url", "host", "jmx-tunneling-url")}
    return CoordinatorMessage(_TYPES[name], arguments[1], given, origin)


@checker(
    "coordinator_serdes",
    knows=has_op("message_key", "decode_message_key", "decode_kafka_key", "value_serde", "decode_value"),
)
def check_serde(case: Case) -> None:
    """Keys and values of the store's serdes."""
    match case["op"]:
        case "message_key":
            _check_store_key(case)
        case "decode_message_key":
            got = result_of(lambda: list(store_key.decode(case["json"])), case["result"], "message key")
            same("message key", got, case["result"])
        case "decode_kafka_key":
            data = java_utf8(case["key_utf8"])
            got = result_of(lambda: store_key.key_of_stream_key(data), case["result"], "stream key")
            same("stream key", got, case["result"])
        case "value_serde":
            _check_value_serde(case)
        case "decode_value":
            data = java_utf8(case["value_utf8"])
            got = result_of(lambda: store_value.decode(case["type"], data), case["result"], "value")
            same("value", got, case["result"])
        case op:
            raise Difference(f"unknown op {op!r}")


def _check_store_key(case: Case) -> None:
    namespace, key = case["namespace"], case["key"]
    same("json", store_key.encode(namespace, key), case["json"])
    if throws(case.get("back_key")):
        result_of(lambda: store_key.decode(case["json"]), case["back_key"], "back")
        return
    same("back", list(store_key.decode(case["json"])), [case["back_namespace"], case["back_key"]])
    data = java_json.dumps([1, namespace, key])
    same("stream key", data.decode(), case["kafka_key_utf8"])
    same("stream key decoded", store_key.key_of_stream_key(data), case["kafka_key_decoded"])


def _check_value_serde(case: Case) -> None:
    expected = case["result"]

    def compute() -> str:
        meta = expected.get("meta", {"source": "s", "host": "h", "username": "u", "timestamp": 1})
        origin = MessageOrigin(meta["source"], meta["host"], meta["username"], meta["timestamp"])
        return store_value.encode(case["type"], case["value"], origin).decode()

    got = result_of(compute, expected, "value")
    if got is not expected:
        same("value", got, expected["value_utf8"])
        same("decoded", store_value.decode(case["type"], got.encode()), expected["decoded"])


def _log(records: list[Any]) -> MemoryKeyedLog:
    log = MemoryKeyedLog(SystemClock())
    log.append([Entry(java_utf8(key), None if value is None else java_utf8(value)) for key, value in records])
    return log


@checker("coordinator_bootstrap", knows=has_fields("records", "result"))
def check_bootstrap(case: Case) -> None:
    """A log as the real consumer sees it."""
    found = result_of(lambda: bootstrap(_log(case["records"]).read()), case["result"], "bootstrap")
    if found is case["result"]:
        return
    messages, config = found
    for message_type, expected in case["result"]["streams"].items():
        got = [
            [[m.version, m.type, m.key], None if m.values is None else dict(m.values), m.is_delete]
            for m in of_type(messages, message_type)
        ]
        same(f"stream {message_type}", got, expected)
    same("config", config, case["result"]["config"])
    if all(key.startswith("[1,") for key, _ in case["records"]):
        stream = CoordinatorStream(_log(case["records"]), SystemClock(), source="check")
        same("config of our own reader", stream.config(), case["result"]["config"])


@checker("coordinator_store_ops", knows=lambda case: "op" not in case and _is_store_story(case))
def check_store_ops(case: Case) -> None:
    """Operations of namespaced stores over one log."""
    log = MemoryKeyedLog(SystemClock())
    for number, step in enumerate(case["steps"]):
        before = log.end()
        got = result_of(lambda step=step: _operate(log, step["op"]), step["result"], f"step {number}")  # type: ignore[misc]
        same(f"step {number} {step['op']}", got, step["result"])
        if step["op"][0] != "raw":
            wrote = [
                [r.key.decode(), None if r.value is None else r.value.decode()] for r in log.read(before)
            ]
            same(f"step {number} wrote", wrote, step["wrote"])


def _operate(log: MemoryKeyedLog, operation: list[Any]) -> Any:
    name, *arguments = operation
    if name == "raw":
        key, value = arguments
        log.append([Entry(java_utf8(key), None if value is None else java_utf8(value))])
        return None
    store = NamespacedStore(log, arguments[0])
    match name:
        case "put":
            store.put(arguments[1], java_utf8(arguments[2]))
        case "putAll":
            pairs = arguments[1:]
            store.put_all({k: java_utf8(v) for k, v in zip(pairs[::2], pairs[1::2], strict=True)})
        case "get":
            value = store.get(arguments[1])
            return None if value is None else value.decode()
        case "all":
            return [[key, value.decode()] for key, value in sorted(store.all().items())]
        case "delete":
            store.delete(arguments[1])
        case _:
            raise Difference(f"unknown operation {name!r}")
    return None
