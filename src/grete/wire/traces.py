"""Traces as they travel: W3C's trace context in a record's headers, and a batch from its share to its container."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from grete.model.streams import TRACEPARENT, Headers

_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace, by their numbers, and whether somebody keeps it."""

    trace_id: int
    span_id: int
    is_sampled: bool = True

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """A `traceparent`; None where it is none. Versions to come may say more, which is not read."""
        found = _TRACEPARENT.fullmatch(text.strip())
        if found is None or (found[1] == "00" and found[5]):
            return None
        trace_id, span_id = int(found[2], 16), int(found[3], 16)
        return cls(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED)) if trace_id and span_id else None

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parents_of(headers: Iterable[Headers | None]) -> list[str]:
    """The `traceparent` of each record that has one, as it is written."""
    return [
        value.decode("ascii", "replace")
        for of_record in headers
        for name, value in of_record or ()
        if name == TRACEPARENT and value is not None
    ]


@dataclass(frozen=True, slots=True)
class TracedBatch:
    """A batch that is committed: the trace that it is, and the traces of records that went into it.

    `began_ms` is when its first record arrived, `ended_ms` when it was committed, both by the clock on the wall;
    `commit_s` of that was the transaction. `links` are as they stand in the records' headers.
    """

    batch_id: int
    trace_id: str
    began_ms: int
    ended_ms: int
    commit_s: float
    records: int
    links: tuple[str, ...] = ()
