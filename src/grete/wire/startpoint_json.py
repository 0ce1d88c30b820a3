"""Startpoints and their fan-outs as JSON (StartpointObjectMapper of Samza 1.8.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grete.config.java_values import NumberFormatError, parse_long
from grete.errors import WireError
from grete.model.ids import SystemStreamPartition
from grete.model.startpoint import Startpoint, StartpointKind
from grete.wire import jackson_bytes
from grete.wire.java_hash import JavaHashMap

_TYPE, _CREATED = "@type", "creationTimestamp"
_OWN_FIELD = {StartpointKind.SPECIFIC: "specificOffset", StartpointKind.TIMESTAMP: "timestampOffset"}


def document(startpoint: Startpoint) -> dict[str, Any]:
    """A startpoint as a JSON-able document."""
    made: dict[str, Any] = {_TYPE: startpoint.kind.value, _CREATED: startpoint.created_ms}
    if startpoint.kind is StartpointKind.SPECIFIC:
        made["specificOffset"] = startpoint.offset
    elif startpoint.kind is StartpointKind.TIMESTAMP:
        made["timestampOffset"] = startpoint.timestamp_ms
    return made


def encode(startpoint: Startpoint) -> bytes:
    """The bare JSON that is the record's value."""
    return jackson_bytes.dumps(document(startpoint))


def decode(data: bytes) -> Startpoint:
    """Read one; numbers may be texts and the other way round, as Jackson takes them.

    Raises:
        WireError: an unknown type, an unknown field, or no time of creation.
    """
    return from_document(jackson_bytes.loads(data))


def from_document(read: Any) -> Startpoint:
    """From the JSON-able document. The original dates one without `creationTimestamp` to now; that is refused here.

    Raises:
        WireError: see `decode`.
    """
    try:
        kind = StartpointKind(read[_TYPE])
        unknown = set(read) - {_TYPE, _CREATED, _OWN_FIELD.get(kind)}
        if unknown:
            raise WireError(f"a {kind} has no field {min(unknown)!r}")
        return Startpoint(
            kind,
            _long(read[_CREATED]) or 0,
            jackson_bytes.as_text(read.get("specificOffset")),
            _long(read.get("timestampOffset")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not a startpoint: {error!r}") from error


def _long(value: Any) -> int | None:
    """A `Long` as Jackson coerces it: a blank text is null, a fraction is cut off.

    Raises:
        WireError: neither a number nor a text of one, or out of range.
    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_long(value.strip()) if value.strip() else None
        except NumberFormatError as error:
            raise WireError(f"not a number: {value!r}") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError(f"a number belongs where {value!r} stands")
    if not -(2**63) <= value < 2**63:
        raise WireError(f"{value!r} is no long")
    return int(value)


FanOut = Mapping[SystemStreamPartition, Startpoint]


def encode_fan_out(timestamp_ms: int, startpoints: FanOut) -> bytes:
    """StartpointFanOutPerTask: a task's startpoints, in HashMap order."""
    return jackson_bytes.dumps(
        {
            "timestamp": timestamp_ms,
            "fanOuts": {str(ssp): document(startpoints[ssp]) for ssp in JavaHashMap.of(startpoints)},
        }
    )


def decode_fan_out(data: bytes) -> tuple[int, dict[SystemStreamPartition, Startpoint]]:
    """(timestamp, startpoints by SSP); without `fanOuts` there are none.

    Raises:
        WireError: not a fan-out.
    """
    read = jackson_bytes.loads(data)
    try:
        if set(read) - {"timestamp", "fanOuts"}:
            raise WireError("a startpoint fan-out has no other fields than timestamp and fanOuts")
        timestamp_ms = None if isinstance(read["timestamp"], str) else _long(read["timestamp"])
        if timestamp_ms is None:
            raise WireError(f"the time of a fan-out is a number, got {read['timestamp']!r}")
        found = {
            SystemStreamPartition.parse(key): from_document(one)
            for key, one in read.get("fanOuts", {}).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not a startpoint fan-out: {error!r}") from error
    return timestamp_ms, found
