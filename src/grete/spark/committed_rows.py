"""For Spark readers of a topic that DataFrame pipelines write: the rows of committed batches, each once.

    commits = OutputCommits()
    commits.read(checkpoint_log.read())
    frame = spark.read.format("kafka").option("includeHeaders", "true")...load()
    committed_rows(frame, commits)

For batch reads, whose end is after the commits were read: then all that they name is there, and what they do not name
yet is left out, as if the topic had been read a moment earlier. A streaming query cannot wait for a batch to be
decided; it would leave out for good what was undecided when it came.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from grete.checkpoint.output_commits import ATTEMPT, BATCH, LINEAGE, SEQUENCE, OutputCommits
from grete.errors import IllegalStateError

_RANGES = "lineage string, attempt string, first long, until long"


def committed_rows(frame: DataFrame, commits: OutputCommits) -> DataFrame:
    """The rows of a batch read of Kafka, with `headers`, that count. Rows without a stamp stay.

    Raises:
        IllegalStateError: the frame is a streaming one, or has no headers.
    """
    if frame.isStreaming or "headers" not in frame.columns:
        raise IllegalStateError("committed_rows takes a batch read of Kafka with includeHeaders=true")
    ranges = F.broadcast(frame.sparkSession.createDataFrame(list(_ranges(commits)), _RANGES))
    stamped = frame.withColumns(
        {
            "__lineage": _header(LINEAGE),
            "__attempt": _header(ATTEMPT),
            "__batch": _header(BATCH).cast("long"),
            "__sequence": _header(SEQUENCE),
        }
    )
    counts = (
        (F.col("__lineage") == F.col("lineage"))
        & (F.col("__attempt") == F.col("attempt"))
        & F.col("__batch").between(F.col("first"), F.col("until"))
    )
    stamps = ("__lineage", "__attempt", "__batch", "__sequence")
    ours = stamped.join(ranges, counts, "left_semi").dropDuplicates([*stamps, "topic", "partition"])
    return ours.unionByName(stamped.where(F.col("__sequence").isNull())).drop(*stamps)


def _header(name: str) -> Column:
    found = F.filter(F.col("headers"), lambda header: header["key"] == name)
    return F.get(found, 0)["value"].cast("string")


def _ranges(commits: OutputCommits) -> Iterator[tuple[str, str, int, int]]:
    for lineage in commits.lineages.values():
        ends = [first - 1 for first, _ in lineage.attempts[1:]] + [lineage.last]
        for (first, attempt), until in zip(lineage.attempts, ends, strict=True):
            yield lineage.lineage, str(attempt), first, until
