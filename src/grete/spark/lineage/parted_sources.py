"""A query's logs, for a query that reads other sources and keeps the same state.

Spark tells the sources of a query by their number alone, and what a source has read is a line of the offset log, so a
copy of the logs goes on with other sources once its lines are theirs. State knows nothing of sources. There are two
such: a source of Kafka's that reads several topics becomes one for each, and inputs come to a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grete.model.ids import SystemStream
from grete.spark.lineage.location import Location
from grete.spark.lineage.source_log import (
    batches,
    is_kafkas,
    parsed_end,
    parted_beginning,
    parted_record,
    read_planned,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What takes the place of a query's sources, in Spark's order: the number of the old one, and its topic.

    The topic is empty where the old source stays as it is, the number where a source has read nothing yet.
    """

    of: tuple[tuple[str, str], ...]

    def files(self, path: str, file: Location) -> Iterator[tuple[str, bytes | None]]:
        """What a file of a checkpoint location becomes: its paths, with another content where it has one."""
        folder, _, rest = path.partition("/")
        if folder == "sources":
            source, _, entry = rest.partition("/")
            yield from self._of_source(source, entry, file)
        elif folder != "offsets":
            yield path, None
        elif rest.isdigit():
            yield (
                path,
                parted_record(file, self.of),
            )  # without the sum of what the file was, which Hadoop can miss

    def _of_source(self, source: str, entry: str, file: Location) -> Iterator[tuple[str, bytes | None]]:
        for number, (before, topic) in enumerate(self.of):
            if before == source and not topic:
                yield f"sources/{number}/{entry}", None
            elif before == source and not entry.endswith(".crc"):
                yield f"sources/{number}/{entry}", parted_beginning(file, topic)


def parts_of(query: Location, sources: Sequence[str]) -> Parts | None:
    """How a query's sources become these, `system.stream` each and empty for one that is not grete's.

    A source of several topics becomes as many, in any order, for its rows came in any. None where each has one topic
    already, and where they do not fit, as with a topic more or less: then the query's own log says what it has.

    Raises:
        SparkLogUnreadable: the last batch that was planned cannot be read.
    """
    planned = read_planned(query, batches(query / "offsets")[-1]).ends
    left, parts = list(sources), list[tuple[str, str]]()
    for source in sorted(planned, key=int) if all(map(str.isdecimal, planned)) else ():
        end = parsed_end(planned[source])
        topics = set(end) if is_kafkas(end) else set()
        if len(topics) < 2:
            parts.append((source, ""))
            del left[:1]
            continue
        found = [SystemStream.parse(one).stream for one in left[: len(topics)] if one]
        if set(found) != topics:
            return None
        parts += [(source, topic) for topic in found]
        del left[: len(topics)]
    return Parts(tuple(parts)) if not left and len(parts) == len(sources) > len(planned) > 0 else None


def with_more(before: Sequence[str], now: Sequence[str]) -> Parts | None:
    """How a query's sources become these, `system.stream` each, where some have come and the others stay in their
    order; None where there is another difference, and where it cannot be told which of them came.
    """
    left, parts = [*enumerate(before)], list[tuple[str, str]]()
    for source in now:
        if left and left[0][1] == source:
            parts.append((str(left.pop(0)[0]), ""))
        elif source and source not in before:
            parts.append(("", source))
        else:
            return None
    return None if left else Parts(tuple(parts))
