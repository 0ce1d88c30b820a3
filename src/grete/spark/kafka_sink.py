"""A pipeline's rows on their way to a Kafka topic, by Spark's own connector: records, headers, partitions.

Mostly every record carries the stamp of `grete.checkpoint.output_commits`, so that readers can drop what an attempt
wrote that never committed, and what Spark wrote twice because it ran a task twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from grete.checkpoint.output_commits import HEADER, Attempt, stamp_prefix
from grete.errors import ConfigError

_OWN = ("key", "value", "headers", "partition")
_HEADERS = "array<struct<key:string,value:binary>>"


def plain_records(rows: DataFrame) -> DataFrame:
    """As `records`, without stamps, and records without key where the client likes.

    Raises:
        ConfigError: a column is not of its type.
    """
    types = dict(rows.dtypes)
    _check_types(types)
    columns = [_key(types).alias("key"), _value(types).alias("value")]
    if "headers" in types:
        columns.append(F.col("headers").cast(_HEADERS).alias("headers"))
    if "partition" in types:
        columns.append(F.col("partition").cast("int").alias("partition"))
    return rows.select(*columns)


def records(rows: DataFrame, batch: int, attempt: Attempt, partitions: int) -> DataFrame:
    """The rows as the connector writes them: see `grete.DataFramePipeline.build` for the columns' meaning.

    The partition is the column `partition` where it is set, else the key's by Kafka's murmur2; records without key
    go round by their sequence number, so that a record that is written twice is twice in the same partition.

    Raises:
        ConfigError: a column is not of its type.
    """
    types = dict(rows.dtypes)
    _check_types(types)
    numbered = rows.withColumn("__sequence", F.monotonically_increasing_id())
    stamp = F.concat(F.lit(stamp_prefix(attempt, batch)), F.col("__sequence").cast("string"))
    headers = F.array(F.struct(F.lit(HEADER).alias("key"), stamp.cast("binary").alias("value")))
    if "headers" in types:
        own = F.coalesce(F.col("headers").cast(_HEADERS), F.array().cast(_HEADERS))
        headers = F.concat(own, headers)
    key = _key(types)
    partition = F.when(key.isNull(), F.pmod("__sequence", F.lit(partitions)).cast("int"))
    if "partition" in types:
        partition = F.coalesce(F.col("partition").cast("int"), partition)
    return numbered.select(
        key.alias("key"),
        _value(types).alias("value"),
        headers.alias("headers"),
        partition.cast("int").alias("partition"),
    )


def write(written: DataFrame, settings: Mapping[str, str], topic: str) -> None:
    """Write the records; all copies have them on return. When it fails, some may be there."""
    written.write.format("kafka").options(**settings, topic=topic, includeHeaders="true").save()


def compute_only(rows: DataFrame) -> None:
    """Compute the rows for the sake of Spark's state, and write nothing."""
    rows.write.format("noop").mode("overwrite").save()


def _key(types: Mapping[str, str]) -> Column:
    return F.col("key").cast("binary") if "key" in types else F.lit(None).cast("binary")


def _value(types: Mapping[str, str]) -> Column:
    if "value" in types:
        return F.col("value").cast("binary")
    fields = [name for name in types if name not in _OWN]
    if not fields:
        return F.lit(None).cast("binary")
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}).cast("binary")


def _check_types(types: Mapping[str, str]) -> None:
    allowed = {"key": ("string", "binary"), "value": ("string", "binary"), "partition": ("int", "bigint")}
    for name, of in allowed.items():
        if name in types and types[name] not in of:
            raise ConfigError(f"a pipeline's column {name!r} must be {' or '.join(of)}, it is {types[name]}")
    if "headers" in types and not types["headers"].startswith("array<struct<key:string,value:binary"):
        raise ConfigError(f"a pipeline's column 'headers' must be {_HEADERS}, it is {types['headers']}")
