"""Keeps a coordinator stream's log short where no broker does: every process that opens the job reads all of it.

What goes is what compaction may drop anywhere, a record that a later one of its key shadows. Only configurations are
kept for longer, so that `config history` and `config rollback` know the last ones whole.
"""

from __future__ import annotations

import logging
import sys

from grete.errors import GreteError, StorageFull
from grete.metadata.coordinator_stream import CoordinatorStream, is_config_key

_log = logging.getLogger(__name__)
_DUE = 20_000
"""Shadowed records are dropped when there are so many: reading them takes 0.3 s, dropping them 1 s."""
_GENERATIONS = 100
_AT_ONCE = 100_000
"""Offsets gone through in one step: a log that was never compacted has millions, and its leader more to do."""


class StreamCompaction:
    """Drops shadowed records of one stream, for its leader. Called by one thread."""

    def __init__(
        self,
        stream: CoordinatorStream,
        *,
        due: int = _DUE,
        generations: int = _GENERATIONS,
        at_once: int = _AT_ONCE,
    ) -> None:
        self._stream = stream
        self._due = due
        self._generations = generations
        self._at_once = at_once
        self._left = self._done = 0

    def step(self) -> int:
        """Drop what is shadowed if it is much; returns how many records went. The last 100 generations stay whole."""
        log, shadowed = self._stream.log, self._stream.shadowed_count()
        if not log.keeps_shadowed or shadowed - self._left < self._due:
            return 0
        whole_from, end = self._stream.config_offset(self._generations), log.end() + 1
        before = min(end, self._done + self._at_once)
        try:
            dropped = log.drop_shadowed(
                before=before, whole_from=lambda key: whole_from if is_config_key(key) else sys.maxsize
            )
        except GreteError as error:
            if not (error.may_pass or isinstance(error, StorageFull)):
                raise
            _log.warning("the coordinator stream is not compacted: %s", error)
            self._left = shadowed
            return 0
        self._done = before
        if before == end:
            self._left = shadowed
        _log.info("%d shadowed records of the coordinator stream were dropped", dropped)
        return dropped
