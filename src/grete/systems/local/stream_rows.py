"""Streams and their partitions as rows of the embedded system's file: described, created, grown and deleted.

When a stream grows to a multiple of its partitions, the keys of a new partition p were in p mod the old count. What
they left there, up to where that partition ended, comes before everything in p.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import apsw

from grete.errors import StreamNotFound
from grete.model.streams import StreamSpec
from grete.suggestions import did_you_mean
from grete.systems.admin import KeyOrigin

SCHEMA = """
CREATE TABLE IF NOT EXISTS streams (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL, partitions INTEGER NOT NULL,
  compacted INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS partitions (
  stream INTEGER NOT NULL, partition INTEGER NOT NULL, oldest INTEGER NOT NULL DEFAULT 0,
  upcoming INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (stream, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS origins (
  stream INTEGER NOT NULL, partition INTEGER NOT NULL, origin INTEGER NOT NULL, upcoming INTEGER NOT NULL,
  PRIMARY KEY (stream, partition)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as stored. `uid` differs between a stream and one of the same name created after its deletion."""

    id: int
    name: str
    uid: str
    partitions: int
    compacted: bool


def stream_in(connection: apsw.Connection, name: str) -> StreamInfo:
    """The stream's description.

    Raises:
        StreamNotFound: no such stream.
    """
    row = connection.execute(
        "SELECT id, name, uid, partitions, compacted FROM streams WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        known = [row[0] for row in connection.execute("SELECT name FROM streams")]
        raise StreamNotFound(
            f"there is no stream {name!r} in {Path(connection.filename).parent}{did_you_mean(name, known)}; create "
            f"it with: grete stream create SYSTEM.{name}, SYSTEM as the configuration calls it"
        )
    return StreamInfo(row[0], row[1], row[2], row[3], bool(row[4]))


def held_in(connection: apsw.Connection, info: StreamInfo, partition: int) -> tuple[int, int]:
    """The oldest and the upcoming offset of a partition.

    Raises:
        StreamNotFound: no such partition.
    """
    row = connection.execute(
        "SELECT oldest, upcoming FROM partitions WHERE stream = ? AND partition = ?", (info.id, partition)
    ).fetchone()
    if row is None:
        raise StreamNotFound(f"{info.name} has partitions 0 to {info.partitions - 1}, not {partition}")
    return int(row[0]), int(row[1])


def create_in(connection: apsw.Connection, spec: StreamSpec) -> None:
    """Create a stream that is not there, in the caller's transaction."""
    connection.execute(
        "INSERT INTO streams (name, uid, partitions, compacted) VALUES (?, ?, ?, ?)",
        (spec.stream, uuid.uuid4().hex, spec.partitions, int(spec.compacted)),
    )
    stream = connection.last_insert_rowid()
    connection.executemany(
        "INSERT INTO partitions (stream, partition) VALUES (?, ?)",
        ((stream, partition) for partition in range(spec.partitions)),
    )


def delete_in(connection: apsw.Connection, info: StreamInfo) -> None:
    """Remove a stream with every record, in the caller's transaction."""
    for table in ("segments", "partitions", "origins", "compactions"):
        connection.execute(f"DELETE FROM {table} WHERE stream = ?", (info.id,))  # noqa: S608 - constants
    connection.execute("DELETE FROM streams WHERE id = ?", (info.id,))


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
