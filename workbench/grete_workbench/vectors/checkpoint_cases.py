"""Cases of checkpoints and startpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from grete.clock import SystemClock
from grete.errors import WireError
from grete.keyed_log.base import Record
from grete.keyed_log.memory import MemoryKeyedLog
from grete.model.ids import SystemStreamPartition, TaskName, ssp_label
from grete.model.startpoint import Startpoint, StartpointKind
from grete.wire import checkpoint_json, startpoint_json
from grete_workbench.samza.startpoint_manager import StartpointManager
from grete_workbench.vectors.hash_cases import ssp_of, ssp_parts
from grete_workbench.vectors.registry import Case, Difference, checker, has_op, java_utf8, result_of, same

_CHECKPOINT_OPS = (
    "CheckpointV1",
    "CheckpointV2",
    "decode CheckpointV1",
    "decode CheckpointV2",
    "KafkaCheckpointLogKey",
    "decode KafkaCheckpointLogKey",
    "KafkaStateCheckpointMarker",
    "KafkaChangelogSSPOffset.fromString",
    "CheckpointId.deserialize",
)


@checker("checkpoints", knows=has_op(*_CHECKPOINT_OPS))
def check_checkpoint(case: Case) -> None:
    """Checkpoints of both versions, log keys, markers and ids."""
    checks: dict[str, Callable[[Case], None]] = {
        "CheckpointV1": _check_v1,
        "CheckpointV2": _check_v2,
        "decode CheckpointV1": _check_decode_v1,
        "KafkaCheckpointLogKey": _check_log_key,
        "KafkaStateCheckpointMarker": _check_marker,
    }
    if case["op"] in checks:
        checks[case["op"]](case)
        return
    expected = case["result"]
    compute: Callable[[], Any]
    match case["op"]:
        case "decode CheckpointV2":
            compute = lambda: _recoded_v2(case["utf8"])  # noqa: E731
        case "decode KafkaCheckpointLogKey":
            compute = lambda: _key_text(java_utf8(case["utf8"]))  # noqa: E731
        case "KafkaChangelogSSPOffset.fromString":
            compute = lambda: [*checkpoint_json.parse_changelog_offset(case["input"]), case["input"]]  # noqa: E731
        case "CheckpointId.deserialize":
            compute = lambda: checkpoint_json.check_id(case["input"])  # noqa: E731
        case op:
            raise Difference(f"unknown op {op!r}")
    same("result", result_of(compute, expected, "result"), expected)


def _offsets(pairs: list[Any]) -> dict[SystemStreamPartition, str]:
    return {ssp_of(parts): offset for parts, offset in pairs}


def _check_v1(case: Case) -> None:
    offsets, expected = _offsets(case["offsets_in_insertion_order"]), case["result"]
    data = result_of(lambda: checkpoint_json.encode_v1(offsets), expected, "bytes")
    if data is expected:
        return
    same("text", data.decode(), expected["utf8"])
    same("bytes", data.hex(), expected.get("hex") or data.hex())
    back = checkpoint_json.decode_v1(data)
    same("round trip", back == offsets, expected["roundtrip_equal"])
    same("reserialised", checkpoint_json.encode_v1(back).decode(), expected["reserialized"])


def _check_v2(case: Case) -> None:
    offsets, expected = _offsets(case["input_offsets"]), case["result"]
    data = result_of(
        lambda: checkpoint_json.encode_v2(case["checkpoint_id"], offsets, case["markers"]), expected, "bytes"
    )
    if data is not expected:
        same("text", data.decode(), expected["utf8"])
        same("bytes", data.hex(), expected.get("hex") or data.hex())


def _check_decode_v1(case: Case) -> None:
    try:
        read = checkpoint_json.decode_v1(java_utf8(case["utf8"]))
        got: Any = sorted([ssp_parts(ssp), offset] for ssp, offset in read.items())
    except WireError:
        got = None
    same("result", got, None if case["result"] is None else sorted(case["result"]))


def _recoded_v2(text: str) -> str:
    read = checkpoint_json.decode_v2(java_utf8(text))
    return checkpoint_json.encode_v2(read.id, read.offsets, read.markers).decode()


def _key_text(data: bytes) -> str:
    grouper, task, kind = checkpoint_json.decode_log_key(data)
    shown = "null" if task is None else task
    return f"KafkaCheckpointLogKey[factoryClass: {grouper}, taskName: {shown}, type: {kind}]"


def _check_log_key(case: Case) -> None:
    expected = case["result"]
    data = result_of(
        lambda: checkpoint_json.encode_log_key(case["grouper"], case["task"], case["type"]), expected, "key"
    )
    if data is not expected:
        same("text", data.decode(), expected["utf8"])
        same("bytes", data.hex(), expected["hex"])
        same("back", _key_text(data), expected["back"])


def _check_marker(case: Case) -> None:
    system, stream, partition, offset = case["args"]
    ssp = SystemStreamPartition(system, stream, int(partition))
    encoded = result_of(lambda: checkpoint_json.encode_marker(ssp, offset), case["result"], "json")
    if encoded is case["result"]:
        return
    same("json", encoded, case["result"]["json"])
    shown = "null" if offset is None else offset
    same("toString", f"{system},{stream},{partition},{shown}", case["result"]["toString"])


@checker("startpoints", knows=has_op("startpoint", "decode startpoint", "fan-out object", "manager"))
def check_startpoint(case: Case) -> None:
    """Startpoints, fan-outs, and the manager's stories."""
    match case["op"]:
        case "startpoint":
            startpoint = _startpoint(case["kind"], case["arg"], case["creation"])
            data = startpoint_json.encode(startpoint)
            same("bytes", data.hex(), case["hex"])
            back = result_of(lambda: startpoint_json.decode(data), case.get("back"), "read back")
            if back is not case.get("back"):
                same("read back", back == startpoint, case.get("roundtrip_equal", True))
        case "decode startpoint":
            got = result_of(
                lambda: startpoint_json.encode(startpoint_json.decode(java_utf8(case["utf8"]))).decode(),
                case["result"],
                "startpoint",
            )
            same("startpoint", got, case["result"])
        case "fan-out object":
            entries = {
                ssp_of(parts): startpoint_json.decode(java_utf8(text))
                for parts, text in case["entries_in_insertion_order"]
            }
            data = startpoint_json.encode_fan_out(case["timestamp"], entries)
            same("json", data.decode(), case["json"])
            same("read back", startpoint_json.decode_fan_out(data), (case["timestamp"], entries))
        case "manager":
            _check_story(case)
        case op:
            raise Difference(f"unknown op {op!r}")


def _startpoint(kind: str, argument: Any, created_ms: int) -> Startpoint:
    known = [of.value.removeprefix("Startpoint") for of in StartpointKind]
    if kind not in known:
        raise Difference(f"no check for startpoints of the kind {kind!r}; known are {', '.join(known)}")
    of = StartpointKind(f"Startpoint{kind}")
    if of is StartpointKind.TIMESTAMP:
        return Startpoint(of, created_ms, None, int(argument))
    return Startpoint(of, created_ms, argument if of is StartpointKind.SPECIFIC else None)


def _check_story(case: Case) -> None:
    log = MemoryKeyedLog(SystemClock())
    manager = StartpointManager(log)
    now_ms = 0
    for number, step in enumerate(case["steps"]):
        before, name = log.end(), f"step {number} {step['do']}"
        if step["do"] == "write":
            created_ms = json.loads(step["value_utf8"])["creationTimestamp"]
            now_ms = max(now_ms, created_ms - step["creation_minus_now_ms"])
            task = None if step["task"] is None else TaskName(step["task"])
            specific = Startpoint(StartpointKind.SPECIFIC, created_ms, step["specific"])
            manager.write(ssp_of(step["ssp"]), task, specific)
            record = next(log.read(before))
            same(name, [record.key.decode(), _text(record)], [step["key_utf8"], step["value_utf8"]])
            continue
        _operate(manager, step, now_ms, name)
        expected = step.get("wrote_unordered", step.get("wrote"))
        wrote = [[record.key.decode(), _without_time(_text(record))] for record in log.read(before)]
        same(name, sorted(wrote, key=str), sorted(([k, _without_time(v)] for k, v in expected), key=str))


def _operate(manager: StartpointManager, step: dict[str, Any], now_ms: int, name: str) -> None:
    match step["do"]:
        case "fanOut":
            tasks = {TaskName(task): [ssp_of(parts) for parts in ssps] for task, ssps in step["tasks"]}
            fan_outs = manager.fan_out(tasks, now_ms)
            shown = {
                str(task): {ssp_label(ssp): startpoint.offset for ssp, startpoint in found.items()}
                for task, found in fan_outs.items()
            }
            same(f"{name} result", shown, step["result_specific_offsets"])
        case "removeFanOutForTaskSSPs":
            manager.remove_fan_out(TaskName(step["task"]), [ssp_of(step["ssp"])])
        case "removeAllFanOuts":
            manager.remove_all_fan_outs()
        case operation:
            raise Difference(f"unknown step {operation!r}")


def _text(record: Record) -> str | None:
    return None if record.value is None else record.value.decode()


def _without_time(text: str | None) -> Any:
    """A fan-out without the moment at which it was made; the rest to the letter."""
    if text is None or '"fanOuts"' not in text:
        return text
    return text.partition(',"fanOuts":')[2]
