"""A pipeline's outputs as keys and values in bytes, made by the serdes of the stream that they go to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from grete.arrow import pa
from grete.config.settings import Settings
from grete.errors import ConfigError, ProcessingError, WireError
from grete.model.ids import SystemStream
from grete.spark.pipeline.serdes import BYTES, TEXT, ColumnSerde, column_serdes, conformed

_OWN = ("key", "value", "partition", "headers")
_UNWRITABLE = (WireError, ValueError, TypeError)
_COLUMNS_OF_JSON = (T.StructType, T.ArrayType, T.MapType, T.VariantType)


def encoded(frame: DataFrame, stream: SystemStream, settings: Settings) -> DataFrame:
    """The rows of an output as the stream has them: `key` and `value` in bytes where `pipeline.columns` is `decoded`.

    The value is the column `value`, else a record of all columns but those of `_OWN`.

    Raises:
        ConfigError: a column is not what its serde writes; see `column_serdes` as well.
        StreamUnreachable, LoginRefused: see `column_serdes`.
    """
    serdes = column_serdes(stream, settings)
    if serdes is None:
        return frame
    types = {each.name: each.dataType for each in frame.schema}
    fields = [name for name in types if name not in _OWN]
    value, value_type = F.col("value"), types.get("value")
    if value_type is None:
        value, value_type = F.struct(*fields), T.StructType([frame.schema[name] for name in fields])
        if not fields:
            value, value_type = F.lit(None), T.NullType()
    key, key_type = (F.col("key"), types["key"]) if "key" in types else (F.lit(None), T.NullType())
    columns = {
        "key": _written(key, key_type, serdes[0], f"output {stream}: its key"),
        "value": _written(value, value_type, serdes[1], f"output {stream}: its value"),
    }
    kept = [name for name in ("partition", "headers") if name in types]
    rows = frame.select(*(column.alias(name) for name, column in columns.items()), *kept)
    by_python = {name: one for name, one in zip(columns, serdes, strict=True) if one.arrow is not None}
    return _in_python(rows, by_python, stream) if by_python else rows


def _written(column: Column, have: T.DataType, serde: ColumnSerde, where: str) -> Column:
    """The bytes; for what Python writes a column of the serde's type."""
    if isinstance(have, T.NullType):
        return F.lit(None).cast("binary" if serde.arrow is None else serde.type)
    if serde.kind in (BYTES, TEXT):
        if not isinstance(have, T.StringType | T.BinaryType):
            raise ConfigError(
                f"{where} is {have.simpleString()}, and {serde.kind} is written: cast it in build"
            )
        return column.cast("binary")
    if serde.arrow is not None:
        return conformed(column, have, serde.type, where)
    if not isinstance(have, _COLUMNS_OF_JSON):
        raise ConfigError(
            f"{where} is {have.simpleString()}, and {serde} writes objects: give columns, or take the column for "
            f"bytes that are JSON already (pipeline.columns=raw)"
        )
    if isinstance(have, T.StructType) and isinstance(serde.type, T.StructType):
        column = conformed(column, have, serde.type, where)
    return F.to_json(column, {"ignoreNullFields": "false"}).cast("binary")


def _in_python(rows: DataFrame, serdes: Mapping[str, ColumnSerde], stream: SystemStream) -> DataFrame:
    schema = [
        T.StructField(each.name, T.BinaryType()) if each.name in serdes else each for each in rows.schema
    ]
    return rows.mapInArrow(_Encode(tuple(serdes.items()), str(stream)), T.StructType(schema))


@dataclass(frozen=True, slots=True)
class _Encode:
    """What a worker does with the batches of a task: the columns that serdes write become bytes."""

    serdes: tuple[tuple[str, ColumnSerde], ...]
    stream: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        serdes = dict(self.serdes)
        for batch in batches:
            columns = [
                self._bytes(column, name, serdes[name]) if name in serdes else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _bytes(self, column: pa.Array, name: str, serde: ColumnSerde) -> pa.Array:
        try:
            values = column.to_pylist(maps_as_pydicts="strict")
            return pa.array(map(serde.writer(), values), type=pa.binary(), size=len(values))
        except _UNWRITABLE as error:
            raise ProcessingError(
                f"a row for {self.stream} was not written, and nothing of its batch committed: its {name} is not "
                f"what {serde} writes: {error}"
            ) from error
