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

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from grete.checkpoint.output_commits import HEADER, ONCE, OutputCommits
from grete.errors import IllegalStateError

_RANGES = "attempt string, first long, until long"


def committed_rows(frame: DataFrame, commits: OutputCommits) -> DataFrame:
    """The rows of a batch read of Kafka, with `headers`, that count. Rows without a stamp stay.

    Raises:
        IllegalStateError: the frame is a streaming one, or has no headers.
    """
    if frame.isStreaming or "headers" not in frame.columns:
        raise IllegalStateError("committed_rows takes a batch read of Kafka with includeHeaders=true")
    ranges = F.broadcast(frame.sparkSession.createDataFrame(list(_ranges(commits)), _RANGES))
    stamp = F.filter(F.col("headers"), lambda header: header["key"] == HEADER)
    stamped = frame.withColumn("__stamp", F.get(stamp, 0)["value"].cast("string")).withColumns(
        {
            "__attempt": F.regexp_extract("__stamp", r"^(.*)\.\d+\.(?:\d+|-)\z", 1),
            # rows of a batch that could not be written twice have all one stamp
            "__row": F.when(F.endswith("__stamp", F.lit(f".{ONCE}")), F.col("offset")),
            "__batch": F.regexp_extract("__stamp", r"\.(\d+)\.(?:\d+|-)\z", 1).cast("long"),
        }
    )
    counts = (F.col("__attempt") == F.col("attempt")) & F.col("__batch").between(
        F.col("first"), F.col("until")
    )
    counted = stamped.join(ranges, counts, "left_semi").dropDuplicates(
        ["__stamp", "topic", "partition", "__row"]
    )
    return counted.unionByName(stamped.where(F.col("__stamp").isNull())).drop(
        "__stamp", "__attempt", "__batch", "__row"
    )


def _ranges(commits: OutputCommits) -> Iterator[tuple[str, int, int]]:
    for lineage in commits.lineages.values():
        for attempt, first, until in lineage.ranges():
            yield str(attempt), first, until
