"""An existing Structured Streaming query, as its checkpoint location says: where it stands, and with which state.

Everything is read; nothing is written, and no broker is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from grete.config.time_zone import TIME_ZONE
from grete.errors import ConfigError, JobError
from grete.spark.lineage.location import Location
from grete.spark.lineage.query_files import files_below
from grete.spark.lineage.source_log import (
    batches,
    is_kafkas,
    parsed_end,
    read_beginning,
    read_commit,
    read_planned,
)

_OPERATOR = re.compile(rb'"operatorName"\s*:\s*"([^"]{1,200})"')
_LONGEST = 120
_UNNAMED = "operator "

Offsets = Mapping[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


@dataclass(frozen=True, slots=True)
class OldQuery:
    """Where a query stands. Batches are -1 where there is none.

    `committed_ends` is where the last committed batch ended, or where the query began, if none was; `planned_ends`
    where the batch after it would end, empty when none was planned. `foreign` are sources that are not Kafka's, with
    what Spark wrote of them; `apart` says of partitions that several sources read, that they stand at different
    offsets. `operators` are those that keep state.
    """

    folder: Location
    id: str
    version: str
    committed: int
    planned: int
    committed_at_s: float | None
    watermark_ms: int
    committed_ends: Offsets
    planned_ends: Offsets
    foreign: Mapping[str, str]
    apart: tuple[str, ...]
    operators: tuple[str, ...]
    time_zone: str | None = None
    """Of its session, where a version of Spark has written it."""

    @property
    def names_operators(self) -> bool:
        """Whether Spark has written which operators keep state, as it does since 4.0."""
        return not any(name.startswith(_UNNAMED) for name in self.operators)


def read_query(folder: Location) -> OldQuery:
    """Read a checkpoint location.

    Raises:
        ConfigError: it is no checkpoint location of a query, or not there.
        SparkLogUnreadable: a file of its logs is missing, or not of a version that is known.
        JobError: nothing of it was planned yet.
        ConfigError, FilesUnreachable: it is on a file system of Hadoop's that does not answer.
    """
    if not (folder / "offsets").is_dir():
        raise ConfigError(
            f"--checkpoint {folder}: there is no folder {folder / 'offsets'}; name the checkpointLocation of a "
            f"Structured Streaming query, which holds offsets, commits and metadata"
        )
    planned, committed = batches(folder / "offsets"), batches(folder / "commits")
    if not planned:
        raise JobError(f"{folder}: no batch was ever planned, so there is nothing to go on from")
    last = committed[-1] if committed else -1
    if committed:
        read_commit(folder, last)
    newest = read_planned(folder, planned[-1])
    planned_ends = {source: parsed_end(end) for source, end in newest.ends.items()}
    batch = read_planned(folder, last) if last >= 0 else None
    written = {source: None if batch is None else batch.ends.get(source) for source in newest.ends}
    ends = {
        source: parsed_end(read_beginning(folder, source) if end is None else end)
        for source, end in written.items()
    }
    found, apart = _of_kafka(ends)
    return OldQuery(
        folder,
        _id(folder),
        newest.version,
        last,
        newest.number,
        (folder / "commits" / str(last)).stat().st_mtime if committed else None,
        0 if batch is None else batch.watermark_ms,
        found,
        _of_kafka(planned_ends)[0] if newest.number > last else {},
        {
            source: _shown(newest.ends[source])
            for source, end in planned_ends.items()
            if not _is_kafka(ends[source], end)
        },
        tuple(apart),
        tuple(_operators(folder / "state")),
        newest.settings.get(TIME_ZONE),
    )


def _id(folder: Location) -> str:
    try:
        return str(orjson.loads((folder / "metadata").read_bytes())["id"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return ""


def _is_kafka(*ends: Any) -> bool:
    """Whether what Spark wrote of a source, as far as it wrote it, is of Kafka's."""
    known = [end for end in ends if end is not None]
    return bool(known) and all(map(is_kafkas, known))


def _of_kafka(ends: Mapping[str, Any]) -> tuple[dict[tuple[str, int], int], list[str]]:
    """The offsets of Kafka's sources together, and partitions at which two of them are not at one offset."""
    found: dict[tuple[str, int], int] = {}
    apart = []
    for source, end in sorted(ends.items()):
        if not is_kafkas(end):
            continue
        for topic, partitions in end.items():
            for partition, offset in partitions.items():
                before = found.setdefault((topic, int(partition)), offset)
                if before != offset:
                    apart.append(
                        f"partition {partition} of {topic}: {before} and, in source {source}, {offset}"
                    )
    return found, apart


def _operators(state: Location) -> Iterator[str]:
    """The operators that keep state, by Spark's names where it has written them (since 4.0)."""
    if not state.is_dir():
        return
    for folder in sorted(
        (one for one in state.iterdir() if one.name.isdigit()), key=lambda one: int(one.name)
    ):
        written = (file.read_bytes() for _, file in files_below(folder / "_metadata"))
        names = [
            match[1].decode(errors="replace") for content in written if (match := _OPERATOR.search(content))
        ]
        yield names[-1] if names else f"{_UNNAMED}{folder.name}"


def _shown(written: bytes | None) -> str:
    text = "nothing" if written is None else written.decode(errors="replace")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
