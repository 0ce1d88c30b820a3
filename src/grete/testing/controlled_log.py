"""A keyed log that a test can block: the powers of Samza's mock coordinator stream (S2-124).

`append` injects, of any process; `block` lets readers see nothing that comes later, as a consumer whose poll hangs;
`unblock` lets them go on; `replay` gives a log that holds what was recorded, up to any point, for a new reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from grete.clock import Clock
from grete.keyed_log.base import Entry, Record
from grete.keyed_log.memory import MemoryKeyedLog


class ControlledLog(MemoryKeyedLog):
    """In memory. Writers are never blocked: a block is what readers see of the world."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._visible: int | None = None

    def block(self) -> None:
        """From now on readers see nothing new."""
        if self._visible is None:
            self._visible = super().end()

    def unblock(self) -> None:
        """Readers see everything again."""
        self._visible = None

    def read(self, after: int = -1) -> Iterator[Record]:
        """See KeyedLog; ends where the log was blocked."""
        limit = self._visible
        return (record for record in super().read(after) if limit is None or record.offset <= limit)

    def end(self) -> int:
        """See KeyedLog; where the log was blocked."""
        end = super().end()
        return end if self._visible is None else min(end, self._visible)

    @classmethod
    def replay(cls, records: Iterable[Record], clock: Clock, *, up_to: int | None = None) -> ControlledLog:
        """A log with these records, in order, up to the offset `up_to` (inclusive): what a reader saw at that time.

        Offsets begin at zero again; keys, values and their order are the same.
        """
        log = cls(clock)
        for record in records:
            if up_to is None or record.offset <= up_to:
                log.append([Entry(record.key, record.value)])
        return log
