"""The state of a compacted partition of the embedded system, and which of its records go.

    0 ........ clean_to ................ horizon ............. upcoming
    each key at most once,    a compaction is,         every record is there
    no tombstones             or was, at work

A compaction reads clean_to to its horizon into a map of the last offset of each key. Then it goes through the
segments from the front to the horizon, a short transaction each, and drops what the map shadows, and tombstones:
when one is reached, everything it shadowed is gone. After the last one clean_to is the horizon. A compaction that
dies leaves a log that is whole; the next one begins at the old clean_to, so that no tombstone goes before what it
shadows.

For readers: the state at an offset from the horizon on is what the records below it come to, as if
nothing had been dropped. A copy that stands below the horizon cannot catch up any more, because a tombstone that it
has not seen may be gone, and must start again; so must one during whose reading records were dropped, which `drops`
shows. Offsets never change.
"""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from grete.errors import OffsetOutOfRange
from grete.systems.local.segment_rows import PartitionKey

SCHEMA = """
CREATE TABLE IF NOT EXISTS compactions (
  stream INTEGER NOT NULL, partition INTEGER NOT NULL, clean_to INTEGER NOT NULL, horizon INTEGER NOT NULL,
  drops INTEGER NOT NULL, PRIMARY KEY (stream, partition)) WITHOUT ROWID;
"""
LAST_TABLE = "compactions"


@dataclass(frozen=True, slots=True)
class Compaction:
    """How far a partition is compacted. `drops` counts the transactions that dropped records."""

    clean_to: int = 0
    horizon: int = 0
    drops: int = 0

    def check_readable(self, start: int, end: int) -> None:
        """Whether the changes from `start` bring a copy that stands there to the state at `end`.

        Raises:
            OffsetOutOfRange: records between them may have been dropped.
        """
        if start < end and (0 < start < self.horizon or end < self.horizon):
            raise OffsetOutOfRange(
                f"changes from offset {start} to {end} are not all there: records below {self.horizon} were "
                f"compacted; start again from offset 0"
            )

    def check_undisturbed(self, start: int, before: Compaction) -> None:
        """Whether a read that began at `start`, when the compaction stood at `before`, has seen everything.

        Raises:
            OffsetOutOfRange: records were dropped meanwhile.
        """
        if self.drops != before.drops and start < self.horizon:
            raise OffsetOutOfRange(
                f"records below offset {self.horizon} were compacted during the read; again"
            )


def compaction_in(connection: apsw.Connection, key: PartitionKey) -> Compaction:
    """How far the partition is compacted now."""
    row = connection.execute(
        "SELECT clean_to, horizon, drops FROM compactions WHERE stream = ? AND partition = ?",
        (key.stream, key.partition),
    ).fetchone()
    return Compaction() if row is None else Compaction(*row)


def remember_in(
    connection: apsw.Connection, key: PartitionKey, *, horizon: int, clean_to: int = 0, dropped: bool = False
) -> None:
    """Note progress, in the caller's transaction. Neither offset goes back, though others may compact meanwhile."""
    known = compaction_in(connection, key)
    connection.execute(
        "INSERT OR REPLACE INTO compactions VALUES (?, ?, ?, ?, ?)",
        (
            key.stream,
            key.partition,
            max(known.clean_to, clean_to),
            max(known.horizon, horizon),
            known.drops + dropped,
        ),
    )
