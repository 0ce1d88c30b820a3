"""Streams as they are to be: their shape when they are created, and what is kept of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grete.errors import StreamError

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers in their order, as Kafka has them: names may come again, and a value may be missing."""
TRACEPARENT = "traceparent"
TRACE_HEADERS = frozenset((TRACEPARENT, "tracestate"))
"""W3C's headers, by which a trace goes on from record to record."""
MOST_PARTITIONS = 1_000_000
"""Of one stream: ten times the tasks of the largest job, and what the embedded system adds within seconds."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Kafka's rule, and that of the embedded system."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream to be created. `compacted` streams keep the last record of each key (changelogs)."""

    stream: str
    partitions: int
    compacted: bool = False

    def __post_init__(self) -> None:
        check_partitions(self.stream, self.partitions)


def check_partitions(stream: str, partitions: int) -> None:
    """Refuse a number of partitions that a slip of the pen or a foreign record asks for.

    Raises:
        StreamError: below one, or above `MOST_PARTITIONS`.
    """
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise StreamError(
            f"stream {stream!r} has 1 to {MOST_PARTITIONS:,} partitions, asked for {partitions}"
        )


def check_name(stream: str) -> None:
    """Refuse a name under which no system can create a stream.

    Raises:
        StreamError: other characters, none, or too many.
    """
    if not _NAME.fullmatch(stream):
        raise StreamError(f"a stream's name is 1 to 249 of A-Z a-z 0-9 . _ -, got {stream[:300]!r}")


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """How much is kept of a stream, or of some of its partitions. None keeps everything.

    Only compacted streams are compacted; of those, changelogs of stores whose entries expire have a retention, too.
    """

    stream: str
    partitions: frozenset[int] | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    min_compaction_lag_ms: int = 0
