"""The trace of each batch of a share or of a pipeline, from its first record to its commit."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Self

from grete.arrow import pa
from grete.clock import Clock
from grete.config.settings.traces import TraceSettings
from grete.systems.records import headers_of
from grete.text_logs import log_as
from grete.wire.traces import TracedBatch, parents_of

_LINKS = 32
"""Traces of records that a batch names, at most: what shows traces shows few."""
_ROWS = 64
"""Of each poll so many records are looked at."""


class BatchTraces:
    """Used by one thread. Log lines that are JSON say which batch is at work, and its trace."""

    def __init__(self, settings: TraceSettings, clock: Clock) -> None:
        self._percent = settings.percent
        self._clock = clock
        self._trace = ""
        self._began_ms: int | None = None
        self._links: dict[str, None] = {}

    @classmethod
    def of(cls, settings: TraceSettings, clock: Clock) -> Self | None:
        """Those of a job whose batches are traced."""
        return None if settings.endpoint is None else cls(settings, clock)

    def begin(self, batch_id: int) -> None:
        """A batch begins, or the last one begins again."""
        trace = random.getrandbits(128) or 1
        self._trace = f"{trace:032x}" if trace % 100 < self._percent else ""
        self._began_ms = None
        self._links = {}
        log_as(batch=str(batch_id), trace=self._trace)

    def arrived(self, records: Iterable[pa.RecordBatch] = ()) -> None:
        """Records of the batch are there, of which these have headers to look at."""
        if not self._trace:
            return
        if self._began_ms is None:
            self._began_ms = self._clock.wall_ms()
        for rows in records:
            if len(self._links) < _LINKS:
                self._links |= dict.fromkeys(parents_of(headers_of(rows.slice(0, _ROWS)) or ()))

    def committed(self, batch_id: int, records: int, commit_s: float) -> tuple[TracedBatch, ...]:
        """The batch is committed; nothing where it is not traced."""
        if not self._trace:
            return ()
        ended_ms = self._clock.wall_ms()
        began_ms = ended_ms - round(1000 * commit_s) if self._began_ms is None else self._began_ms
        links = tuple(self._links)[:_LINKS]
        return (TracedBatch(batch_id, self._trace, began_ms, ended_ms, commit_s, records, links),)
