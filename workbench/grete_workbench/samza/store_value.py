"""Samza's CoordinatorStreamValueSerde: one string in and out of the value of a typed message."""

from __future__ import annotations

from grete.config.java_values import NumberFormatError, parse_int
from grete.errors import WireError
from grete.model.messages import (
    SET_CHANGELOG,
    SET_CONTAINER_HOST,
    SET_TASK_MODE,
    VALUE_FIELDS,
    CoordinatorMessage,
    MessageOrigin,
)
from grete.wire import java_json
from grete.wire.coordinator_message import encode_value


def _field(message_type: str) -> str:
    try:
        return VALUE_FIELDS[message_type.lower()]
    except KeyError:
        raise WireError(f"Unknown coordinator stream message type: {message_type}") from None


def values_for(message_type: str, value: str) -> dict[str, str]:
    """The `values` of a message that carries `value`.

    Raises:
        WireError: an unknown type, or a changelog partition that is no integer.
    """
    kind, field = message_type.lower(), _field(message_type)
    if kind == SET_CONTAINER_HOST:
        return {"jmx-url": "", "host": value, "jmx-tunneling-url": ""}
    if kind == SET_CHANGELOG:
        return {field: str(_integer(value))}
    return {field: value}


def _integer(text: str) -> int:
    try:
        return parse_int(text)
    except NumberFormatError as error:
        raise WireError(str(error)) from error


def encode(message_type: str, value: str, origin: MessageOrigin) -> bytes:
    """The bytes of a message that carries `value`."""
    data = encode_value(CoordinatorMessage(message_type, "", values_for(message_type, value), origin))
    assert data is not None
    return data


def decode(message_type: str, data: bytes) -> str | None:
    """The string a message carries, None when its field is absent (the text "null" for a task mode, as there).

    Raises:
        WireError: an unknown type, no `values`, or a value that is no string.
    """
    kind, field = message_type.lower(), _field(message_type)
    document = java_json.loads(data)
    if document is None:
        return None  # JSON's null reads as a tombstone there
    if not isinstance(document, dict) or not isinstance(document.get("values"), dict):
        raise WireError("a coordinator stream value is an object with `values`")
    value = document["values"].get(field)
    if value is None:
        return "null" if kind == SET_TASK_MODE else None
    if not isinstance(value, str):
        raise WireError(f"{field} is a {type(value).__name__}, not a string")
    if kind == SET_CHANGELOG:
        return None if not value or value.isspace() else str(_integer(value))
    return value
