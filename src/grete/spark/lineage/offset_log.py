"""Where Spark stands in the checkpoint location of a lineage, by its offset and commit logs (`source_log`).

It holds `offsets/N` (written before batch N runs: what it will read, up to where) and `commits/N` (written after it).
A source is ours (`grete.tasks.ranges`), Spark's Kafka source (`{"topic":{"0":123}}`), or one that is not of grete's
inputs and only Spark's to read. Anything else is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson

from grete.errors import JobError
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.spark.lineage.location import Location
from grete.spark.lineage.source_log import (
    SparkLogUnreadable,
    batches,
    check_metadata,
    check_own_record,
    read_commit,
    read_planned,
    record_after,
)
from grete.tasks.ranges import SourceOffsets


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """Where Spark stands: the last batch planned and the last one committed (-1: none), with their ends."""

    planned: int
    committed: int
    planned_end: SourceOffsets | None
    committed_end: SourceOffsets | None


def read_batch_end(
    checkpoint: Location,
    batch_id: int,
    sources: Sequence[str],
    topics: Mapping[str, str] = MappingProxyType({}),
) -> SourceOffsets:
    """The end offsets of a planned batch: of each input's partitions, of all lines of it the smallest.

    `sources` are the query's sources, `system.stream` each, empty for one that is not grete's. Kafka's source leaves
    out of which system its topics are. `topics` has the streams, `system.stream`, whose topics have other names.

    Raises:
        SparkLogUnreadable: no such file, or it is not a log of these sources.
    """
    path, planned = checkpoint / "offsets" / str(batch_id), read_planned(checkpoint, batch_id)
    if len(planned.ends) != len(sources):
        raise SparkLogUnreadable(
            f"Spark's offset log {path} has {len(planned.ends)} sources, expected {len(sources)}"
        )
    ends: dict[str, int] = {}
    for number, source in enumerate(sources):
        for ssp, offset in (
            _of_source(planned.ends.get(str(number)), source, topics.get(source), path).items()
            if source
            else ()
        ):
            ends[ssp] = min(offset, ends.get(ssp, offset))
    return SourceOffsets(ends)


def _of_source(end: bytes | None, source: str, topic: str | None, path: Location) -> Mapping[str, int]:
    if end is None:  # it came, and no batch has read it yet
        return {}
    try:
        document, stream = orjson.loads(end), SystemStream.parse(source)
        if topic is not None and topic in document:
            document = {stream.stream: document.pop(topic), **document}
        found = _next_offsets(document, stream.system)
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


def record_up_to(
    checkpoint: Location,
    number: int,
    sources: Sequence[str],
    topics: Mapping[str, str],
    ends: Mapping[str, int],
    now_ms: int,
) -> bytes | None:
    """The record of the batch after a committed one that reads up to these next offsets; None where that is nothing.

    A partition that is not named, or was read further, stays where it is; one that came since is read from its
    beginning. Raises as `read_batch_end`; JobError where a source has to be read that no batch has read yet, of which
    it is not known how Spark would write it.
    """
    before = read_batch_end(checkpoint, number, sources, topics).next_offsets
    after = {**before, **{ssp: max(offset, before.get(ssp, offset)) for ssp, offset in ends.items()}}
    if after == before:
        return None
    planned, moved = read_planned(checkpoint, number).ends, dict[str, bytes]()
    for place, source in enumerate(sources):
        end = planned[str(place)]
        if source and end is not None:
            moved[str(place)] = orjson.dumps(_moved(orjson.loads(end), source, after))
        elif source and any(ssp not in before for ssp in _own(after, source)):
            raise JobError(
                f"no batch has read {source} yet, so none can end where it has to: run the job once"
            )
    return record_after(checkpoint, number, moved, now_ms)


def _moved(document: Any, source: str, ends: Mapping[str, int]) -> Any:
    """The document of a source that was read by `_of_source`, with other offsets."""
    own = _own(ends, source)
    if isinstance(document.get("tick"), int):
        return SourceOffsets(own, document["tick"]).to_document()
    [topic] = document
    return {topic: {str(SystemStreamPartition.parse(ssp).partition): offset for ssp, offset in own.items()}}


def _own(ends: Mapping[str, int], source: str) -> dict[str, int]:
    return {ssp: ends[ssp] for ssp in ends if str(SystemStreamPartition.parse(ssp).system_stream) == source}


def read_progress(
    checkpoint: Location, sources: Sequence[str], topics: Mapping[str, str] = MappingProxyType({})
) -> SparkProgress:
    """Where a lineage stands that reads these sources, see `read_batch_end`. Reads what Spark reads as it starts.

    Raises:
        SparkLogUnreadable: a commit without its offsets, a file that is gone, empty, foreign, damaged or of another
            batch.
    """
    planned, committed = batches(checkpoint / "offsets"), batches(checkpoint / "commits")
    last_planned = planned[-1] if planned else -1
    last_committed = committed[-1] if committed else -1
    if last_committed > last_planned or last_planned > last_committed + 1:
        raise SparkLogUnreadable(
            f"{checkpoint}: batch {last_planned} is the last planned and {last_committed} the last committed; "
            f"files are missing"
        )
    check_metadata(checkpoint, has_begun=last_planned >= 0)
    if last_committed >= 0:
        _check_watermark(checkpoint, last_committed)

    def end_of(batch_id: int) -> SourceOffsets | None:
        return read_batch_end(checkpoint, batch_id, sources, topics) if batch_id >= 0 else None

    end_of(last_planned - 1)  # Spark reads the batch before its last one, whatever became of that
    for number in planned[-2:]:  # which say where the next one begins
        check_own_record(checkpoint, number, [one for one in planned if one < number])
    return SparkProgress(last_planned, last_committed, end_of(last_planned), end_of(last_committed))


def _check_watermark(checkpoint: Location, number: int) -> None:
    """A watermark never goes back: a commit of an earlier batch in the place of this one would let it."""
    before, after = read_planned(checkpoint, number).watermark_ms, read_commit(checkpoint, number)
    if after < before:
        raise SparkLogUnreadable(
            f"Spark's log {checkpoint / 'commits' / str(number)} is of an earlier batch: its watermark is {after}, "
            f"and batch {number} began with {before}"
        )
