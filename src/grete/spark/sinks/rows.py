"""A pipeline's rows as keys and values, computed by Spark: a pipeline writes the same bytes on every system."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from grete.errors import ConfigError

_TYPES = {"key": ("string", "binary"), "value": ("string", "binary"), "partition": ("int", "bigint")}


def check_types(types: Mapping[str, str], own: Collection[str]) -> None:
    """Look at the columns that mean something, of what a pipeline gives: Spark's type by name.

    Raises:
        ConfigError: naming a column that is not of its type.
    """
    for name in own:
        allowed = _TYPES[name]
        if name in types and types[name] not in allowed:
            raise ConfigError(
                f"a pipeline's column {name!r} must be {' or '.join(allowed)}, it is {types[name]}"
            )


def key_of(types: Mapping[str, str]) -> Column:
    """The key's bytes, null without a column `key`."""
    return F.col("key").cast("binary") if "key" in types else F.lit(None).cast("binary")


def value_of(types: Mapping[str, str], own: Collection[str]) -> Column:
    """The column `value`, else all columns but `own` as a JSON object, nulls included; null when there are none."""
    if "value" in types:
        return F.col("value").cast("binary")
    fields = [name for name in types if name not in own]
    if not fields:
        return F.lit(None).cast("binary")
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}).cast("binary")


def key_and_value(rows: DataFrame) -> DataFrame:
    """The rows as two columns of bytes: see `grete.DataFramePipeline.build` for the columns' meaning.

    Raises:
        ConfigError: see `check_types`.
    """
    types, own = dict(rows.dtypes), ("key", "value")
    check_types(types, own)
    return rows.select(key_of(types).alias("key"), value_of(types, own).alias("value"))
