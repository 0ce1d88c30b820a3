"""A pipeline's inputs in decoded form: keys and values as their serdes read them.

A record that a serde cannot read fails its batch with stream, partition and offset, or is set aside as a dead letter,
as `task.poison.policy` has it: then it is a row of one output more, the stream of dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from grete.application.expectations import PROBLEM
from grete.arrow import pa
from grete.container.assignment import Assignment
from grete.errors import ProcessingError, WireError
from grete.model.ids import SystemStream
from grete.spark.pipeline.serdes import BYTES, JSON, TEXT, ColumnSerde, column_serdes

_READ = {"key": "__key", "value": "__value"}
"""What is read of a column, beside it."""
_PARSED = {"key": "__json_key", "value": "__json_value"}
_CORRUPT = "__corrupt"
_UNREADABLE = (WireError, ValueError, TypeError, ArithmeticError)
"""Of a serde, and of Arrow for a value that is not of the type."""


@dataclass(frozen=True, slots=True)
class DecodedInputs:
    """The inputs of `build`; what cannot be read of them where that is set aside, as dead letters."""

    frames: Mapping[str, DataFrame]
    letters: Sequence[DataFrame]


def decoded_inputs(frames: Mapping[str, DataFrame], assignment: Assignment) -> DecodedInputs:
    """Decode the inputs whose `pipeline.columns` is `decoded`.

    Raises:
        ConfigError, StreamUnreachable, LoginRefused: see `column_serdes`.
    """
    settings = assignment.settings
    poison = settings.task.poison
    sets_aside = poison.everything or poison.deserialization
    found, letters = dict(frames), list[DataFrame]()
    for name, frame in frames.items():
        serdes = column_serdes(SystemStream.parse(name), settings)
        if serdes is None or all(one.kind == BYTES for one in serdes):
            continue
        read = _read(frame, dict(zip(_READ, serdes, strict=True)), is_kept=sets_aside)
        if sets_aside:
            letters.append(dead_letters(read.where(F.col(PROBLEM).isNotNull()), assignment))
            read = read.where(F.col(PROBLEM).isNull())
        found[name] = read.select(*(_renamed(one) for one in frame.columns))
    return DecodedInputs(found, letters)


def _renamed(column: str) -> Column:
    return F.col(_READ[column]).alias(column) if column in _READ else F.col(column)


def _read(frame: DataFrame, serdes: Mapping[str, ColumnSerde], *, is_kept: bool) -> DataFrame:
    """The frame with what is read of key and value; with `is_kept` the bytes stay, and what is wrong beside them."""
    by_python = {name: one for name, one in serdes.items() if one.arrow is not None}
    problems = []
    if by_python:
        frame = _in_python(frame, by_python, is_kept=is_kept)
        problems = [F.col(PROBLEM)] if is_kept else []
    for name, serde in serdes.items():
        if name in by_python:
            continue
        if serde.kind == JSON:
            frame = _with_json(frame, name, serde.type)
        value, problem = _in_spark(name, serde)
        if problem is not None and is_kept:
            problems.append(problem)
        elif problem is not None:
            place = F.concat_ws(".", "stream", "partition"), F.lit(" offset "), F.col("offset").cast("string")
            words = F.concat(
                F.lit("grete.errors.ProcessingError: "), *place, F.lit(": "), problem, F.lit(_WAY_OUT)
            )
            value = F.when(problem.isNotNull(), F.raise_error(words)).otherwise(value)
        frame = frame.withColumn(_READ[name], value)
    return frame.withColumn(PROBLEM, F.coalesce(*problems)) if problems else frame


_WAY_OUT = "; nothing of its batch was committed (task.poison.policy=dead-letter would set the record aside)"


def _words(name: str, serde: ColumnSerde) -> str:
    return f"its {name} is not what {serde} reads"


# --- by Spark ---


def _in_spark(name: str, serde: ColumnSerde) -> tuple[Column, Column | None]:
    """What is read of the bytes, and the problem in words; null where there is none."""
    column = F.col(name)
    if serde.kind == BYTES:
        return column, None
    value = text = column.cast("string")
    is_bad = ~F.is_valid_utf8(text)
    if serde.kind != TEXT:
        value, is_no_json = _of_json(F.col(_PARSED[name]), text, serde.type)
        is_bad = is_no_json | is_bad
    return value, F.when(column.isNotNull() & is_bad, F.lit(_words(name, serde)))


def _with_json(frame: DataFrame, name: str, kind: T.DataType) -> DataFrame:
    """The frame with what the column is as JSON beside it; of objects, what is corrupt as well.

    In a row that is generated: whatever uses it, also a filter, then has it of one reading. Spark would evaluate an
    expression two or three times: 15 to 22 us of a processor, not 10, for a record of eight fields.
    """
    text = F.col(name).cast("string")
    if isinstance(kind, T.VariantType):
        parsed = F.try_parse_json(text)
    elif isinstance(kind, T.StructType):
        marked = T.StructType([*kind, T.StructField(_CORRUPT, T.StringType())])
        parsed = F.from_json(text, marked, {"columnNameOfCorruptRecord": _CORRUPT})
    else:
        parsed = F.from_json(text, kind)
    return frame.select("*", F.inline(F.array(F.struct(parsed.alias(_PARSED[name])))))


def _of_json(parsed: Column, text: Column, kind: T.DataType) -> tuple[Column, Column]:
    """The value, and whether it is none of the type."""
    is_null = F.trim(text) == "null"
    if not isinstance(kind, T.StructType):
        return parsed, parsed.isNull() & ~is_null
    is_corrupt = parsed[_CORRUPT].isNotNull()
    fields = F.struct(*(parsed[each.name].alias(each.name) for each in kind))
    return F.when(parsed.isNotNull() & ~is_corrupt, fields), (parsed.isNull() | is_corrupt) & ~is_null


# --- by Python workers ---


def _in_python(frame: DataFrame, serdes: Mapping[str, ColumnSerde], *, is_kept: bool) -> DataFrame:
    kept = [each for each in frame.schema if is_kept or each.name not in serdes]
    read = [T.StructField(_READ[name], one.type) for name, one in serdes.items()]
    problem = [T.StructField(PROBLEM, T.StringType())] if is_kept else []
    decode = _Decode(tuple(serdes.items()), tuple(each.name for each in kept), is_kept)
    return frame.mapInArrow(decode, T.StructType([*kept, *read, *problem]))


@dataclass(frozen=True, slots=True)
class _Decode:
    """What a worker does with the batches of a task: columns `names`, what the serdes read, and with `is_kept` what
    is wrong."""

    serdes: tuple[tuple[str, ColumnSerde], ...]
    names: tuple[str, ...]
    is_kept: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            problems: dict[int, str] = {}
            read = {_READ[name]: self._column(batch, name, serde, problems) for name, serde in self.serdes}
            columns = {name: batch.column(name) for name in self.names} | read
            if self.is_kept:
                said = [problems.get(row) for row in range(batch.num_rows)]
                columns[PROBLEM] = pa.array(said, type=pa.string())
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _column(
        self, batch: pa.RecordBatch, name: str, serde: ColumnSerde, problems: dict[int, str]
    ) -> pa.Array:
        values, read = batch.column(name).to_pylist(), serde.reader()
        try:
            return pa.array(map(read, values), type=serde.arrow, size=len(values))
        except _UNREADABLE:
            pass  # one by one shows which
        found = []
        for row, value in enumerate(values):
            try:
                found.append(read(value))
                pa.array(found[-1:], type=serde.arrow)
            except _UNREADABLE as error:
                problem = f"{_words(name, serde)}: {error}"
                if not self.is_kept:
                    raise ProcessingError(f"{_place(batch, row)}: {problem}{_WAY_OUT}") from error
                problems.setdefault(row, problem)
                found[row:] = [None]
        return pa.array(found, type=serde.arrow)


def _place(batch: pa.RecordBatch, row: int) -> str:
    stream, partition, offset = (
        batch.column(name)[row].as_py() for name in ("stream", "partition", "offset")
    )
    return f"{stream}.{partition} offset {offset}"


# --- dead letters ---


def dead_letters(rows: DataFrame, assignment: Assignment) -> DataFrame:
    """The records of the stream of dead letters, of rows that say in a column `PROBLEM` why: of the form that
    `grete.tasks.collector.dead_letter` has.
    """
    tasks = {str(ssp): str(task.name) for task in assignment.tasks for ssp in task.ssps}
    ssp = F.concat_ws(".", "stream", "partition")
    of_task = F.element_at(F.create_map(*map(F.lit, chain.from_iterable(sorted(tasks.items())))), ssp)
    fields = [
        of_task.alias("task"),
        ssp.alias("ssp"),
        F.col("offset").cast("string").alias("offset"),
        F.col(PROBLEM).alias("error"),
        F.base64("key").alias("key_base64"),
        F.base64("value").alias("value_base64"),
    ]
    if "headers" in rows.columns:
        own = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
        fields.append(
            F.transform(own, lambda one: F.array(one["key"], F.base64(one["value"]))).alias("headers_base64")
        )
    return rows.select(F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}).alias("value"))
