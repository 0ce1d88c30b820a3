"""A namespace of the coordinator stream as a key-value store (NamespaceAwareCoordinatorStreamStore).

The namespace is the message type; values are raw bytes. Keys are compared decoded and the version is ignored, so
`[1, "n", "k"]` and `[2,"n","k"]` are the same key. Every write is durable when it returns (S2-42).
"""

from __future__ import annotations

from collections.abc import Mapping

from grete.keyed_log.base import Entry, Fence, KeyedLog
from grete.wire.coordinator_message import decode_key, encode_key


class NamespacedStore:
    """One namespace. The log is shared with other views and never closed by this one."""

    def __init__(self, log: KeyedLog, namespace: str, *, fence: Fence | None = None) -> None:
        self._log = log
        self._namespace = namespace
        self._fence = fence

    def get(self, key: str) -> bytes | None:
        """The value of a key, None when there is none."""
        return self.all().get(key)

    def all(self) -> dict[str, bytes]:
        """Every entry of the namespace.

        Raises:
            WireError: a key anywhere in the stream is undecodable, as the real store fails then.
        """
        found: dict[str, bytes] = {}
        for record in self._log.read():
            _, namespace, key = decode_key(record.key)
            if namespace != self._namespace:
                continue
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = record.value
        return found

    def put(self, key: str, value: bytes) -> None:
        """Set a key."""
        self.put_all({key: value})

    def put_all(self, entries: Mapping[str, bytes]) -> None:
        """Set several keys atomically."""
        self._log.append(
            [Entry(encode_key(self._namespace, key), value) for key, value in entries.items()],
            fence=self._fence,
        )

    def delete(self, key: str) -> None:
        """Remove a key."""
        self._log.append([Entry(encode_key(self._namespace, key), None)], fence=self._fence)
