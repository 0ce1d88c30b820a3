"""Checkpoint bytes of Samza 1.8.0: CheckpointV1, CheckpointV2 and the key of the checkpoint log.

CheckpointV1 maps a label per SSP to four strings; the label is for people, the reader takes the inner fields.
CheckpointV2 carries an id, offsets by `system.stream.partition`, and markers per state back end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from grete.errors import WireError
from grete.model.ids import SystemStreamPartition, TaskName

_GROUPER = "systemstreampartition-grouper-factory"
Markers = Mapping[str, Mapping[str, str]]


def encode_v1(offsets: Mapping[SystemStreamPartition, str]) -> bytes:
    """CheckpointV1Serde.toBytes."""
    return _dumps(
        {
            f"SystemStreamPartition [{ssp.system}, {ssp.stream}, {ssp.partition}]": {
                "system": ssp.system,
                "partition": str(ssp.partition),
                "offset": offset,
                "stream": ssp.stream,
            }
            for ssp, offset in offsets.items()
        }
    )


def encode_v2(checkpoint_id: str, offsets: Mapping[SystemStreamPartition, str], markers: Markers) -> bytes:
    """CheckpointV2Serde.toBytes."""
    return _dumps(
        {
            "checkpoint-id": checkpoint_id,
            "input-offsets": {str(ssp): offset for ssp, offset in offsets.items()},
            "state-checkpoint-markers": markers,
            "version": 2,
        }
    )


def encode_log_key(grouper: str, task: str, kind: str) -> bytes:
    """KafkaCheckpointLogKeySerde.toBytes; `kind` is `checkpoint` or `checkpoint-v2`."""
    return _dumps({_GROUPER: grouper, "taskName": task, "type": kind})


def decode_log_key(data: bytes) -> tuple[str, TaskName, str]:
    """(grouper factory, task, type).

    Raises:
        WireError: not such a key.
    """
    document = _loads(data, "a checkpoint log key")
    try:
        return str(document[_GROUPER]), TaskName(str(document["taskName"])), str(document["type"])
    except (KeyError, TypeError) as error:
        raise WireError(f"not a checkpoint log key: {error!r}") from error


def decode_v1(data: bytes) -> dict[SystemStreamPartition, str]:
    """The offsets of a CheckpointV1.

    Raises:
        WireError: not a CheckpointV1 (the real serde returns null there).
    """
    document = _loads(data, "a CheckpointV1")
    try:
        return {
            SystemStreamPartition(one["system"], one["stream"], int(one["partition"])): one["offset"]
            for one in document.values()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not a CheckpointV1: {error!r}") from error


def _dumps(document: Any) -> bytes:
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError as error:
        raise WireError(f"cannot be written as JSON: {error}") from error


def _loads(data: bytes, what: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise WireError(f"not {what}: {error}") from error
