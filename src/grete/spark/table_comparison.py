"""The folders and tables that a job and its clone have written, compared row by row where Spark is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from grete.config.settings import Settings
from grete.config.settings.outputs import DELTA, JDBC, OutputSettings
from grete.errors import JobError
from grete.model.comparison import EXAMPLES, Compared, Number
from grete.spark.session.container_session import build_session
from grete.spark.session.driver import stop_what_was_started
from grete.spark.sinks.files import COLUMN

_KEY, _ROW, _SIDE = "__key", "__row", "__side"
_DIFFERENT = ("differ", "missing", "more")
_NOT_THERE = ("PATH_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "UNABLE_TO_INFER_SCHEMA")
"""Of what no batch has written yet."""
_SHOWN = 200
_LINES = 2
"""Of an error: the rest is where in Spark it was."""
_NOISE = 1e-9
"""Spark adds up floating-point numbers in any order."""


def compare_tables(original: Settings, clone: Settings, *, has_all: bool) -> Iterator[Compared]:
    """Each folder and table of the original with the clone's, read by a session with the clone's settings of Spark.

    Rows with `outputs.NAME.keys` are compared by these, all others as they are: how many equal ones each has. What
    only one of both has for a column is named and not compared. Not `has_all`: the clone began with the original's
    checkpoints, so that what it has not was perhaps written before.

    Raises:
        ConfigError, JobError: see `build_session`; a table cannot be read, in Spark's words.
    """
    own, other = original.outputs, clone.outputs
    names = [name for name in own if name in other]
    if not names:
        return
    spark = build_session("grete compare", clone)
    try:
        for name in names:
            yield compare_output(spark, own[name], other[name], has_all=has_all)
    finally:
        stop_what_was_started()


def compare_output(
    spark: SparkSession, own: OutputSettings, other: OutputSettings, *, has_all: bool
) -> Compared:
    """One of them, see `compare_tables`."""
    try:
        rows, others = _rows(spark, own), _rows(spark, other)
        if rows is None and others is None:
            return Compared(own.place, other.place)
        rows = others.limit(0) if rows is None and others is not None else rows
        others = rows.limit(0) if others is None and rows is not None else others
        return _of_frames(rows, others, own, other, has_all=has_all)
    except (PySparkException, Py4JJavaError) as error:
        said = str(error.java_exception if isinstance(error, Py4JJavaError) else error).splitlines()[:_LINES]
        raise JobError(f"{own.place} and {other.place} cannot be compared: {' '.join(said)}") from error


def _rows(spark: SparkSession, output: OutputSettings) -> DataFrame | None:
    """What the job has written, without the column that says in which batch; None before the first."""
    reader = spark.read.format(output.format).options(**output.options)
    if output.format == JDBC:
        return reader.options(**output.connection).option("dbtable", output.target_table).load()
    try:
        frame = reader.load(output.target_path)
    except AnalysisException as error:
        if (error.getCondition() or "").split(".")[0] in _NOT_THERE:
            return None
        raise
    return frame if output.format == DELTA else frame.drop(COLUMN)


def _of_frames(
    rows: DataFrame, others: DataFrame, own: OutputSettings, other: OutputSettings, *, has_all: bool
) -> Compared:
    names = [name for name in rows.columns if name in others.columns]
    counted = _counted(rows, others, names, own.key_columns)
    if not has_all:
        counted = counted.withColumn("missing", F.lit(0))
    totals = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counted.columns if name != _KEY]
    total = counted.agg(*totals).collect()[0].asDict()
    different = [name for name in _DIFFERENT if total[name]]
    examples = []
    if different:
        is_one = reduce(Column.__or__, (F.col(name) > 0 for name in different))
        examples = counted.where(is_one).orderBy(_KEY).limit(EXAMPLES).collect()
    return Compared(
        own.place,
        other.place,
        **total,
        examples=[row[_KEY][:_SHOWN] for row in examples],
        sums=_sums(rows, others, names) if has_all else {},
        only_own=[name for name in rows.columns if name not in names],
        only_other=[name for name in others.columns if name not in names],
    )


def _counted(rows: DataFrame, others: DataFrame, names: Sequence[str], keys: Sequence[str]) -> DataFrame:
    """For each key, or row where there are no keys: how many there are in both, and what of that is the same."""
    columns = [_comparable(name, rows, others) for name in names]
    own, other = (
        frame.select(*columns, F.lit(side).alias(_SIDE)) for side, frame in enumerate((rows, others))
    )
    row, key = _json(names), _json(keys or names)
    n, m = (F.count_if(F.col(_SIDE) == side) for side in (0, 1))
    row_n, row_m = (F.max(F.when(F.col(_SIDE) == side, F.col(_ROW))) for side in (0, 1))
    is_same = F.coalesce(row_n == row_m, F.lit(False))
    return (
        own.unionAll(other)
        .select(key.alias(_KEY), row.alias(_ROW), _SIDE)
        .groupBy(_KEY)
        .agg(
            n.alias("records"),
            m.alias("other_records"),
            F.when(is_same, F.least(n, m)).otherwise(0).alias("same"),
            F.when(is_same, 0).otherwise(F.least(n, m)).alias("differ"),
            F.greatest(n - m, F.lit(0)).alias("missing"),
            F.greatest(m - n, F.lit(0)).alias("more"),
        )
    )


def _comparable(name: str, rows: DataFrame, others: DataFrame) -> Column:
    """The column, as text where the two have types that Spark does not widen to one."""
    own, other = (frame.schema[name].dataType for frame in (rows, others))
    is_like = own == other or (isinstance(own, NumericType) and isinstance(other, NumericType))
    return _column(name) if is_like else _column(name).cast("string").alias(name)


def _json(names: Sequence[str]) -> Column:
    """Values of any type as text that can be grouped, and shown."""
    return F.to_json(F.struct(*map(_column, names)), {"ignoreNullFields": "false"})


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _sums(rows: DataFrame, others: DataFrame, names: Sequence[str]) -> dict[str, tuple[Number, Number]]:
    """Of the columns that are numbers in both."""
    numbers = [
        name
        for name in names
        if all(isinstance(frame.schema[name].dataType, NumericType) for frame in (rows, others))
    ]
    if not numbers:
        return {}
    sums = [F.sum(_column(name)).alias(name) for name in numbers]
    own, other = (frame.agg(*sums).collect()[0] for frame in (rows, others))
    return {name: _pair(own[name], other[name]) for name in numbers}


def _pair(own: Number | Decimal | None, other: Number | Decimal | None) -> tuple[Number, Number]:
    one, two = _number(own), _number(other)
    return (one, one) if math.isclose(one, two, rel_tol=_NOISE) else (one, two)


def _number(value: Number | Decimal | None) -> Number:
    if value is None:
        return 0
    return value if isinstance(value, int) else float(value)
