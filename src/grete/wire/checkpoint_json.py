"""Checkpoint bytes of Samza 1.8.0: CheckpointV1, CheckpointV2, the key of the checkpoint log, and their parts.

CheckpointV1 maps a label per SSP to four strings; the label is for people, the reader takes the inner fields and so
loses the key bucket. CheckpointV2 carries an id, offsets by `system.stream.partition`, and markers by state back end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grete.errors import WireError
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.labels import ssp_label
from grete.wire import java_json
from grete.wire.java_hash import JavaHashMap, ssp_hash
from grete.wire.scala_hash import immutable_map_order, mutable_map_order

_GROUPER = "systemstreampartition-grouper-factory"
_LONG_MAX = 2**63 - 1
Offsets = Mapping[SystemStreamPartition, str]
Markers = Mapping[str, Mapping[str, str]]


def encode_v1(offsets: Offsets) -> bytes:
    """CheckpointV1Serde.toBytes; labels in the order of a HashMap made for their number."""
    by_label = {ssp_label(ssp): (ssp, offset) for ssp, offset in offsets.items()}
    labels: JavaHashMap[str] = JavaHashMap(len(by_label))
    labels.put_each(by_label)
    return java_json.dumps({label: _fields(*by_label[label]) for label in labels})


def _fields(ssp: SystemStreamPartition, offset: str) -> dict[str, str]:
    return {"system": ssp.system, "partition": str(ssp.partition), "offset": offset, "stream": ssp.stream}


def decode_v1(data: bytes) -> dict[SystemStreamPartition, str]:
    """The offsets of a CheckpointV1.

    Raises:
        WireError: not a CheckpointV1 (the real serde logs it and returns null).
    """
    document = java_json.loads(data)
    try:
        document = {label: document[label] for label in JavaHashMap.of(document)}
        read = {
            SystemStreamPartition(
                _text(one["system"]), _text(one["stream"]), _number(one["partition"])
            ): _text(one["offset"])
            for one in document.values()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"not a CheckpointV1: {error!r}") from error
    return {ssp: read[ssp] for ssp in immutable_map_order(mutable_map_order(list(read), ssp_hash), ssp_hash)}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _number(value: Any) -> int:
    if not _text(value).isdigit():
        raise TypeError(f"{value!r} is not a partition")
    return int(value)


@dataclass(frozen=True, slots=True)
class CheckpointV2:
    """A CheckpointV2 as read."""

    id: str
    offsets: Offsets
    markers: Markers


def encode_v2(checkpoint_id: str, offsets: Offsets, markers: Markers) -> bytes:
    """CheckpointV2Serde.toBytes.

    Raises:
        WireError: an offset is None, or the id is not `millis-nanos`.
    """
    check_id(checkpoint_id)
    if any(offset is None for offset in offsets.values()):
        raise WireError("a CheckpointV2 has no null offsets")
    return java_json.dumps(
        {
            "checkpoint-id": checkpoint_id,
            "input-offsets": {str(ssp): offset for ssp, offset in offsets.items()},
            "state-checkpoint-markers": {name: dict(of) for name, of in markers.items()},
            "version": 2,
        }
    )


def decode_v2(data: bytes) -> CheckpointV2:
    """Read it.

    Raises:
        WireError: a field is missing or not of its form.
    """
    document = java_json.loads(data)
    try:
        offsets = {SystemStreamPartition.parse(key): o for key, o in document["input-offsets"].items()}
        return CheckpointV2(
            check_id(document["checkpoint-id"]), offsets, document["state-checkpoint-markers"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"Exception while deserializing checkpoint: {error!r}") from error


def check_id(text: str) -> str:
    """A CheckpointId, `millis-nanos`, as the original would write it again: without leading zeros or a third part.

    Raises:
        WireError: it is not two Java longs.
    """
    parts = text.split("-")
    if len(parts) < 2 or any(not p.isdigit() or int(p) > _LONG_MAX for p in parts[:2]):
        raise WireError(f"Could not deserialize CheckpointId: {text}")
    return f"{int(parts[0])}-{int(parts[1])}"


def encode_log_key(grouper: str, task: str, kind: str) -> bytes:
    """KafkaCheckpointLogKeySerde.toBytes; `kind` is `checkpoint` or `checkpoint-v2`.

    Raises:
        WireError: the grouper factory is empty.
    """
    if not grouper:
        raise WireError("Empty grouper factory class provided")
    return java_json.dumps({_GROUPER: grouper, "taskName": task, "type": kind})


def decode_log_key(data: bytes) -> tuple[str, TaskName, str]:
    """(grouper factory, task, type).

    Raises:
        WireError: not such a key.
    """
    document = java_json.loads(data)
    try:
        return _text(document[_GROUPER]), TaskName(_text(document["taskName"])), _text(document["type"])
    except (KeyError, TypeError) as error:
        raise WireError(f"Exception in de-serializing checkpoint bytes: {error!r}") from error


def encode_marker(ssp: SystemStreamPartition, offset: str | None) -> str:
    """KafkaStateCheckpointMarker as JSON: where a changelog stood."""
    where = {
        "system": ssp.system,
        "partition": ssp.partition,
        "stream": ssp.stream,
        "keyBucket": ssp.key_bucket,
    }
    return java_json.dumps({"version": 1, "changelog-ssp": where, "changelog-offset": offset}).decode()


def parse_changelog_offset(text: str) -> tuple[str, str | None]:
    """KafkaChangelogSSPOffset: (checkpoint id, offset); the text `null` is no offset.

    Raises:
        WireError: not `id:offset`.
    """
    head, colon, offset = text.partition(":")
    if not colon or not offset or ":" in offset:
        raise WireError(f"Invalid checkpointed changelog offset: {text}")
    return check_id(head), None if offset == "null" else offset
