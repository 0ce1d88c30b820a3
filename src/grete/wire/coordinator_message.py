"""Coordinator stream messages: bytes of key and value (Samza's CoordinatorStreamMessage over JsonSerde).

Key: `[1,"type","key"]`, compact, since compaction compares bytes. Value: `host, source, values, username,
timestamp` in this order; a tombstone has no value. Readers take what older writers wrote: the version as a string,
`partition` for `Partition`, `hostname` for `host`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from grete.errors import WireError
from grete.model.messages import (
    SET_CHANGELOG,
    SET_CONTAINER_HOST,
    VALUE_FIELDS,
    CoordinatorMessage,
    MessageOrigin,
)
from grete.wire import java_json

VERSION = 1
_OLD_FIELDS = {SET_CHANGELOG: "partition", SET_CONTAINER_HOST: "hostname"}
_LONGEST_VERSION = 9  # digits; a longer text is kept as it is and is no known version


def encode_key(message_type: str, key: str, version: Any = VERSION) -> bytes:
    """The record's key."""
    return java_json.dumps([version, message_type, key])


def encode_value(message: CoordinatorMessage) -> bytes | None:
    """The record's value, None for a tombstone.

    Raises:
        WireError: the message has values but no origin.
    """
    if message.values is None:
        return None
    if message.origin is None:
        raise WireError(f"a {message.type} message needs an origin (source, host, user, time) to be written")
    return java_json.dumps(
        {
            "host": message.origin.host,
            "source": message.origin.source,
            "values": dict(message.values),
            "username": message.origin.username,
            "timestamp": message.origin.timestamp_ms,
        }
    )


def decode_key(data: bytes) -> tuple[Any, str, str]:
    """(version, type, key).

    Raises:
        WireError: not a list of version, type and key.
    """
    parts = java_json.loads_quickly(data)
    if not isinstance(parts, list) or len(parts) != 3:
        raise WireError("a coordinator stream key is [version, type, key]")
    version, message_type, key = parts
    if not isinstance(message_type, str) or not isinstance(key, str):
        raise WireError("type and key of a coordinator stream key are strings")
    if isinstance(version, str) and version.isascii() and version.isdigit():
        version = int(version) if len(version) <= _LONGEST_VERSION else version
    return version, message_type, key


def decode_value(data: bytes | None) -> tuple[dict[str, str] | None, MessageOrigin | None]:
    """(values, origin); None for a tombstone. What is no text in an origin, which is for people, becomes `?`.

    Raises:
        WireError: not an object with an object of values.
    """
    if data is None:
        return None, None
    document = java_json.loads_quickly(data)
    if not isinstance(document, dict) or not isinstance(document.get("values"), dict):
        raise WireError("a coordinator stream value is an object with `values`")
    values = {name: _text(value) for name, value in document["values"].items()}
    timestamp = document.get("timestamp")
    origin = MessageOrigin(
        source=_label(document.get("source", "")),
        host=_label(document.get("host", "")),
        username=_label(document.get("username", "")),
        timestamp_ms=timestamp if isinstance(timestamp, int) else 0,
    )
    return values, origin


def _label(value: Any) -> str:
    return str(value).encode(errors="replace").decode()


def plain_value(field: str, data: bytes) -> str | None:
    """`values[field]` of a record's value as today's writers write it; None when it needs a closer look.

    A bootstrap of a million records takes 1 µs for each this way, and 15 with origin and message around it.
    """
    if len(data) >= java_json.PLAIN_BYTES:
        return None
    try:
        value = orjson.loads(data)["values"][field]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        return None
    return value if isinstance(value, str) else None


def _text(value: Any) -> Any:
    """Older writers put numbers where strings belong; a null stays a null and counts as absent."""
    return value if value is None or isinstance(value, str) else java_json.dumps(value).decode()


def decode(key: bytes, value: bytes | None) -> CoordinatorMessage:
    """A whole record.

    Raises:
        WireError: key or value is not understood.
    """
    version, message_type, name = decode_key(key)
    values, origin = decode_value(value)
    return CoordinatorMessage(message_type, name, values, origin, version)


def single_value(message_type: str, values: Mapping[str, str] | None) -> str | None:
    """The one value that a message of this type carries, in the new or the old spelling; None when absent.

    Raises:
        WireError: a type that carries no single value.
    """
    kind = message_type.lower()
    if kind not in VALUE_FIELDS:
        raise WireError(f"Unknown coordinator stream message type: {message_type}")
    if values is None:
        return None
    found = values.get(VALUE_FIELDS[kind])
    return values.get(_OLD_FIELDS[kind]) if found is None and kind in _OLD_FIELDS else found
