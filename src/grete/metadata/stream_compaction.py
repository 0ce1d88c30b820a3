"""Keeps a coordinator stream's log short where no broker does: every process that opens the job reads all of it.

What goes is what compaction may drop anywhere, a record that a later one of its key shadows. Only configurations are
kept for longer, so that `config history` and `config rollback` know the last ones whole.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable

from grete.errors import GreteError, StorageFull, WireError
from grete.keyed_log.base import KeyedLog
from grete.metadata.coordinator_stream import GENERATION, CoordinatorStream
from grete.model.messages import SET_CONFIG
from grete.wire import coordinator_message as codec

_log = logging.getLogger(__name__)
_DUE = 20_000
"""Shadowed records are dropped when there are so many: reading them takes 0.3 s, dropping them 1 s."""
_GENERATIONS = 100
_WRITES = 10_000
"""A foreign program may write keys for ever without a generation."""


class StreamCompaction:
    """Drops shadowed records of one stream, for its leader. Called by one thread."""

    def __init__(
        self, stream: CoordinatorStream, *, due: int = _DUE, generations: int = _GENERATIONS
    ) -> None:
        self._stream = stream
        self._due = due
        self._generations = generations
        self._left = 0

    def step(self) -> int:
        """Drop what is shadowed if it is much; returns how many records went. The last 100 generations stay whole."""
        log, shadowed = self._stream.log, self._stream.shadowed_count()
        if not log.keeps_shadowed or shadowed - self._left < self._due:
            return 0
        self._left = shadowed
        try:
            dropped = log.drop_shadowed(whole_from=_whole_from(log, self._generations))
        except GreteError as error:
            if not (error.may_pass or isinstance(error, StorageFull)):
                raise
            _log.warning("the coordinator stream is not compacted: %s", error)
            return 0
        _log.info("%d shadowed records of the coordinator stream were dropped", dropped)
        return dropped


def _whole_from(log: KeyedLog, kept: int) -> Callable[[bytes], int]:
    """Records of configurations stay from behind a generation on; others only while nothing shadows them."""
    generations: deque[int] = deque(maxlen=kept + 1)
    writes: deque[int] = deque(maxlen=_WRITES)
    for record in log.read():
        kind = _config_kind(record.key)
        if kind:
            writes.append(record.offset)
        if kind == GENERATION:
            generations.append(record.offset)
    floor = max(
        generations[0] + 1 if len(generations) > kept else 0, writes[0] if len(writes) == _WRITES else 0
    )
    aligned = next((one + 1 for one in generations if one >= floor - 1 >= 0), floor)
    return lambda key: aligned if _config_kind(key) else sys.maxsize


def _config_kind(key: bytes) -> str | None:
    """The type of a configuration's record; None for any other."""
    if b"config" not in key.lower():
        return None
    try:
        kind = codec.decode_key(key)[1].lower()
    except WireError:
        return None
    return kind if kind in (SET_CONFIG, GENERATION) else None
