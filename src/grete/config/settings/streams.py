"""Settings of a stream, whichever of its names the keys have (Samza's StreamConfig).

A property such as `samza.bootstrap` may be set, from the first that counts to the last, as `streams.<id>.…`,
`systems.<system>.streams.<name>.…` and `systems.<system>.default.stream.…`; offset default and serdes also as
`systems.<system>.samza.…`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from grete.config import java_values
from grete.config.choices import OffsetDefault, PartitionerChoice, PipelineColumns
from grete.config.key import Key
from grete.config.key_tables import streams as keys
from grete.config.key_tables.job import DEFAULT_SYSTEM
from grete.config.redact import redact_value
from grete.config.settings.section import Section
from grete.errors import ConfigError
from grete.model.ids import SystemStream

T = TypeVar("T")
_OFFSET_DEFAULT = "samza.offset.default"


@dataclass(frozen=True)
class StreamSettings(Section):
    """The settings of one stream, each read when it is first asked for.

    Raises:
        ConfigError: from a setting that is of another form than its key's, naming the key that sets it; from each of
            them when several ids are mapped to the stream.
    """

    stream: SystemStream

    @cached_property
    def offset_default(self) -> OffsetDefault:
        """Where to start without a checkpoint, `upcoming` by default; a side input always at the oldest message."""
        if self.is_side_input:
            return OffsetDefault.OLDEST
        found = self._value(keys.STREAM_OFFSET, self._with_system(_OFFSET_DEFAULT))
        return found or OffsetDefault.UPCOMING

    @cached_property
    def is_reset(self) -> bool:
        """Whether the checkpoint is ignored at each start."""
        return bool(self._read(keys.STREAM_RESET)) and not self.is_side_input

    @cached_property
    def is_bootstrap(self) -> bool:
        """Whether the stream is read to its end before the others."""
        return bool(self._read(keys.STREAM_BOOTSTRAP)) or self.is_side_input

    @cached_property
    def is_side_input(self) -> bool:
        """Whether it fills a store, and does not come to `process`."""
        return any(self.stream in streams for streams in side_inputs(self.raw).values())

    @cached_property
    def partitions(self) -> int | None:
        """With how many partitions the stream is created, when it says so itself."""
        return self._read(keys.STREAM_PARTITIONS)

    @cached_property
    def partitioner(self) -> PartitionerChoice:
        """How the partition of a key that is sent to Kafka is computed."""
        return self._read(keys.STREAM_PARTITIONER) or PartitionerChoice.SAMZA

    @cached_property
    def columns(self) -> PipelineColumns:
        """The form in which a DataFrame pipeline has the stream's keys and values."""
        return self._read(keys.STREAM_COLUMNS) or PipelineColumns.RAW

    @cached_property
    def retention_ms(self) -> int | None:
        """How long the embedded system keeps records; None for ever."""
        return _limit(self._read(keys.STREAM_RETENTION_MS))

    @cached_property
    def retention_bytes(self) -> int | None:
        """How much of each partition the embedded system keeps; None everything."""
        return _limit(self._read(keys.STREAM_RETENTION_BYTES))

    @cached_property
    def key_serde(self) -> tuple[str, str] | None:
        """(key, name) of the serde of the stream's keys; None is bytes."""
        return self._with_system("samza.key.serde")

    @cached_property
    def msg_serde(self) -> tuple[str, str] | None:
        """(key, name) of the serde of the stream's messages; None is bytes."""
        return self._with_system("samza.msg.serde")

    def text(self, name: str) -> str | None:
        """A property as it is written, None when it is not set."""
        found = self.find(name)
        return None if found is None else found[1]

    def find(self, name: str) -> tuple[str, str] | None:
        """The key and value that count for a property, such as `retention.ms`.

        A blank value hides those of the places after it, and counts as not set.
        """
        written = next((scope + name for scope in self._scopes if scope + name in self.raw), None)
        return self._said(written) if written else None

    def _with_system(self, name: str) -> tuple[str, str] | None:
        """As `find`, else the value for all streams of the system."""
        system = f"systems.{self.stream.system}."
        return self.find(name) or self._said(f"{system}default.stream.{name}") or self._said(system + name)

    def _said(self, key: str) -> tuple[str, str] | None:
        value = self.raw.get(key, "")
        return (key, value) if value.strip() else None

    def key(self, name: str) -> str:
        """The key to set for a property of this stream alone: by its id when it has one."""
        id_ = self._id or (self.stream.stream if _may_be_id(self.raw, self.stream) else None)
        place = f"streams.{id_}" if id_ else f"systems.{self.stream.system}.streams.{self.stream.stream}"
        return f"{place}.{name}"

    @cached_property
    def _id(self) -> str | None:
        return stream_id_of(self.raw, self.stream)

    @cached_property
    def _scopes(self) -> tuple[str, ...]:
        system, name = self.stream.system, self.stream.stream
        own = (f"streams.{self._id}.",) if self._id is not None else ()
        return (*own, f"systems.{system}.streams.{name}.", f"systems.{system}.default.stream.")

    def _read(self, key: Key[T]) -> T | None:
        return self._value(key, self.find(property_name(key)))

    def _value(self, key: Key[T], found: tuple[str, str] | None) -> T | None:
        if found is None:
            return None
        try:
            return key.type.read(found[1])
        except ValueError as error:
            shown = redact_value(found[0], found[1])
            raise ConfigError(f"{found[0]}={shown!r} of {self.stream}: {error}") from error


def _limit(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def property_name(key: Key[object]) -> str:
    """A key of streams without the part that names the stream: `samza.bootstrap`."""
    return key.name.removeprefix("streams.%s.")


# --- names of streams ---


def system_stream_from_names(text: str) -> SystemStream:
    """`StreamUtil.getSystemStreamFromNames`: split at the first dot; either side may be empty.

    Raises:
        ConfigError: no dot.
    """
    system, dot, stream = text.partition(".")
    if not dot:
        raise ConfigError(
            f"No '.' in stream name '{text}'. Stream names should be in the form 'system.stream'"
        )
    return SystemStream(system, stream)


def side_inputs(config: Mapping[str, str]) -> dict[str, tuple[SystemStream, ...]]:
    """The streams that fill a store, for each that has some, in their order and each once.

    Raises:
        ConfigError: an entry without a dot.
    """
    found = {}
    keys_of_stores = (key for key in config if key.startswith("stores.") and key.endswith(".side.inputs"))
    for key in sorted(key for key in keys_of_stores if key.count(".") == 3):
        streams = (_named(config, name) for name in java_values.split_commas(config[key]))
        found[key.split(".")[1]] = tuple(dict.fromkeys(streams))
    return {store: streams for store, streams in found.items() if streams}


def _named(config: Mapping[str, str], name: str) -> SystemStream:
    """`StreamUtil.getSystemStreamFromNameOrId`: a name without a dot is a stream's id.

    Raises:
        ConfigError: neither the id nor `job.default.system` says in which system it is.
    """
    system = stream_system(config, name) if "." not in name else None
    return (
        system_stream_from_names(name)
        if system is None
        else SystemStream(system, physical_name(config, name))
    )


def stream_system(config: Mapping[str, str], stream_id: str) -> str | None:
    """The system of a stream id: its own, else `job.default.system`."""
    return config.get(keys.STREAM_SYSTEM.named(stream_id), config.get(DEFAULT_SYSTEM.name))


def physical_name(config: Mapping[str, str], stream_id: str) -> str:
    """A stream id's name in its system: the id itself unless configured."""
    return config.get(keys.STREAM_NAME.named(stream_id), stream_id)


def stream_ids(config: Mapping[str, str]) -> list[str]:
    """Every stream id that has a property, sorted. An id holds no dot."""
    return sorted({key.split(".")[1] for key in config if key.startswith("streams.") and key.count(".") >= 2})


def stream_id_of(config: Mapping[str, str], stream: SystemStream) -> str | None:
    """The id of a stream's keys, None when there is none.

    It is the one that is mapped to the stream's system and name, as in Samza; else one of the name without a system,
    which Samza would overlook. A name with dots, which no id has, is its own id.

    Raises:
        ConfigError: several ids are mapped to it.
    """
    named = [id_ for id_ in stream_ids(config) if physical_name(config, id_) == stream.stream]
    found = [id_ for id_ in named if stream_system(config, id_) == stream.system]
    found = found or [id_ for id_ in named if stream_system(config, id_) is None]
    if len(found) > 1:
        raise ConfigError(f"streams {', '.join(found)} are all mapped to {stream}; keep one of them")
    if found:
        return found[0]
    return stream.stream if "." in stream.stream and _may_be_id(config, stream) else None


def _may_be_id(config: Mapping[str, str], stream: SystemStream) -> bool:
    """Whether keys with the stream's own name as the id would be the stream's, and no other's."""
    is_its_system = stream_system(config, stream.stream) in (None, stream.system)
    return is_its_system and physical_name(config, stream.stream) == stream.stream
