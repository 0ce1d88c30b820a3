"""Adding partitions to a stream of the embedded system, and remembering where the keys of each new one were before.

When a stream grows to a multiple of its partitions, the keys of a new partition p were in p mod the old count. What
they left there, up to where that partition ended, comes before everything in p.
"""

from __future__ import annotations

import apsw

from grete.systems.admin import KeyOrigin

SCHEMA = """
CREATE TABLE IF NOT EXISTS origins (
  stream INTEGER NOT NULL, partition INTEGER NOT NULL, origin INTEGER NOT NULL, upcoming INTEGER NOT NULL,
  PRIMARY KEY (stream, partition)) WITHOUT ROWID;
"""


def grow_in(connection: apsw.Connection, stream: int, before: int, partitions: int) -> None:
    """Add partitions `before` to `partitions` - 1, in the caller's transaction; with fewer it does nothing."""
    if partitions <= before:
        return
    new = range(before, partitions)
    connection.executemany(
        "INSERT INTO partitions (stream, partition) VALUES (?, ?)", ((stream, partition) for partition in new)
    )
    connection.execute("UPDATE streams SET partitions = ? WHERE id = ?", (partitions, stream))
    if partitions % before == 0:
        connection.executemany(
            "INSERT INTO origins SELECT stream, ?, partition, upcoming FROM partitions "
            "WHERE stream = ? AND partition = ?",
            ((partition, stream, partition % before) for partition in new),
        )


def origins_in(connection: apsw.Connection, stream: int) -> dict[int, KeyOrigin]:
    """The origin of each partition that a growth to a multiple has added."""
    rows = connection.execute(
        "SELECT partition, origin, upcoming FROM origins WHERE stream = ?", (stream,)
    ).fetchall()
    return {partition: KeyOrigin(origin, str(upcoming)) for partition, origin, upcoming in rows}
