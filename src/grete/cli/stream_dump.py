"""`grete stream dump|tail`: records of a coordinator stream, of a keyed log, or of a stream, one JSON object a line.

With `--raw` key and value are hex, so that every byte is seen; without, they are decoded and secrets masked.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grete.cli.options import named_job, opened_job
from grete.cli.output import print_json_line
from grete.cli.stream_system import (
    EMBEDDED,
    opened_system,
    options_settings,
)
from grete.errors import ConfigError, StreamNotFound, WireError
from grete.extras import require
from grete.metadata.channels import CHANNEL
from grete.operations.stream_records import StreamRecord, decoded, oldest_offset, read_records

if TYPE_CHECKING:
    from grete.keyed_log.base import KeyedLog, Record
    from grete.model.ids import SystemStream
    from grete.systems.base import System

_POLL_S = 0.2


def dump(options: argparse.Namespace) -> int:
    """Every record."""
    if name := _named_stream(options):
        require("arrow")
        with opened_system(options, name.system) as system:
            for partition in _partitions(system, name.stream, options.partition):
                start = oldest_offset(system, name.stream, partition)
                for message in read_records(system, name.stream, partition, start):
                    _print_stream_record(message, raw=options.raw)
        return 0
    with _log(options) as (log, show):
        for record in log.read():
            show(record)
    return 0


def tail(options: argparse.Namespace) -> int:
    """The last records, and with `-f` what comes."""
    if name := _named_stream(options):
        require("arrow")
        with opened_system(options, name.system) as system:
            _tail_stream(system, name.stream, options)
        return 0
    with _log(options) as (log, show):
        _tail_log(log, show, options)
    return 0


def _named_stream(options: argparse.Namespace) -> SystemStream | None:
    """The stream that is named in one of the two ways; None means the job's coordinator stream or a log."""
    name: SystemStream | None = options.stream or options.named_stream
    return name


def _partitions(system: System, stream: str, only: int | None) -> list[int]:
    count = system.partition_count(stream)
    if only is None:
        return list(range(count))
    if not 0 <= only < count:
        raise StreamNotFound(f"{stream} has partitions 0 to {count - 1}, not {only}")
    return [only]


def _tail_stream(system: System, stream: str, options: argparse.Namespace) -> None:
    position = {}
    for partition in _partitions(system, stream, options.partition):
        offsets = system.offsets(stream)[partition]
        position[partition] = max(int(offsets.oldest or offsets.upcoming), int(offsets.upcoming) - options.n)
    while True:
        for partition, start in position.items():
            for record in read_records(system, stream, partition, start):
                _print_stream_record(record, raw=options.raw)
                position[partition] = record.offset + 1
        sys.stdout.flush()
        if not options.follow:
            return
        time.sleep(_POLL_S)


def _tail_log(log: KeyedLog, show: Callable[[Record], None], options: argparse.Namespace) -> None:
    last = deque(log.read(), maxlen=options.n)
    position = log.end() if not last else last[-1].offset
    for record in last:
        show(record)
    sys.stdout.flush()
    while options.follow:
        log.wait(position, _POLL_S)
        for record in log.read(position):
            show(record)
            position = record.offset
        sys.stdout.flush()


def _require_a_job(options: argparse.Namespace) -> None:
    """Refuse what names nothing, where it is not clear either whose coordinator stream is meant.

    Raises:
        ConfigError: nothing is named, and there is not exactly one job.
    """
    if options.job or options.config:
        return
    try:
        named_job(options, None)
    except ConfigError as error:
        raise ConfigError(
            f"no stream is named, as SYSTEM.STREAM or --stream SYSTEM.STREAM, and it is not clear which job's "
            f"coordinator stream is meant: {error}"
        ) from error


@contextmanager
def _log(options: argparse.Namespace) -> Iterator[tuple[KeyedLog, Callable[[Record], None]]]:
    """The log that the options name, the job's coordinator stream by default, and what prints its records."""
    if not options.log:
        _require_a_job(options)
        with opened_job(options) as handle:
            yield handle.coordinator_log, lambda record: _print_coordinator_record(record, raw=options.raw)
        return
    name = options_settings(options).task.commit_system
    with opened_system(options, name) as system:
        log = None
        if (
            name == EMBEDDED or options.log in system.streams()
        ):  # opening a topic that is not there would make it
            log = system.checkpoint_log(options.log)
        if log is None or log.end() < 0:
            raise StreamNotFound(
                f"there is no log {options.log!r} in the system {name!r}; a job's checkpoints are in "
                f"__samza_checkpoint_ver_1_for_NAME_ID"
            )
        yield log, lambda record: _print_log_record(record, raw=options.raw)


def _print_raw(record: Record) -> None:
    value = None if record.value is None else record.value.hex()
    print_json_line({"offset": record.offset, "key": record.key.hex(), "value": value})


def _print_log_record(record: Record, *, raw: bool) -> None:
    if raw:
        _print_raw(record)
        return
    print_json_line({"offset": record.offset, "key": decoded(record.key), "value": decoded(record.value)})


def _print_coordinator_record(record: Record, *, raw: bool) -> None:
    from grete.wire.coordinator_message import decode

    if raw:
        _print_raw(record)
        return
    try:
        message = decode(record.key, record.value)
    except WireError as error:
        print_json_line({"offset": record.offset, "error": str(error)})
        return
    values = None if message.values is None else dict(message.values)
    if values is not None and message.type.lower() in ("set-config", CHANNEL) and "value" in values:
        from grete.config.redact import redact_value

        # the channel's value is the token that containers on other machines prove
        values["value"] = redact_value(message.key, str(values["value"]))
    source = None if message.origin is None else message.origin.source
    print_json_line(
        {
            "offset": record.offset,
            "type": message.type,
            "key": message.key,
            "values": values,
            "source": source,
        }
    )


def _print_stream_record(record: StreamRecord, *, raw: bool) -> None:
    show: Callable[[bytes | None], Any] = _hex if raw else decoded
    headers = [(name, show(value)) for name, value in record.headers]
    print_json_line(
        {
            "partition": record.partition,
            "offset": record.offset,
            "key": show(record.key),
            "value": show(record.value),
            "timestamp_ms": record.timestamp_ms,
            **({"headers": headers} if headers else {}),
        }
    )


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
