"""Checkpoint bytes of Samza 1.8.0: CheckpointV1, CheckpointV2, the key of the checkpoint log, and their parts.

CheckpointV1 maps a label per SSP to four strings; the label is for people, the reader takes the inner fields and so
loses the key bucket. CheckpointV2 carries an id, offsets by `system.stream.partition`, and markers by state back end.

Both say where the task's changelogs stood when Samza committed: V2 in the markers of its Kafka back end, V1 among the
offsets, under the changelog's SSP, as `checkpoint id:offset`. Readers get these apart from the inputs' offsets, as
*changelog marks*.

A job writes the checkpoints of the same SSPs again and again, so everything but the offsets is made once
(`_V1Template`): 1,000 tasks cost a few milliseconds a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from grete.config.java_values import NumberFormatError, parse_int, parse_long
from grete.errors import WireError
from grete.model.ids import SystemStreamPartition, TaskName, ssp_label
from grete.wire import jackson_bytes, java_json
from grete.wire.java_hash import JavaHashMap, ssp_hash
from grete.wire.scala_hash import immutable_map_order, mutable_map_order

_GROUPER = "systemstreampartition-grouper-factory"
_KAFKA_STATE = "org.apache.samza.storage.KafkaChangelogStateBackendFactory"
_TEMPLATES = 1 << 16
Offsets = Mapping[SystemStreamPartition, str]
NullableOffsets = Mapping[SystemStreamPartition, str] | Mapping[SystemStreamPartition, str | None]
Markers = Mapping[str, Mapping[str, str | None]]
ChangelogMarks = Mapping[SystemStreamPartition, str | None]
"""The last offset of each changelog partition at a commit of Samza's; None: nothing was in it."""


@dataclass(frozen=True, slots=True)
class _V1Template:
    """CheckpointV1 of some SSPs without their offsets: `parts[i]` goes before the offset of `ssps[i]`."""

    ssps: tuple[SystemStreamPartition, ...]
    parts: tuple[bytes, ...]
    end: bytes


@lru_cache(maxsize=_TEMPLATES)
def _v1_template(ssps: tuple[SystemStreamPartition, ...]) -> _V1Template:
    """Labels in the order of a HashMap made for their number."""
    by_label = {ssp_label(ssp): ssp for ssp in ssps}
    labels: JavaHashMap[str] = JavaHashMap(len(by_label))
    labels.put_each(by_label)
    ordered = [by_label[label] for label in labels]
    parts, before = [], b"{"
    for ssp in ordered:
        label, fields = jackson_bytes.dumps(ssp_label(ssp)), _v1_fields(ssp)
        parts.append(before + label + b":" + fields[0])
        before = fields[1] + b","
    return _V1Template(tuple(ordered), tuple(parts), before.removesuffix(b",") + b"}")


def _v1_fields(ssp: SystemStreamPartition) -> tuple[bytes, bytes]:
    """The text before and after the offset."""
    head = jackson_bytes.dumps({"system": ssp.system, "partition": str(ssp.partition)})
    tail = jackson_bytes.dumps({"stream": ssp.stream})
    return head[:-1] + b',"offset":', b"," + tail[1:]


def encode_v1(offsets: NullableOffsets) -> bytes:
    """CheckpointV1Serde.toBytes."""
    template = _v1_template(tuple(offsets))
    written = b"".join(
        part + jackson_bytes.dumps(offsets[ssp])
        for part, ssp in zip(template.parts, template.ssps, strict=True)
    )
    return written + template.end


def decode_v1(data: bytes) -> dict[SystemStreamPartition, str | None]:
    """The offsets of a CheckpointV1, nulls among them, in the order in which the original iterates over them.

    Raises:
        WireError: not a CheckpointV1 (the real serde logs it and returns null).
    """
    document = _object(jackson_bytes.loads(data), "CheckpointV1")
    read = _v1_offsets(document[label] for label in JavaHashMap.of(document))
    return {ssp: read[ssp] for ssp in immutable_map_order(mutable_map_order(list(read), ssp_hash), ssp_hash)}


@dataclass(frozen=True, slots=True)
class CheckpointV1:
    """A CheckpointV1 as read: the inputs' offsets that are not null (S2-83), and Samza's changelog marks."""

    offsets: Offsets
    marks: ChangelogMarks


def read_v1(data: bytes) -> CheckpointV1:
    """Read it, in no particular order and several times as fast as `decode_v1`.

    Raises:
        WireError: not a CheckpointV1.
    """
    offsets: dict[SystemStreamPartition, str] = {}
    marks: dict[SystemStreamPartition, str | None] = {}
    for ssp, offset in _v1_offsets(_object(_fast_loads(data), "CheckpointV1").values()).items():
        if offset is None:
            continue
        if ":" not in offset:
            offsets[ssp] = offset
            continue
        try:
            marks[ssp] = parse_changelog_offset(offset)[1]
        except WireError:
            offsets[ssp] = offset  # a system whose offsets have a colon
    return CheckpointV1(offsets, marks)


def _fast_loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return jackson_bytes.loads(
            data
        )  # text after the document, escaped lone surrogates: as Jackson takes them


def _v1_offsets(entries: Any) -> dict[SystemStreamPartition, str | None]:
    try:
        return {
            SystemStreamPartition(_text(one["system"]), _text(one["stream"]), _partition(one["partition"])): (
                None if one["offset"] is None else _text(one["offset"])
            )
            for one in entries
        }
    except (KeyError, TypeError, AttributeError, NumberFormatError) as error:
        raise WireError(f"not a CheckpointV1: {error!r}") from error


def _partition(value: Any) -> int:
    text = _text(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else parse_int(text)


def _object(document: Any, what: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise WireError(f"a {what} is a JSON object, got {type(document).__name__}")
    return document


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


@dataclass(frozen=True, slots=True)
class CheckpointV2:
    """A CheckpointV2 as read. `id` is None where the writer left it out."""

    id: str | None
    offsets: Offsets
    markers: Markers


@lru_cache(maxsize=_TEMPLATES)
def _map_key(ssp: SystemStreamPartition) -> str:
    return str(ssp)


def encode_v2(checkpoint_id: str | None, offsets: Offsets, markers: Markers) -> bytes:
    """CheckpointV2Serde.toBytes.

    Raises:
        WireError: an offset is None, or the id is not `millis-nanos`.
    """
    if checkpoint_id is not None:
        check_id(checkpoint_id)
    if any(offset is None for offset in offsets.values()):
        raise WireError("a CheckpointV2 has no null offsets")
    return jackson_bytes.dumps(
        {
            "checkpoint-id": checkpoint_id,
            "input-offsets": {_map_key(ssp): offset for ssp, offset in offsets.items()},
            "state-checkpoint-markers": {name: dict(of) for name, of in markers.items()},
            "version": 2,
        }
    )


def decode_v2(data: bytes) -> CheckpointV2:
    """Read it; a missing id is None, other fields than its own are ignored.

    Raises:
        WireError: offsets or markers are missing or not of their form.
    """
    document = _object(jackson_bytes.loads(data), "CheckpointV2")
    try:
        offsets = {
            SystemStreamPartition.parse(key): _no_null(jackson_bytes.as_text(offset))
            for key, offset in document["input-offsets"].items()
        }
        markers = {
            name: {store: jackson_bytes.as_text(marker) for store, marker in of.items()}
            for name, of in document["state-checkpoint-markers"].items()
        }
        given = jackson_bytes.as_text(document.get("checkpoint-id"))
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"Exception while deserializing checkpoint: {error!r}") from error
    return CheckpointV2(None if given is None else check_id(given), offsets, markers)


def _no_null(offset: str | None) -> str:
    if offset is None:
        raise WireError("a CheckpointV2 has no null offsets")
    return offset


@lru_cache(maxsize=64)
def check_id(text: str) -> str:
    """A CheckpointId, `millis-nanos`, as the original would write it again: without leading zeros or a third part.

    Raises:
        WireError: it is not two Java longs.
    """
    parts = text.split("-")
    try:
        return f"{parse_long(parts[0])}-{parse_long(parts[1])}"
    except (NumberFormatError, IndexError) as error:
        raise WireError(f"Could not deserialize CheckpointId: {text}") from error


@lru_cache(maxsize=_TEMPLATES)
def encode_log_key(grouper: str, task: str, kind: str) -> bytes:
    """KafkaCheckpointLogKeySerde.toBytes; `kind` is `checkpoint` or `checkpoint-v2`.

    Raises:
        WireError: the grouper factory is empty.
    """
    if not grouper:
        raise WireError("Empty grouper factory class provided")
    return jackson_bytes.dumps({_GROUPER: grouper, "taskName": task, "type": kind})


def decode_log_key(data: bytes) -> tuple[str, TaskName | None, str]:
    """(grouper factory, task, type); the original takes a key without a task.

    Raises:
        WireError: not such a key.
    """
    document = _object(_fast_loads(data), "checkpoint log key")
    try:
        grouper, kind = _text(document[_GROUPER]), _text(document["type"])
        task = document.get("taskName")
        if not grouper:
            raise WireError("Empty grouper factory class provided")
        return grouper, None if task is None else TaskName(_text(task)), kind
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


def marks_of(checkpoint: CheckpointV2) -> dict[SystemStreamPartition, str | None]:
    """The changelog marks among the markers; those of other back ends (blob stores) are none.

    Raises:
        WireError: a marker of the Kafka back end is none.
    """
    return dict(_parse_marker(marker) for marker in checkpoint.markers.get(_KAFKA_STATE, {}).values())


def _parse_marker(text: str | None) -> tuple[SystemStreamPartition, str | None]:
    """KafkaStateCheckpointMarker: (changelog partition, its last offset)."""
    try:
        document = _object(jackson_bytes.loads(_text(text).encode()), "KafkaStateCheckpointMarker")
        where, offset = document["changelog-ssp"], jackson_bytes.as_text(document["changelog-offset"])
        ssp = SystemStreamPartition(_text(where["system"]), _text(where["stream"]), int(where["partition"]))
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"Could not deserialize KafkaStateCheckpointMarker: {text}") from error
    return ssp, offset if offset is not None and offset.strip() else None


def parse_changelog_offset(text: str) -> tuple[str, str | None]:
    """KafkaChangelogSSPOffset: (checkpoint id, offset); the text `null` is no offset.

    Raises:
        WireError: not `id:offset`.
    """
    head, colon, rest = text.partition(":")
    offset = rest.rstrip(":")  # Java's split drops empty parts at the end
    if not colon or not offset or ":" in offset:
        raise WireError(f"Invalid checkpointed changelog offset: {text}")
    return check_id(head), None if offset == "null" else offset
