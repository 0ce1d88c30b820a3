"""Records of a stream for people: read a partition from somewhere, and show bytes as what they are or may be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from grete.api import Serde
from grete.application.serdes import BUILT_IN
from grete.config.settings import Settings
from grete.errors import GreteError
from grete.model.ids import SystemStream
from grete.model.streams import Headers
from grete.systems.admin import PartitionOffsets
from grete.systems.base import System

Decode = Callable[[bytes | None], Any]


class StreamRecord(NamedTuple):
    """A record of a partition, undecoded."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class Decoders(NamedTuple):
    """How keys and values of a stream or store are shown."""

    key: Decode
    value: Decode


def read_records(system: System, stream: str, partition: int, start: int) -> Iterator[StreamRecord]:
    """Records from `start` on, one segment in memory at a time."""
    from grete.systems.records import rows_of  # Arrow, which other commands do not need

    for first, batch in system.read(stream, partition, start):
        for row in rows_of(first, batch):
            yield StreamRecord(partition, *row)


def records_until(
    system: System, stream: str, partition: int, start: int, end: int
) -> Iterator[StreamRecord]:
    """Records from `start` on that are before `end`: what has come since is not looked at."""
    for record in read_records(system, stream, partition, start):
        if record.offset >= end:
            break
        yield record


def oldest_offset(system: System, stream: str, partition: int) -> int:
    """Where reading a partition begins; asks the system."""
    return first_offset(system.offsets(stream)[partition])


def first_offset(offsets: PartitionOffsets) -> int:
    """Where reading a partition with these offsets begins."""
    return int(offsets.oldest or offsets.upcoming)


def stream_decoders(stream: SystemStream, settings: Settings) -> Decoders:
    """Those of the serdes that the configuration names; see `_decode_by`."""
    own = settings.stream(stream)
    key, value = (None if said is None else said[1] for said in (own.key_serde, own.msg_serde))
    return Decoders(_decode_by(key, settings), _decode_by(value, settings))


def store_decoders(store: str, settings: Settings) -> Decoders:
    """As `stream_decoders`, of a store and its changelog."""
    own = settings.store(store)
    return Decoders(_decode_by(own.key_serde, settings), _decode_by(own.msg_serde, settings))


def _decode_by(name: str | None, settings: Settings) -> Decode:
    """A serde of grete's that needs no server, else `decoded`: no code of the application runs to show a record.

    What the serde cannot read is shown as what it may be, too.
    """
    serde: Serde | None = None
    if name is not None:
        implementation = settings.serde(name).implementation
        if implementation in BUILT_IN and implementation != "bytes":
            serde = BUILT_IN[implementation]()
        elif implementation == "avro":
            from grete.serdes.avro import AvroSerde  # its library, which few configurations need

            serde = AvroSerde.from_config(name, settings)
    if serde is None:
        return decoded
    read = serde.from_bytes

    def decode(data: bytes | None) -> Any:
        try:
            return read(data)
        except (GreteError, ValueError, TypeError, LookupError, EOFError, RecursionError):
            return decoded(data)

    return decode


def decoded(data: bytes | None) -> Any:
    """Bytes for people: a JSON object or array as such, other UTF-8 as text, the rest as {"hex": ..}."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
