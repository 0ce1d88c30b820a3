"""The serdes grete ships, with the bytes that Samza's of the same name write."""

from __future__ import annotations

import importlib
import json
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grete.api import Serde
from grete.errors import ConfigError, WireError

try:
    from orjson import dumps, loads
except ImportError:  # an application's environment may be without

    def _refuse(text: str) -> Any:
        raise ValueError(f"{text} is no JSON")

    _encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    _decoder = json.JSONDecoder(parse_constant=_refuse)

    def dumps(value: Any, /) -> bytes:  # type: ignore[misc] # of its arguments only this one is used
        """As orjson, for what is JSON: no dates, no classes."""
        return _encoder.encode(value).encode()

    def loads(data: bytes, /) -> Any:  # type: ignore[misc] # only bytes are read
        """As orjson."""
        return _decoder.decode(data.decode())


_INTEGER = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")
_UUID_BYTES = 16


class BytesSerde(Serde):
    """Bytes as they are."""

    def to_bytes(self, value: Any) -> bytes | None:
        """See Serde."""
        if value is None or isinstance(value, bytes):
            return value
        raise WireError(f"the bytes serde takes bytes, got {type(value).__name__}; name another serde for it")

    def from_bytes(self, data: bytes | None) -> Any:
        """See Serde."""
        return data


class StringSerde(Serde):
    """UTF-8 text (Samza's StringSerde)."""

    def to_bytes(self, value: Any) -> bytes | None:
        """See Serde. A value that is not a str is refused rather than turned into its repr."""
        if value is None:
            return None
        if not isinstance(value, str):
            raise WireError(f"the string serde takes str, got {type(value).__name__}")
        return value.encode()

    def from_bytes(self, data: bytes | None) -> Any:
        """See Serde."""
        return None if data is None else data.decode()


class JsonSerde(Serde):
    """JSON in UTF-8 (S2-123). NaN and lone surrogates are refused: what we write every parser can read."""

    def to_bytes(self, value: Any) -> bytes | None:
        """See Serde."""
        # copied for the reason that compact_json gives; every message goes through here, so inlined
        return None if value is None else b"%b" % dumps(value)

    def from_bytes(self, data: bytes | None) -> Any:
        """See Serde."""
        return None if data is None else loads(data)


class _StructSerde(Serde):
    _form: struct.Struct
    _name: str

    def to_bytes(self, value: Any) -> bytes | None:
        """See Serde."""
        if value is None:
            return None
        try:
            return self._form.pack(value)
        except struct.error as error:
            raise WireError(f"{value!r} does not fit the {self._name} serde: {error}") from error

    def from_bytes(self, data: bytes | None) -> Any:
        """See Serde."""
        if data is None:
            return None
        if len(data) != self._form.size:
            raise WireError(f"the {self._name} serde reads {self._form.size} bytes, got {len(data)}")
        return self._form.unpack(data)[0]


class IntegerSerde(_StructSerde):
    """A signed 32-bit integer, big endian (Samza's IntegerSerde)."""

    _form = _INTEGER
    _name = "integer"


class LongSerde(_StructSerde):
    """A signed 64-bit integer, big endian (Samza's LongSerde)."""

    _form = _LONG
    _name = "long"


class DoubleSerde(_StructSerde):
    """A 64-bit floating point number, big endian (Samza's DoubleSerde)."""

    _form = _DOUBLE
    _name = "double"


class UuidSerde(Serde):
    """The 16 bytes of a `uuid.UUID`, big endian (Samza's UUIDSerde)."""

    def to_bytes(self, value: Any) -> bytes | None:
        """See Serde."""
        if value is None:
            return None
        if not isinstance(value, uuid.UUID):
            raise WireError(f"the uuid serde takes uuid.UUID, got {type(value).__name__}")
        return value.bytes

    def from_bytes(self, data: bytes | None) -> Any:
        """See Serde."""
        if data is None:
            return None
        if len(data) != _UUID_BYTES:
            raise WireError(f"the uuid serde reads {_UUID_BYTES} bytes, got {len(data)}")
        return uuid.UUID(bytes=data)


BUILT_IN: Mapping[str, Callable[[], Serde]] = {
    "bytes": BytesSerde,
    "string": StringSerde,
    "json": JsonSerde,
    "integer": IntegerSerde,
    "long": LongSerde,
    "double": DoubleSerde,
    "uuid": UuidSerde,
}
"""Those that need nothing but their name."""


def base_of(serde: Serde) -> str:
    """The name of the built-in serde that this one is or derives from; bytes when there is none."""
    names = {kind: name for name, kind in BUILT_IN.items()}
    return next((names[kind] for kind in type(serde).__mro__ if kind in names), "bytes")


@dataclass(frozen=True, slots=True)
class StreamSerdes:
    """Serdes of keys and of messages (values)."""

    key: Serde
    message: Serde


def values_of(values: Sequence[bytes | None], serde: Serde, *, has_nulls: bool) -> Iterable[Any]:
    """What a task sees of them, in order; each is made, and fails, only when it is asked for.

    A serde of the application's own, a subclass included, gets every value through its `from_bytes`.
    """
    kind = type(serde)
    if kind is BytesSerde:
        return values
    if not has_nulls and kind in _PLAIN:
        return map(_PLAIN[kind], values)
    return map(serde.from_bytes, values)


_PLAIN: Mapping[type[Serde], Callable[[Any], Any]] = {StringSerde: bytes.decode, JsonSerde: loads}
"""The functions that the serdes are, but for None."""


def load_own_serde(path: str, name: str, config: Mapping[str, str]) -> Serde:
    """The application's serde `module:Class`, registered as `name`.

    Raises:
        ConfigError: it cannot be loaded, or is none.
    """
    module_name, _, attribute = path.partition(":")
    key = f"serializers.registry.{name}.class"
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}: cannot load {path!r} ({error})") from error
    made = factory.from_config(name, config) if hasattr(factory, "from_config") else factory()
    if not isinstance(made, Serde):
        raise ConfigError(f"{key}: {path!r} is not a grete.Serde")
    return made
