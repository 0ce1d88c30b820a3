"""Avro through fastavro: one fixed schema, no container, no registry header."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import orjson

from grete.api import Serde
from grete.config.key_tables.serdes import SERDE_SCHEMA
from grete.config.settings import Settings
from grete.errors import ConfigError, MissingExtra, WireError

UNREADABLE = (EOFError, LookupError, ValueError, TypeError, ArithmeticError)
"""Errors of fastavro for bytes that are none of a schema."""


class AvroSchema:
    """A parsed schema that reads and writes data."""

    def __init__(self, schema: Any) -> None:
        """Parse it.

        Raises:
            MissingExtra: fastavro is not installed.
            WireError: it is no Avro schema.
        """
        try:
            import fastavro
        except ImportError as error:
            raise MissingExtra("fastavro", "avro") from error
        self._fastavro = fastavro
        try:
            self.parsed = fastavro.parse_schema(schema)
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, *UNREADABLE) as error:
            raise WireError(f"no Avro schema: {error!r}") from error

    def write(self, value: Any, out: io.BytesIO) -> None:
        """Write a datum.

        Raises:
            WireError: it is none of the schema.
        """
        try:
            self._fastavro.schemaless_writer(out, self.parsed, value)
        except (AttributeError, *UNREADABLE) as error:
            raise WireError(f"not of the Avro schema: {error!r}") from error

    def read(self, source: io.BytesIO, size: int, reader: AvroSchema | None = None) -> Any:
        """Read the datum that ends at `size`, written with this schema, as one of the schema `reader`.

        Raises:
            WireError: it is none.
        """
        try:
            value = self._fastavro.schemaless_reader(
                source, self.parsed, None if reader is None else reader.parsed
            )
        except (self._fastavro.read.SchemaResolutionError, *UNREADABLE) as error:
            raise WireError(f"not Avro of the configured schema: {error!r}") from error
        if source.tell() != size:
            raise WireError(f"{size - source.tell()} bytes follow the Avro datum")
        return value


class AvroSerde(Serde):
    """Schemaless Avro. The schema is `serializers.registry.<name>.schema`: JSON text or the path of a file."""

    def __init__(self, schema: Any) -> None:
        self._schema = AvroSchema(schema)

    @classmethod
    def from_config(cls, name: str, settings: Settings) -> AvroSerde:
        """The serde that `serializers.registry.<name>.schema` describes.

        Raises:
            ConfigError: no schema, or it is not Avro's.
        """
        schema = configured_schema(name, settings)
        if schema is None:
            raise ConfigError(
                f"{SERDE_SCHEMA.named(name)} is missing: the avro serde {name!r} needs a schema (JSON or a "
                f"file's path)"
            )
        try:
            return cls(schema)
        except WireError as error:
            raise ConfigError(f"{SERDE_SCHEMA.named(name)}: {error}") from error

    def to_bytes(self, value: Any) -> bytes | None:
        """See Serde."""
        if value is None:
            return None
        out = io.BytesIO()
        self._schema.write(value, out)
        return out.getvalue()

    def from_bytes(self, data: bytes | None) -> Any:
        """See Serde."""
        return None if data is None else self._schema.read(io.BytesIO(data), len(data))


def schema_text(name: str, settings: Settings) -> str | None:
    """What `serializers.registry.<name>.schema` says, or the file that it names; None when it is not set.

    Raises:
        ConfigError: the file cannot be read.
    """
    text = settings.serde(name).schema
    if text is None or text.lstrip().startswith(("{", "[", '"')):
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if " " in text.strip():
            return text
        raise ConfigError(f"{SERDE_SCHEMA.named(name)}: cannot read the schema ({error})") from error


def configured_schema(name: str, settings: Settings) -> Any | None:
    """The Avro schema of a serde as JSON; None when none is set.

    Raises:
        ConfigError: it cannot be read, or is no JSON.
    """
    text = schema_text(name, settings)
    try:
        return None if text is None else orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{SERDE_SCHEMA.named(name)}: cannot read the Avro schema ({error})") from error
