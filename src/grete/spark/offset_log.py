"""Reads Spark's own offset and commit logs of a streaming query, in the versions we know.

A checkpoint location holds `offsets/N` (written before batch N runs: what it will read, up to where) and
`commits/N` (written after it). Known: version 1, with a line for each source, which is ours (`grete.tasks.ranges`),
Spark's Kafka source (`{"topic":{"0":123}}`), or one that is not of grete's inputs and only Spark's to read. Anything
else is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from grete.errors import GreteError
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.tasks.ranges import SourceOffsets

_KNOWN_VERSION = b"v1"


class SparkLogUnreadable(GreteError):
    """Spark's log of a lineage has a hole, an empty file or an unknown version; names the file."""


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """Where Spark stands: the last batch planned and the last one committed (-1: none), with their ends."""

    planned: int
    committed: int
    planned_end: SourceOffsets | None
    committed_end: SourceOffsets | None


def read_batch_end(checkpoint: Path, batch_id: int, sources: Sequence[str]) -> SourceOffsets:
    """The end offsets of a planned batch: of each input's partitions, of all lines of it the smallest.

    `sources` are the query's sources, `system.stream` each, empty for one that is not grete's. Kafka's source leaves
    out of which system its topics are.

    Raises:
        SparkLogUnreadable: no such file, or it is not a version 1 log of these sources.
    """
    path = checkpoint / "offsets" / str(batch_id)
    try:
        lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    except OSError as error:
        raise SparkLogUnreadable(f"cannot read Spark's offset log {path}: {error}") from error
    if lines[0] != _KNOWN_VERSION:
        raise SparkLogUnreadable(
            f"Spark's offset log {path} starts with {lines[0][:20]!r}, known is {_KNOWN_VERSION!r}"
        )
    if len(lines) != 2 + len(sources):
        raise SparkLogUnreadable(
            f"Spark's offset log {path} has {len(lines)} lines, expected {2 + len(sources)} ({len(sources)} sources)"
        )
    ends: dict[str, int] = {}
    for line, source in zip(lines[2:], sources, strict=True):
        for ssp, offset in _of_source(line, source, path).items() if source else ():
            ends[ssp] = min(offset, ends.get(ssp, offset))
    return SourceOffsets(ends)


def _of_source(line: bytes, source: str, path: Path) -> Mapping[str, int]:
    try:
        found = _next_offsets(orjson.loads(line), SystemStream.parse(source).system)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SparkLogUnreadable(
            f"Spark's offset log {path} is of no source that is known: {error!r}"
        ) from error
    streams = {str(SystemStreamPartition.parse(ssp).system_stream) for ssp in found}
    if streams - {source}:
        raise SparkLogUnreadable(
            f"Spark's offset log {path} has {', '.join(sorted(streams))} where {source} is read"
        )
    return found


def _next_offsets(document: Any, system: str) -> Mapping[str, int]:
    """Ours has a number as `tick`; with Kafka's source every name is a topic's, and `tick` would be no number."""
    if isinstance(document.get("tick"), int):
        return SourceOffsets.from_document(document).next_offsets
    return {
        str(SystemStreamPartition(system, topic, int(partition))): int(offset)
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def _batches(directory: Path) -> list[int]:
    """Batch numbers that have a file; Spark's temporary and checksum files are not batches."""
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdigit())


def read_progress(checkpoint: Path, sources: Sequence[str]) -> SparkProgress:
    """Where a lineage stands that reads these sources, see `read_batch_end`.

    Raises:
        SparkLogUnreadable: a commit without its offsets, an empty or foreign file.
    """
    planned, committed = _batches(checkpoint / "offsets"), _batches(checkpoint / "commits")
    last_planned = planned[-1] if planned else -1
    last_committed = committed[-1] if committed else -1
    if last_committed > last_planned or last_planned > last_committed + 1:
        raise SparkLogUnreadable(
            f"{checkpoint}: batch {last_planned} is the last planned and {last_committed} the last committed; "
            f"files are missing"
        )
    if last_committed >= 0:
        _check_commit(checkpoint / "commits" / str(last_committed))
    return SparkProgress(
        planned=last_planned,
        committed=last_committed,
        planned_end=read_batch_end(checkpoint, last_planned, sources) if last_planned >= 0 else None,
        committed_end=read_batch_end(checkpoint, last_committed, sources) if last_committed >= 0 else None,
    )


def _check_commit(path: Path) -> None:
    content = path.read_bytes()
    if not content.startswith(_KNOWN_VERSION):
        raise SparkLogUnreadable(f"Spark's commit log {path} starts with {content[:20]!r}, known is v1")
