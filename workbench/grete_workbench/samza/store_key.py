"""Keys of Samza's CoordinatorStreamStore: namespace and key, as the store and as the stream write them."""

from __future__ import annotations

from typing import Any

from grete.errors import WireError
from grete.wire import jackson_bytes, java_json

_FIELDS = {"key", "namespace"}


def encode(namespace: str | None, key: str) -> str:
    """CoordinatorStreamStore.serializeCoordinatorMessageKeyToJson."""
    return java_json.dumps({"key": key, "namespace": namespace}).decode()


def decode(text: str) -> tuple[str | None, str | None]:
    """(namespace, key); unknown fields are refused and numbers taken as texts, as there.

    Raises:
        WireError: not such an object.
    """
    document = java_json.loads(text.encode())
    if not isinstance(document, dict) or set(document) - _FIELDS:
        raise WireError(f"Exception occurred when deserializing the coordinatorMsgKey: {text}")
    return jackson_bytes.as_text(document.get("namespace")), jackson_bytes.as_text(document.get("key"))


def key_of_stream_key(data: bytes) -> str | None:
    """CoordinatorStreamKeySerde.fromBytes: the third part of the stream's key, whatever stands before it.

    Raises:
        WireError: no list, no third part, or it is no string.
    """
    parts: Any = java_json.loads(data)
    if not isinstance(parts, list) or len(parts) < 3 or not isinstance(parts[2], str | None):
        raise WireError(f"not a coordinator stream key: {data[:200]!r}")
    return parts[2]
