"""Spark's offset log as Spark writes it: of every batch the end of each source, whatever the source.

`offsets/N` has lines: the version, a JSON object of the batch (watermark, settings), then the sources. In version 1
these are one line each, in their order in the plan, `-` where nothing is known yet; in version 2 (since 4.2) each is
`ID:offset`, in any order, by the source's number or name. `sources/ID/0` holds where a source began, in a form of its
own; Kafka's is the version (after a zero byte, for Spark 2.1) and then as in the offset log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from grete.errors import GreteError
from grete.spark.lineage.location import Location

_NOTHING = b"-"


class SparkLogUnreadable(GreteError):
    """Spark's log of a query has a hole, an empty file or an unknown version; names the file."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch of the offset log: the end of each source as it is written, JSON but for sources of one's own; None
    for a source without.
    """

    number: int
    version: str
    watermark_ms: int
    ends: Mapping[str, bytes | None]
    settings: Mapping[str, str]
    """Those of Spark's that a query keeps for as long as it has state, whatever its session says later."""


def parsed_end(written: bytes | None) -> Any:
    """An offset as a value, None where there is none; one that is not JSON is the text that it is."""
    if written is None:
        return None
    try:
        return orjson.loads(written)
    except orjson.JSONDecodeError:
        return written.decode(errors="replace")


def is_kafkas(end: Any) -> bool:
    """Whether Spark wrote this of Kafka's source: `{"topic":{"0":123}}`, and no other source of Spark's is so."""
    return isinstance(end, Mapping) and all(
        isinstance(partitions, Mapping)
        and all(key.isdecimal() and type(value) is int for key, value in partitions.items())
        for partitions in end.values()
    )


def batches(directory: Location) -> list[int]:
    """Batch numbers that have a file; Spark's temporary and checksum files are not batches."""
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdigit())


def read_planned(checkpoint: Location, number: int) -> PlannedBatch:
    """A batch that was planned.

    Raises:
        SparkLogUnreadable: no such file, or not of a version that is known; names it.
    """
    path = checkpoint / "offsets" / str(number)
    version, metadata, *lines = _lines(path)
    try:
        batch = orjson.loads(metadata)
        watermark_ms = int(batch.get("batchWatermarkMs", 0))
        settings = dict(batch.get("conf", {}))
        ends = {source: None if end == _NOTHING else end for source, end in _by_source(version, lines)}
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError) as error:
        raise SparkLogUnreadable(f"Spark's offset log {path} cannot be read: {error}") from error
    return PlannedBatch(number, version.decode(), watermark_ms, ends, settings)


def _by_source(version: bytes, lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
    for place, line in enumerate(lines):
        if version == b"v1":
            yield str(place), line
        else:
            source, _, end = line.partition(b":")
            yield source.decode(), end


def read_commit(checkpoint: Location, number: int) -> int:
    """The watermark after a committed batch. Version 2 of its record says where Spark's state is, beside.

    Raises:
        SparkLogUnreadable: an empty, foreign or damaged file.
    """
    path = checkpoint / "commits" / str(number)
    _, metadata, *_ = _lines(path)
    try:
        return int(orjson.loads(metadata).get("nextBatchWatermarkMs", 0))
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError) as error:
        raise SparkLogUnreadable(f"Spark's log {path} cannot be read: {error}") from error


def record_after(checkpoint: Location, number: int, ends: Mapping[str, bytes], now_ms: int) -> bytes:
    """The record of the batch after a committed one, as Spark would plan it, up to these ends by source.

    A source that is not named reads nothing.

    Raises:
        SparkLogUnreadable: the record of the batch before cannot be read.
    """
    version, metadata, *lines = _lines(checkpoint / "offsets" / str(number))
    batch = orjson.loads(metadata) | {
        "batchWatermarkMs": read_commit(checkpoint, number),
        "batchTimestampMs": now_ms,
    }
    planned = [
        (b"" if version == b"v1" else f"{source}:".encode()) + ends.get(source, end)
        for source, end in _by_source(version, lines)
    ]
    return b"\n".join([version, orjson.dumps(batch), *planned])


def parted_record(file: Location, parts: Sequence[tuple[str, str]]) -> bytes:
    """A record of the offset log with other sources, each an old one, or one topic of what was Kafka's: see `Parts`.

    A topic that the query did not know yet has no partitions, so all of it is new to Spark.

    Raises:
        SparkLogUnreadable: the record cannot be read.
    """
    version, metadata, *lines = _lines(file)
    before, planned = dict(_by_source(version, lines)), []
    for number, (source, topic) in enumerate(parts):
        end = before.get(source, _NOTHING)
        own = _topic_alone(end, topic, file) if topic and end != _NOTHING else end
        planned.append((b"" if version == b"v1" else f"{number}:".encode()) + own)
    return b"\n".join([version, metadata, *planned])


def parted_beginning(file: Location, topic: str) -> bytes:
    """Where one topic of a source of Kafka's began, as the source would have written it of this topic alone.

    Raises:
        SparkLogUnreadable: the file is damaged.
    """
    head, newline, end = file.read_bytes().partition(b"\n")
    return head + newline + _topic_alone(end, topic, file)


def _topic_alone(end: bytes, topic: str, file: Location) -> bytes:
    try:
        return orjson.dumps({topic: orjson.loads(end).get(topic, {})})
    except (orjson.JSONDecodeError, AttributeError) as error:
        raise SparkLogUnreadable(f"Spark's log {file} cannot be read: {error}") from error


def check_own_record(checkpoint: Location, number: int, earlier: Iterable[int]) -> None:
    """Look whether the record of a planned batch is that of an earlier one. Each has the time of its planning.

    Raises:
        SparkLogUnreadable: it is; or it cannot be read.
    """
    path, record = checkpoint / "offsets" / str(number), _lines(checkpoint / "offsets" / str(number))
    for one in earlier:
        if record == _lines(checkpoint / "offsets" / str(one)):
            raise SparkLogUnreadable(f"Spark's offset log {path} is that of batch {one}")


def check_metadata(checkpoint: Location, *, has_begun: bool) -> None:
    """Look at the query's own record. Spark writes it before the first batch, and starts no query without it after.

    Raises:
        SparkLogUnreadable: it is damaged, or is not there though the query has begun.
    """
    path = checkpoint / "metadata"
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        if has_begun:
            raise SparkLogUnreadable(f"Spark's file {path} is not there") from error
        return
    except OSError as error:
        raise SparkLogUnreadable(f"cannot read Spark's file {path}: {error}") from error
    try:
        is_query = isinstance(orjson.loads(content)["id"], str)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        is_query = False
    if not is_query:
        raise SparkLogUnreadable(f"Spark's file {path} has no id of a query: {content[:40]!r}")


def read_beginning(checkpoint: Location, source: str) -> bytes | None:
    """Where a source began, as it is written; None when Spark has not written it."""
    try:
        content = (checkpoint / "sources" / source / "0").read_bytes()
    except OSError:
        return None
    return content.lstrip(b"\0").partition(b"\n")[2]


def _lines(path: Location) -> list[bytes]:
    """At least two, the first of which is a version that is known."""
    try:
        lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    except OSError as error:
        raise SparkLogUnreadable(f"cannot read Spark's log {path}: {error}") from error
    if lines[0] not in (b"v1", b"v2") or len(lines) < 2:
        raise SparkLogUnreadable(
            f"Spark's log {path} starts with {lines[0][:20]!r} and has {len(lines)} lines; known are v1 and v2"
        )
    return lines
