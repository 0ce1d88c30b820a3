"""Startpoints and their fan-outs as JSON (StartpointObjectMapper of Samza 1.8.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grete.errors import WireError
from grete.model.ids import SystemStreamPartition
from grete.model.startpoint import Startpoint, StartpointKind
from grete.wire import java_json
from grete.wire.java_hash import JavaHashMap


def document(startpoint: Startpoint) -> dict[str, Any]:
    """A startpoint as a JSON-able document."""
    made: dict[str, Any] = {"@type": startpoint.kind.value, "creationTimestamp": startpoint.created_ms}
    if startpoint.kind is StartpointKind.SPECIFIC:
        made["specificOffset"] = startpoint.offset
    elif startpoint.kind is StartpointKind.TIMESTAMP:
        made["timestampOffset"] = startpoint.timestamp_ms
    return made


def encode(startpoint: Startpoint) -> bytes:
    """The bare JSON that is the record's value."""
    return java_json.dumps(document(startpoint))


def decode(data: bytes) -> Startpoint:
    """Read one; numbers may be texts and the other way round, as Jackson takes them.

    Raises:
        WireError: an unknown type or a missing field.
    """
    return from_document(java_json.loads(data))


def from_document(read: Any) -> Startpoint:
    """From the JSON-able document.

    Raises:
        WireError: an unknown type or a missing field.
    """
    try:
        kind = StartpointKind(read["@type"])
        offset = read.get("specificOffset")
        return Startpoint(
            kind,
            int(read["creationTimestamp"]),
            None if offset is None else str(offset),
            int(read.get("timestampOffset", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not a startpoint: {error}") from error


FanOut = Mapping[SystemStreamPartition, Startpoint]


def encode_fan_out(timestamp_ms: int, startpoints: FanOut) -> bytes:
    """StartpointFanOutPerTask: a task's startpoints, in HashMap order."""
    return java_json.dumps(
        {
            "timestamp": timestamp_ms,
            "fanOuts": {str(ssp): document(startpoints[ssp]) for ssp in JavaHashMap.of(startpoints)},
        }
    )


def decode_fan_out(data: bytes) -> tuple[int, dict[SystemStreamPartition, Startpoint]]:
    """(timestamp, startpoints by SSP).

    Raises:
        WireError: not a fan-out.
    """
    read = java_json.loads(data)
    try:
        found = {SystemStreamPartition.parse(k): from_document(one) for k, one in read["fanOuts"].items()}
        return int(read["timestamp"]), found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not a startpoint fan-out: {error}") from error
