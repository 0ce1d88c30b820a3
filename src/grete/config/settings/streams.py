"""Settings of a stream, whichever of its names the keys have (Samza's StreamConfig).

A property such as `samza.bootstrap` may be set, from the first that counts to the last, as `streams.<id>.…`,
`systems.<system>.streams.<name>.…` and `systems.<system>.default.stream.…`; offset default and serdes also as
`systems.<system>.samza.…`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from grete.config.choices import OffsetDefault, PartitionerChoice
from grete.config.key import Key
from grete.config.key_tables import streams as keys
from grete.config.redact import redact_value
from grete.config.settings.section import Section
from grete.config.streams import may_be_id, stream_id_of
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
        """Where to start without a checkpoint, `upcoming` by default."""
        found = self._value(keys.STREAM_OFFSET, self._with_system(_OFFSET_DEFAULT))
        return found or OffsetDefault.UPCOMING

    @cached_property
    def is_reset(self) -> bool:
        """Whether the checkpoint is ignored at each start."""
        return bool(self._read(keys.STREAM_RESET))

    @cached_property
    def is_bootstrap(self) -> bool:
        """Whether the stream is read to its end before the others."""
        return bool(self._read(keys.STREAM_BOOTSTRAP))

    @cached_property
    def partitions(self) -> int | None:
        """With how many partitions the stream is created, when it says so itself."""
        return self._read(keys.STREAM_PARTITIONS)

    @cached_property
    def partitioner(self) -> PartitionerChoice:
        """How the partition of a key that is sent to Kafka is computed."""
        return self._read(keys.STREAM_PARTITIONER) or PartitionerChoice.SAMZA

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
        id_ = self._id or (self.stream.stream if may_be_id(self.raw, self.stream) else None)
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
        return self._value(key, self.find(key.name.removeprefix("streams.%s.")))

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
