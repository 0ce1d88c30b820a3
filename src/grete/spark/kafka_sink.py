"""A pipeline's rows on their way to a Kafka topic, by Spark's own connector: records, headers, partitions.

Mostly every record carries the stamp of `grete.checkpoint.output_commits`, so that readers can drop what an attempt
wrote that never committed, and what Spark wrote twice because it ran a task twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from grete.checkpoint.output_commits import HEADER, ONCE, Attempt, stamp_prefix
from grete.errors import ConfigError
from grete.spark.pipeline_rows import check_types, key_of, value_of

_OWN = ("key", "value", "headers", "partition")
_HEADERS = "array<struct<key:string,value:binary>>"


def plain_records(rows: DataFrame) -> DataFrame:
    """As `records`, without stamps, and records without key where the client likes.

    Raises:
        ConfigError: a column is not of its type.
    """
    types = dict(rows.dtypes)
    _check_types(types)
    columns = [key_of(types).alias("key"), value_of(types, _OWN).alias("value")]
    if "headers" in types:
        columns.append(F.col("headers").cast(_HEADERS).alias("headers"))
    if "partition" in types:
        columns.append(F.col("partition").cast("int").alias("partition"))
    return rows.select(*columns)


def records(
    rows: DataFrame, batch: int, attempt: Attempt, partitions: int, *, is_run_once: bool = False
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
        own = F.coalesce(F.col("headers").cast(_HEADERS), F.array().cast(_HEADERS))
        headers = F.concat(own, headers)
    if "partition" in types:
        partition = F.coalesce(F.col("partition").cast("int"), partition)
    return numbered.select(
        key_of(types).alias("key"),
        value_of(types, _OWN).alias("value"),
        headers.alias("headers"),
        partition.cast("int").alias("partition"),
    )


def write(written: DataFrame, settings: Mapping[str, str], topic: str) -> None:
    """Write the records; all copies have them on return. When it fails, some may be there."""
    written.write.format("kafka").options(**settings, topic=topic, includeHeaders="true").save()


def compute_only(rows: DataFrame) -> None:
    """Compute the rows for the sake of Spark's state, and write nothing."""
    rows.write.format("noop").mode("overwrite").save()


def _check_types(types: Mapping[str, str]) -> None:
    check_types(types, ("key", "value", "partition"))
    if "headers" in types and not types["headers"].startswith("array<struct<key:string,value:binary"):
        raise ConfigError(f"a pipeline's column 'headers' must be {_HEADERS}, it is {types['headers']}")
