"""The hash chain of a keyed log: each record's hash covers the one before, so nothing goes missing unseen."""

from __future__ import annotations

import hashlib
import struct

GENESIS = b"\0" * 32
_HEAD = struct.Struct(">qqqII")
_NO_EPOCH = -1


def content_hash(offset: int, key: bytes, value: bytes | None, timestamp_ms: int, epoch: int | None) -> bytes:
    """The hash of one record's content. A tombstone and an empty value differ."""
    length = 0xFFFFFFFF if value is None else len(value)
    head = _HEAD.pack(offset, timestamp_ms, _NO_EPOCH if epoch is None else epoch, len(key), length)
    return hashlib.sha256(head + key + (value or b"")).digest()


def link(previous: bytes, content: bytes) -> bytes:
    """The chain's hash after a record, from the one before it and the record's content hash."""
    return hashlib.sha256(previous + content).digest()
