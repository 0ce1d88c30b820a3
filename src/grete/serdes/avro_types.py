"""The Arrow types of Avro schemas: as what columns of decoded data come into a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grete.arrow import pa
from grete.errors import ConfigError

_PLAIN: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_INSTANT, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _INSTANT,
    ("long", "timestamp-micros"): _INSTANT,
    ("long", "local-timestamp-millis"): _LOCAL,
    ("long", "local-timestamp-micros"): _LOCAL,
}
_WIDER: Mapping[frozenset[str], str] = {
    frozenset(("int", "long")): "long",
    frozenset(("float", "double")): "double",
}
_NO_COLUMN = ("time-millis", "time-micros", "timestamp-nanos", "local-timestamp-nanos")


def arrow_type(schema: Any, where: str) -> pa.DataType:
    """The type of a schema's data: records are structs, a union with null is what may be null.

    A field may be null, or left out where data is written, when it has a default as well.

    Raises:
        ConfigError: naming the part of `where` that no column can hold: a union of several types, a time of day, a
            type that contains itself.
    """
    return _Types(where).of(schema, "")


def text_uuids(schema: Any) -> Any:
    """The schema with UUIDs as the texts that they are."""
    if isinstance(schema, dict):
        kept = {name: text_uuids(part) for name, part in schema.items()}
        if kept.get("logicalType") == "uuid" and kept.get("type") == "string":
            del kept["logicalType"]
        return kept
    return [text_uuids(part) for part in schema] if isinstance(schema, list) else schema


class _Types:
    """Types of one schema; names that it defines are known by their short and their full form."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, pa.DataType | None] = {}
        self._complex: Mapping[str, Callable[[Mapping[str, Any], str], pa.DataType]] = {
            "record": self._record,
            "error": self._record,
            "array": lambda schema, path: pa.list_(self.of(schema["items"], f"{path}[]")),
            "map": lambda schema, path: pa.map_(pa.string(), self.of(schema["values"], f"{path}[]")),
            "enum": self._plain_named,
            "fixed": self._plain_named,
        }

    def of(self, schema: Any, path: str) -> pa.DataType:
        if isinstance(schema, str):
            return self._of_name(schema, path)
        if isinstance(schema, list):
            return self._union(schema, path)
        try:
            kind = schema["type"]
            if isinstance(kind, dict | list):
                return self.of(kind, path)
            logical = schema.get("logicalType")
            if logical is not None and (found := self._logical(kind, logical, schema, path)) is not None:
                return found
            return self._complex[kind](schema, path) if kind in self._complex else self._of_name(kind, path)
        except (KeyError, TypeError, AttributeError) as error:
            raise self._problem(path, f"is no Avro schema ({error!r})") from error

    def _of_name(self, name: str, path: str) -> pa.DataType:
        if name in _PLAIN and name not in self._complex:
            return _PLAIN[name]
        found = self._named.get(name, self._named.get(name.rpartition(".")[2]))
        if found is None:
            raise self._problem(path, f"is a {name!r} within itself, or of an unknown type")
        return found

    def _logical(self, kind: str, logical: str, schema: Mapping[str, Any], path: str) -> pa.DataType | None:
        if logical in _NO_COLUMN:
            raise self._problem(path, f"is a {logical}, which no column holds")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            found = pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
            return self._remember(schema, found) if kind == "fixed" else found
        return _LOGICAL.get((kind, logical))

    def _record(self, schema: Mapping[str, Any], path: str) -> pa.DataType:
        self._remember(schema, None)
        fields = [
            pa.field(
                each["name"],
                self.of(each["type"], f"{path}.{each['name']}".lstrip(".")),
                nullable="default" in each or "null" in each["type"],
            )
            for each in schema["fields"]
        ]
        return self._remember(schema, pa.struct(fields))

    def _plain_named(self, schema: Mapping[str, Any], path: str) -> pa.DataType:
        return self._remember(schema, _PLAIN[schema["type"]])

    def _remember(self, schema: Mapping[str, Any], found: pa.DataType | None) -> pa.DataType:
        self._named[schema["name"].rpartition(".")[2]] = found
        return found

    def _union(self, branches: Sequence[Any], path: str) -> pa.DataType:
        some = [branch for branch in branches if branch != "null"]
        if len(some) == 1:
            return self.of(some[0], path)
        wider = _WIDER.get(frozenset(map(str, some)))
        if wider is None:
            raise self._problem(path, "is a union of several types, which no column holds")
        return _PLAIN[wider]

    def _problem(self, path: str, what: str) -> ConfigError:
        return ConfigError(
            f"{self._where}: {path or 'the schema'} {what}; give a reader's schema without it, or take the bytes "
            f"(pipeline.columns=raw)"
        )
