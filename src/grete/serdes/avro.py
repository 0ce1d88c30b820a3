"""Avro through fastavro: one fixed schema, no container, no registry header."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from grete.api import Serde
from grete.errors import ConfigError, MissingExtra, WireError


class AvroSerde(Serde):
    """Schemaless Avro. The schema is `serializers.registry.<name>.schema`: JSON text or the path of a file."""

    def __init__(self, schema: Any) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise MissingExtra("fastavro", "avro") from error
        self._fastavro = fastavro
        self._schema = fastavro.parse_schema(schema)

    @classmethod
    def from_config(cls, name: str, config: Mapping[str, str]) -> AvroSerde:
        """The serde that `serializers.registry.<name>.schema` describes.

        Raises:
            ConfigError: no schema, or it is not JSON.
        """
        key = f"serializers.registry.{name}.schema"
        text = config.get(key)
        if text is None:
            raise ConfigError(
                f"{key} is missing: the avro serde {name!r} needs a schema (JSON or a file's path)"
            )
        try:
            if not text.lstrip().startswith(("{", "[", '"')):
                text = Path(text).read_text(encoding="utf-8")
            return cls(orjson.loads(text))
        except (OSError, orjson.JSONDecodeError) as error:
            raise ConfigError(f"{key}: cannot read the Avro schema ({error})") from error

    def to_bytes(self, value: Any) -> bytes | None:
        """See Serde."""
        if value is None:
            return None
        out = io.BytesIO()
        self._fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()

    def from_bytes(self, data: bytes | None) -> Any:
        """See Serde."""
        if data is None:
            return None
        source = io.BytesIO(data)
        try:
            value = self._fastavro.schemaless_reader(source, self._schema, None)
        except (EOFError, IndexError, UnicodeDecodeError, OverflowError) as error:
            raise WireError(f"not Avro of the configured schema: {error!r}") from error
        if source.tell() != len(data):
            raise WireError(f"{len(data) - source.tell()} bytes follow the Avro datum")
        return value
