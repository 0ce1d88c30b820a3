"""Avro with a schema registry, in the wire format of Confluent's serializers: a zero, the schema's number in four
bytes, the datum.

Records are read with the schema that they were written with, as one of the reader's, which is
`serializers.registry.<name>.schema` where it is set, else the writer's own. The registry is asked once for each
number.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import orjson

from grete.api import Serde
from grete.config.key_tables.serdes import REGISTRY_REGISTERS, REGISTRY_SUBJECT, SERDE_SCHEMA
from grete.config.settings import Settings
from grete.errors import ConfigError, WireError
from grete.serdes.avro import AvroSchema, configured_schema
from grete.serdes.schema_registry import SchemaNotFound, SchemaRegistry

_HEAD = struct.Struct(">bI")
_MAGIC = 0


class RegistryAvroSerde(Serde):
    """Reads and writes data whose schemas a registry has. Nothing is asked before the first datum."""

    def __init__(
        self, registry: SchemaRegistry, subject: str, schema: Any | None, *, registers: bool = False
    ) -> None:
        """`schema` is the reader's, and that of what is written; without it the newest of `subject` is written."""
        self._registry = registry
        self._subject = subject
        self._schema = None if schema is None else AvroSchema(schema)
        self._source = schema
        self._registers = registers
        self._writers: dict[int, AvroSchema] = {}
        self._written: tuple[int, AvroSchema] | None = None

    @classmethod
    def from_config(cls, name: str, settings: Settings, subject: str | None) -> RegistryAvroSerde:
        """The serde that `serializers.registry.<name>.*` describes; `subject` is the default one.

        Raises:
            ConfigError: there is no address or subject, or the schema is not Avro's.
        """
        own = settings.serde(name)
        named = own.subject or subject
        if named is None:
            raise ConfigError(f"{REGISTRY_SUBJECT.named(name)} is not set: {REGISTRY_SUBJECT.doc}")
        registry = SchemaRegistry(own.registry_url, own.registry_login, own.ca_file)
        schema = configured_schema(name, settings)
        try:
            return cls(registry, named, schema, registers=own.registers)
        except WireError as error:
            raise ConfigError(f"{SERDE_SCHEMA.named(name)}: {error}") from error

    def newest_schema(self) -> Any:
        """The reader's schema, else the newest of the subject.

        Raises:
            ConfigError: the registry has none under the subject.
            StreamUnreachable, LoginRefused: see SchemaRegistry.
        """
        return self._source if self._source is not None else self._newest()[1]

    def to_bytes(self, value: Any) -> bytes | None:
        """See Serde.

        Raises:
            ConfigError: the registry does not have the schema.
            StreamUnreachable, LoginRefused: see SchemaRegistry.
        """
        if value is None:
            return None
        if self._written is None:
            self._written = self._writer()
        number, schema = self._written
        out = io.BytesIO()
        out.write(_HEAD.pack(_MAGIC, number))
        schema.write(value, out)
        return out.getvalue()

    def _writer(self) -> tuple[int, AvroSchema]:
        if self._schema is None:
            number, schema = self._newest()
            return number, AvroSchema(schema)
        text = orjson.dumps(self._source).decode()
        if self._registers:
            return self._registry.register(self._subject, text), self._schema
        try:
            return self._registry.number_of(self._subject, text), self._schema
        except SchemaNotFound as error:
            raise ConfigError(
                f"{error}: register the schema that is written, or set {REGISTRY_REGISTERS.name} to true"
            ) from error

    def _newest(self) -> tuple[int, Any]:
        try:
            return self._registry.newest(self._subject)
        except SchemaNotFound as error:
            raise ConfigError(f"{error}: register a schema, or set {SERDE_SCHEMA.name}") from error

    def from_bytes(self, data: bytes | None) -> Any:
        """See Serde.

        Raises:
            WireError: it is not of the format, or its schema is not in the registry.
            StreamUnreachable, LoginRefused: see SchemaRegistry.
        """
        if data is None:
            return None
        if len(data) < _HEAD.size or data[0] != _MAGIC:
            raise WireError(
                "not in a schema registry's format: it does not begin with a zero and a schema's number"
            )
        number = _HEAD.unpack_from(data)[1]
        writer = self._writers.get(number)
        if writer is None:
            writer = self._writers[number] = self._of_number(number)
        source = io.BytesIO(data)
        source.seek(_HEAD.size)
        return writer.read(source, len(data), self._schema)

    def _of_number(self, number: int) -> AvroSchema:
        try:
            return AvroSchema(self._registry.schema(number))
        except SchemaNotFound as error:
            raise WireError(str(error)) from error
