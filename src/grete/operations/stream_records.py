"""Records of a stream for people: read a partition from somewhere, and show bytes as what they may be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from grete.model.streams import Headers
from grete.systems.base import System


class StreamRecord(NamedTuple):
    """A record of a partition, undecoded."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


def read_records(system: System, stream: str, partition: int, start: int) -> Iterator[StreamRecord]:
    """Records from `start` on, one segment in memory at a time."""
    from grete.systems.records import rows_of  # Arrow, which other commands do not need

    for first, batch in system.read(stream, partition, start):
        for row in rows_of(first, batch):
            yield StreamRecord(partition, *row)


def oldest_offset(system: System, stream: str, partition: int) -> int:
    """Where reading a partition begins."""
    offsets = system.offsets(stream)[partition]
    return int(offsets.oldest or offsets.upcoming)


def decoded(data: bytes | None) -> Any:
    """Bytes for people: a JSON object or array as such, other UTF-8 as text, the rest as {"hex": ..}."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
