"""`grete stream append`: lines of a file or of standard input become records of a stream."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from grete.cli.options import opened_file
from grete.cli.output import print_json
from grete.cli.stream_system import opened_system
from grete.errors import ConfigError, StreamError
from grete.extras import require
from grete.model.streams import Headers
from grete.suggestions import or_one_of
from grete.wire import compact_json

if TYPE_CHECKING:
    from grete.systems.base import Message, System

    ToMessage = Callable[[bytes], Message]

_LONGEST_LINE = 64 * 1024 * 1024
_BATCH_BYTES = 64 * 1024 * 1024
_RECORDS_OF_A_BATCH = 20_000
_LAST_MS = 2**63 - 1
_FIELDS = ("key", "value", "partition", "timestamp_ms", "headers")


def append(options: argparse.Namespace) -> int:
    """Append the lines, a batch at a time; each batch all or none, durable before the next is read."""
    name = options.stream
    to_message: ToMessage = _record
    if options.key_field is not None:
        to_message = _keyed_by(options.key_field)
    elif options.lines:
        to_message = _line
    with ExitStack() as stack:
        source = _source(options.from_file, stack)
        system = stack.enter_context(opened_system(options, name.system, must_exist=False))
        if system.capabilities.is_embedded:
            require("arrow")
        partitions = _Partitions(system, name.stream)  # before a line is read: is there such a stream?
        messages = _messages(source, options.from_file, to_message, partitions)
        appended = _append(system, name.stream, messages, options.batch)
    if options.output == "json":
        print_json({"stream": str(name), "appended": appended})
    else:
        print(f"{appended:,} records appended to {name}")
    return 0


def append_lines(system: System, stream: str, path: Path) -> int:
    """Append each line of a file as a value without a key; returns how many.

    Raises:
        ConfigError: a line is too long.
        StreamError: the system refuses a record.
    """
    with path.open("rb") as source:
        messages = _messages(source, str(path), _line, _Partitions(system, stream))
        return _append(system, stream, messages, _RECORDS_OF_A_BATCH)


def _append(system: System, stream: str, messages: Iterator[Message], records: int) -> int:
    """Append them, so many at a time; returns how many. An error says how many were."""
    appended = 0
    try:
        while batch := list(_batch(messages, records)):
            appended += system.append(stream, batch)
    except (ConfigError, StreamError) as error:
        kind = ConfigError if isinstance(error, ConfigError) else StreamError
        raise kind(f"{error}; {appended:,} records of earlier lines were appended") from error
    return appended


def _source(path: str, stack: ExitStack) -> BinaryIO:
    return sys.stdin.buffer if path == "-" else stack.enter_context(opened_file(path))


class _Partitions:
    """The partitions that a stream has; it may grow while lines are waited for."""

    def __init__(self, system: System, stream: str) -> None:
        self._system, self._stream = system, stream
        self._count = system.partition_count(stream)

    def check(self, partition: int) -> None:
        """Refuse one that the stream does not have.

        Raises:
            ConfigError: that is so.
        """
        from grete.systems.base import check_partition

        if partition >= self._count:
            self._count = self._system.partition_count(self._stream)
        try:
            check_partition(self._stream, partition, self._count)
        except StreamError as error:
            raise ConfigError(str(error)) from error


def _messages(
    source: BinaryIO, path: str, to_message: ToMessage, partitions: _Partitions
) -> Iterator[Message]:
    """The message of each line.

    Raises:
        ConfigError: there is none in a line; names file and line.
    """
    where = "standard input" if path == "-" else path
    for number, line in _lines(source, where):
        try:
            message = to_message(line)
            if message.partition is not None:
                partitions.check(message.partition)
        except ConfigError as error:
            raise ConfigError(f"{where}, line {number}: {error}") from error
        yield message


def _batch(messages: Iterator[Message], records: int) -> Iterator[Message]:
    """The next messages, at most so many and not many more bytes than a transaction takes well."""
    size = 0
    for message in islice(messages, records):
        yield message
        size += len(message.key or b"") + len(message.value or b"")
        if size >= _BATCH_BYTES:
            return


def _lines(source: BinaryIO, where: str) -> Iterator[tuple[int, bytes]]:
    for number in count(1):
        line = source.readline(_LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > _LONGEST_LINE:
            raise ConfigError(
                f"{where}, line {number}: it is longer than {_LONGEST_LINE:,} bytes; a record has at most that"
            )
        stripped = line.rstrip(b"\r\n")
        if stripped:
            yield number, stripped


def _record(line: bytes) -> Message:
    """`{"key": .., "value": .., "partition": .., "timestamp_ms": .., "headers": {..}}`; value has to be there."""
    from grete.systems.base import Message

    document = _object(line)
    unknown = sorted(set(document) - set(_FIELDS))
    if "value" not in document or unknown:
        found = f"unknown: {', '.join(unknown)}" if unknown else "value is missing"
        raise ConfigError(
            f"a record has {', '.join(_FIELDS)} ({found}); for lines that are themselves the values "
            f"give --key-field FIELD or --lines"
        )
    return Message(
        _bytes(document.get("key")),
        _bytes(document["value"]),
        _timestamp(document),
        _whole(document, "partition"),
        _headers(document.get("headers")),
    )


def _headers(given: Any) -> Headers:
    if given is not None and not isinstance(given, dict):
        raise ConfigError(f"headers are an object, got {given!r:.100}")
    return [(name, _bytes(value)) for name, value in (given or {}).items()]


def _timestamp(document: dict[str, Any]) -> int:
    given = _whole(document, "timestamp_ms")
    if given is None:
        return _now_ms()
    if not 0 <= given <= _LAST_MS:
        raise ConfigError(f"timestamp_ms is 0 to {_LAST_MS}, got {given}")
    return given


def _keyed_by(field: str) -> ToMessage:
    """The line, a JSON object, is the value; one of its fields is the key."""
    from grete.systems.base import Message

    def message(line: bytes) -> Message:
        document = _object(line)
        if field not in document:
            raise ConfigError(
                f"it has no field {field!r}, which --key-field names{or_one_of(field, document)}"
            )
        return Message(_bytes(document[field]), line, _now_ms())

    return message


def _line(line: bytes) -> Message:
    """The line is the value; there is no key."""
    from grete.systems.base import Message

    return Message(None, line, _now_ms())


def _object(line: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError("it is no JSON object")
    return document


def _whole(document: dict[str, Any], field: str) -> int | None:
    value = document.get(field)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ConfigError(f"{field} is a whole number, got {value!r:.100}")


def _bytes(value: Any) -> bytes | None:
    """Text as UTF-8, anything else as JSON; null is no key, or as a value a tombstone."""
    if value is None:
        return None
    try:
        return value.encode() if isinstance(value, str) else compact_json.dumps(value)
    except TypeError as error:
        raise ConfigError(f"a value cannot be written as JSON: {error}") from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
