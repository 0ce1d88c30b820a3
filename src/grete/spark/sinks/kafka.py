"""An output on Kafka without transactions: Spark's connector writes the rows, then the driver commits.

At least once in the topic: a container that dies between the two leaves rows of an attempt that the checkpoint log
never names. Mostly every record carries the stamp of `grete.checkpoint.output_commits`, so that readers can drop what
an attempt wrote that never committed, and what Spark wrote twice because it ran a task twice:
`grete.checkpoint.committed_reader` and `grete.spark.committed_rows` give each row once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from grete.api import Batch
from grete.checkpoint.output_commits import HEADER, ONCE, LineageCommits, WriterAttempt, stamp_prefix
from grete.container.assignment import Assignment
from grete.errors import ConfigError
from grete.keyed_log.base import Entry
from grete.spark import plans
from grete.spark.jvm import query_execution
from grete.spark.sinks.kafka_senders import runs_tasks_once
from grete.spark.sinks.rows import check_types, key_of, value_of
from grete.systems.commit_group import SegmentWrite

OWN = ("key", "value", "headers", "partition")
HEADERS = "array<struct<key:string,value:binary>>"
_runs = itertools.count(1)


def new_attempt(assignment: Assignment) -> WriterAttempt:
    """The attempt of a container that starts now; later ones of this process are greater."""
    return WriterAttempt(assignment.job.key, assignment.container_id, assignment.fence.epoch, next(_runs))


@dataclass(slots=True)
class OutputStamps:
    """The attempt whose rows are written, and which batches of its lineage are committed."""

    attempt: WriterAttempt
    commits: LineageCommits

    def entry(self, batch: int, grouper: str) -> Entry:
        """For the checkpoint log, with the batch's checkpoints: that the rows of this attempt count."""
        return self.commits.with_batch(batch, self.attempt).entry(grouper)

    def committed(self, batch: int) -> None:
        """The entry of the batch is in the log."""
        self.commits = self.commits.with_batch(batch, self.attempt)


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """Writes one topic. `settings`, the connector's options, hold secrets: not to be shown.

    `stamps`: the attempt of which every record says that it is, None for records without.
    """

    topic: str
    partitions: int
    settings: Mapping[str, str] = field(repr=False)
    stamps: OutputStamps | None

    def write(self, rows: DataFrame, batch: Batch) -> Sequence[SegmentWrite]:
        """All copies have the rows on return; when it fails, some may be there."""
        write(self._records(rows, batch.number), self.settings, self.topic)
        return ()

    def _records(self, rows: DataFrame, batch: int) -> DataFrame:
        if self.stamps is None:
            return plain_records(rows)
        is_shuffled = may_be_reordered(rows)
        runs_once = runs_tasks_once(rows.sparkSession.sparkContext.master)
        kept = rows.localCheckpoint(eager=False) if is_shuffled and not runs_once else rows
        # a lost shuffle file is recomputed, on local masters too, so rows may be renumbered
        once = runs_once and not is_shuffled
        return records(kept, batch, self.stamps.attempt, self.partitions, is_run_once=once)

    def close(self) -> None:
        """Nothing is held."""


def plain_records(rows: DataFrame) -> DataFrame:
    """As `records`, without stamps, and records without key where the client likes.

    Raises:
        ConfigError: a column is not of its type.
    """
    types = dict(rows.dtypes)
    _check_types(types)
    columns = [key_of(types).alias("key"), value_of(types, OWN).alias("value")]
    if "headers" in types:
        columns.append(F.col("headers").cast(HEADERS).alias("headers"))
    if "partition" in types:
        columns.append(F.col("partition").cast("int").alias("partition"))
    return rows.select(*columns)


def records(
    rows: DataFrame, batch: int, attempt: WriterAttempt, partitions: int, *, is_run_once: bool = False
) -> DataFrame:
    """The rows as the connector writes them: see `grete.DataFramePipeline.build` for the columns' meaning.

    The partition is the column `partition` where it is set, else the key's by Kafka's murmur2; records without key
    go round by their sequence number, so that a record that is written twice is twice in the same partition. With
    `is_run_once` none is: they are not numbered, and go where the client likes.

    Raises:
        ConfigError: a column is not of its type.
    """
    types = dict(rows.dtypes)
    _check_types(types)
    prefix = stamp_prefix(attempt, batch)
    if is_run_once:
        numbered, stamp = rows, F.lit(f"{prefix}{ONCE}")
        partition = F.lit(None)
    else:
        numbered = rows.withColumn("__sequence", F.monotonically_increasing_id())
        stamp = F.concat(F.lit(prefix), F.col("__sequence").cast("string"))
        partition = F.when(key_of(types).isNull(), F.pmod("__sequence", F.lit(partitions)).cast("int"))
    headers = F.array(F.struct(F.lit(HEADER).alias("key"), stamp.cast("binary").alias("value")))
    if "headers" in types:
        own = F.coalesce(F.col("headers").cast(HEADERS), F.array().cast(HEADERS))
        headers = F.concat(own, headers)
    if "partition" in types:
        partition = F.coalesce(F.col("partition").cast("int"), partition)
    return numbered.select(
        key_of(types).alias("key"),
        value_of(types, OWN).alias("value"),
        headers.alias("headers"),
        partition.cast("int").alias("partition"),
    )


def write(written: DataFrame, settings: Mapping[str, str], topic: str) -> None:
    """Write the records; all copies have them on return. When it fails, some may be there."""
    written.write.format("kafka").options(**settings, topic=topic, includeHeaders="true").save()


def may_be_reordered(batch: DataFrame) -> bool:
    """Whether a task that Spark runs twice may get its rows in another order the second time.

    `batch` is what Spark gives to `foreachBatch`. If so, the rows are kept before they are numbered, so that each has
    one number; what was not shuffled comes in the order of the source.
    """
    # a batch's own plan is an RDD, which says where it comes from; to plan it for that would take 20 ms of each batch
    return any(
        plans.name(leaf) != "LogicalRDD" or "ShuffledRowRDD" in leaf.rdd().toDebugString()
        for leaf in plans.leaves(query_execution(batch).logical())
    )


def _check_types(types: Mapping[str, str]) -> None:
    check_types(types, ("key", "value", "partition"))
    if "headers" in types and not types["headers"].startswith("array<struct<key:string,value:binary"):
        raise ConfigError(f"a pipeline's column 'headers' must be {HEADERS}, it is {types['headers']}")
