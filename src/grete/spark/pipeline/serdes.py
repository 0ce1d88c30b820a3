"""Serdes of the streams that a pipeline has in decoded form: for each a type of Spark's, and the way to it.

Text and JSON are read and written by Spark itself. All else goes through the serdes that StreamTasks have, the
application's own too, in Spark's Python workers, by Arrow.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from grete.api import Serde
from grete.arrow import pa
from grete.config.choices import PipelineColumns
from grete.config.key_tables.serdes import REGISTRY_SUBJECT, SERDE_CLASS, SERDE_COLUMNS, SERDE_SCHEMA
from grete.config.key_tables.streams import STREAM_COLUMNS
from grete.config.redact import is_secret_key
from grete.config.settings import Settings
from grete.config.settings.streams import property_name
from grete.errors import ConfigError, WireError
from grete.model.ids import SystemStream
from grete.serdes import load_serde
from grete.serdes.avro import configured_schema, schema_text
from grete.serdes.avro_types import arrow_type, text_uuids
from grete.tasks.faults import is_machines

_COLUMNS = property_name(STREAM_COLUMNS)
BYTES, TEXT, JSON, _OWN = "bytes", "string", "json", "own"
_NUMBERS: Mapping[str, pa.DataType] = {"integer": pa.int32(), "long": pa.int64(), "double": pa.float64()}


@dataclass(frozen=True, slots=True)
class ColumnSerde:
    """The serde of a stream's keys or values. `settings` is what a worker needs to load it: references unresolved."""

    name: str
    named_by: str
    kind: str
    type: T.DataType
    arrow: pa.DataType | None = None
    """Of what goes through Python; None where Spark does it."""
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"serde {self.name!r} ({self.named_by})"

    def reader(self) -> Callable[[bytes | None], Any]:
        """Makes values of bytes, in a worker."""
        read = _loaded(self.name, self.named_by, self.settings).from_bytes
        if self.kind == _OWN:
            return _refusing(read)
        if self.kind != "uuid":
            return read
        return lambda data: None if data is None else str(read(data))

    def writer(self) -> Callable[[Any], bytes | None]:
        """Makes bytes of values, in a worker."""
        write = _loaded(self.name, self.named_by, self.settings).to_bytes
        if self.kind == _OWN:
            return _refusing(write)
        if self.kind != "uuid":
            return write
        return lambda value: None if value is None else write(uuid.UUID(value))


@cache
def _loaded(name: str, named_by: str, settings: tuple[tuple[str, str], ...]) -> Serde:
    """Kept for as long as the worker lives, with what it knows of a schema registry."""
    given = Settings.of(dict(settings))
    if (folder := given.job.application_path) and folder not in sys.path:
        sys.path.insert(0, folder)
    return load_serde(name, given, used_by=named_by)


def _refusing(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A serde of the application's own: whatever it raises is a value that it does not read or write."""

    def guarded(value: Any) -> Any:
        try:
            return call(value)
        except Exception as error:
            if is_machines(error):
                raise
            raise WireError(repr(error)) from error

    return guarded


def column_serdes(stream: SystemStream, settings: Settings) -> tuple[ColumnSerde, ColumnSerde] | None:
    """The serdes of keys and values; None for a stream whose bytes a pipeline has as they are.

    Raises:
        ConfigError: there is none, or it is not for pipelines, or its schema is missing or wrong.
        StreamUnreachable, LoginRefused: a schema registry does not answer.
    """
    own = settings.stream(stream)
    if own.columns is PipelineColumns.RAW:
        return None
    if own.key_serde is None and own.msg_serde is None:
        raise ConfigError(
            f"{own.key(_COLUMNS)}=decoded needs a serde: set {own.key('samza.msg.serde')} to json, avro, string, ..."
        )
    key, value = (
        _column_serde(said, settings, f"{stream.stream}-{part}")
        for said, part in ((own.key_serde, "key"), (own.msg_serde, "value"))
    )
    return key, value


def _column_serde(said: tuple[str, str] | None, settings: Settings, subject: str) -> ColumnSerde:
    if said is None:
        return ColumnSerde(BYTES, "", BYTES, T.BinaryType())
    named_by, name = said
    kind = settings.serde(name).implementation
    if kind == JSON:
        return ColumnSerde(name, named_by, kind, _json_type(name, settings))
    if kind in (BYTES, TEXT):
        return ColumnSerde(name, named_by, kind, T.BinaryType() if kind == BYTES else T.StringType())
    shipped = {SERDE_CLASS.named(name): kind}
    if kind in _NUMBERS:
        arrow = _NUMBERS[kind]
    elif kind == "uuid":
        arrow = pa.string()
    elif kind in ("avro", "avro-registry"):
        schema = text_uuids(_avro_schema(name, kind, settings, subject))
        arrow = arrow_type(schema, f"the schema of serde {name!r}")
        shipped |= settings.serde(name).own_keys
        shipped.setdefault(REGISTRY_SUBJECT.named(name), subject)
        shipped[SERDE_SCHEMA.named(name)] = orjson.dumps(schema).decode()
    else:
        return _own_serde(name, named_by, settings)
    return ColumnSerde(name, named_by, kind, from_arrow_type(arrow), arrow, tuple(sorted(shipped.items())))


def _own_serde(name: str, named_by: str, settings: Settings) -> ColumnSerde:
    """One of the application's; a worker gets the configuration without secrets but those of the serde."""
    load_serde(name, settings, used_by=named_by)  # says what is wrong
    text, key = settings.serde(name).columns, SERDE_COLUMNS.named(name)
    if text is None:
        raise ConfigError(
            f"{named_by}={name}: a serde of the application's own gives columns when {key} says of which type, as in "
            f"'id BIGINT, tags ARRAY<STRING>'; or take the bytes ({_COLUMNS}=raw) and decode them in a function"
        )
    kind = _parsed(text, key)
    try:
        arrow = to_arrow_type(kind, timezone="UTC")
    except PySparkException as error:
        raise ConfigError(f"{key}: Python has no values for {text[:200]!r}: {_first_line(error)}") from error
    shipped = {one: value for one, value in settings.raw.items() if not is_secret_key(one)}
    shipped |= settings.serde(name).own_keys
    return ColumnSerde(name, named_by, _OWN, kind, arrow, tuple(sorted(shipped.items())))


def _parsed(text: str, key: str) -> T.DataType:
    try:
        return T._parse_datatype_string(text)
    except Exception as error:
        raise ConfigError(f"{key}: Spark reads no columns in {text[:200]!r}: {_first_line(error)}") from error


def _avro_schema(name: str, kind: str, settings: Settings, subject: str) -> Any:
    load_serde(name, settings, used_by=SERDE_CLASS.named(name), subject=subject)  # says what is missing
    if kind == "avro":
        return configured_schema(name, settings)
    from grete.serdes.avro_registry import RegistryAvroSerde  # its client: 0.1 s of each start

    return RegistryAvroSerde.from_config(name, settings, subject).newest_schema()


def _json_type(name: str, settings: Settings) -> T.DataType:
    """The columns of a JSON serde; without a schema any JSON, as a VARIANT."""
    text = schema_text(name, settings)
    if text is None:
        return T.VariantType()
    key = SERDE_SCHEMA.named(name)
    found = _parsed(text, key)
    if not isinstance(found, T.StructType | T.ArrayType | T.MapType):
        raise ConfigError(
            f"{key}: {text[:200]!r} is one value; JSON with a schema has columns, as in 'id BIGINT'"
        )
    return found


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def conformed(column: Column, have: T.DataType, want: T.DataType, where: str) -> Column:
    """A column as one of the type that a serde writes: fields by name, numbers only where nothing is lost.

    Raises:
        ConfigError: naming the part of `where` that does not fit.
    """
    if have.simpleString() == want.simpleString():
        return column
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        fields = _fields(column, have, want, where)
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        return F.transform(
            column, lambda item: conformed(item, have.elementType, want.elementType, f"{where}[]")
        )
    if isinstance(have, T.MapType) and isinstance(want, T.MapType) and have.keyType == want.keyType:
        return F.transform_values(
            column, lambda _, item: conformed(item, have.valueType, want.valueType, f"{where}[]")
        )
    if isinstance(have, T.NullType) or _is_wider(have, want):
        return column.cast(want)
    raise ConfigError(
        f"{where} is {have.simpleString()}, and is to be {want.simpleString()}: cast it in build"
    )


def _fields(column: Column, have: T.StructType, want: T.StructType, where: str) -> list[Column]:
    if unknown := sorted(set(have.names) - set(want.names)):
        raise ConfigError(f"{where} has {', '.join(unknown)}, which the schema does not have")
    if missing := [each.name for each in want if not each.nullable and each.name not in have.names]:
        raise ConfigError(f"{where} lacks {', '.join(missing)}, which the schema has without a default")
    return [
        conformed(
            column.getField(each.name), have[each.name].dataType, each.dataType, f"{where}.{each.name}"
        ).alias(each.name)
        for each in want
        if each.name in have.names
    ]


_WIDENING: Sequence[type[T.DataType]] = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def _is_wider(have: T.DataType, want: T.DataType) -> bool:
    """Whether every number of one type is one of the other."""
    if isinstance(have, T.DecimalType) and isinstance(want, T.DecimalType):
        return bool(have.scale <= want.scale and have.precision - have.scale <= want.precision - want.scale)
    if type(have) in _WIDENING and type(want) in _WIDENING:
        return _WIDENING.index(type(have)) <= _WIDENING.index(type(want))
    if isinstance(want, T.DoubleType):
        return isinstance(have, T.FloatType | T.ByteType | T.ShortType | T.IntegerType)
    return isinstance(want, T.FloatType) and isinstance(have, T.ByteType | T.ShortType)
