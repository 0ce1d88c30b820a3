"""`grete stream write|dump|tail|append|create|list`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from grete.cli.options import add_job_options, opened_job, print_json, print_table
from grete.errors import ConfigError, WireError

_APPEND_BATCH = 20_000
_TAIL_POLL_S = 0.2


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    write = actions.add_parser("write", help="write a message to a job's coordinator stream")
    add_job_options(write)
    write.add_argument("--type", default="set-config", help="set-config, as Samza's writer")
    write.add_argument("--key", required=True)
    write.add_argument("--value", required=True)
    write.add_argument("--reason", default="grete stream write")
    write.add_argument("--force", action="store_true", help="skip validation and the set-once guard")
    write.set_defaults(run=_write)
    dump = actions.add_parser("dump", help="every record of a job's coordinator stream, or of a stream")
    tail = actions.add_parser("tail", help="records of a stream as they come")
    for sub, run in ((dump, _dump), (tail, _tail)):
        add_job_options(sub)
        sub.add_argument("--raw", action="store_true", help="one JSON object a line, key and value in hex")
        sub.set_defaults(run=run)
    dump.add_argument("--stream", help="system.stream, instead of the coordinator stream")
    tail.add_argument("stream", help="system.stream")
    append = actions.add_parser(
        "append", help="append JSON lines {key, value, partition} from standard input"
    )
    append.add_argument("stream", help="system.stream")
    append.add_argument("--from-file", default="-", help="a file instead of standard input")
    append.set_defaults(run=_append)
    create = actions.add_parser("create", help="create a stream")
    create.add_argument("stream", help="system.stream")
    create.add_argument("--partitions", type=int, default=1)
    create.add_argument("--compacted", action="store_true")
    create.set_defaults(run=_create)
    list_ = actions.add_parser("list", help="the streams of the embedded system")
    list_.add_argument("-o", "--output", choices=("table", "json"), default="table")
    list_.set_defaults(run=_list)


def _write(options: argparse.Namespace) -> int:
    if options.type.lower() != "set-config":
        raise ConfigError(f"--type {options.type!r}: only set-config can be written by hand")
    if not options.key.strip():
        raise ConfigError("--key must not be blank")
    with opened_job(options) as handle:
        changes = handle.set_config({options.key: options.value}, reason=options.reason, force=options.force)
    print(f"{options.key} written" if changes else f"{options.key} has this value already")
    return 0


def _dump(options: argparse.Namespace) -> int:
    if options.stream:
        with _system() as system:
            for partition in range(system.partition_count(_name(options.stream))):
                for record in _records(system, _name(options.stream), partition, 0):
                    _print_stream_record(partition, record, options.raw)
        return 0
    with opened_job(options) as handle:
        for record in handle.coordinator_log.read():
            _print_log_record(record, options.raw)
    return 0


def _print_log_record(record: Any, raw: bool) -> None:
    if raw:
        value = None if record.value is None else record.value.hex()
        _line({"offset": record.offset, "key": record.key.hex(), "value": value})
        return
    from grete.wire.coordinator_message import decode

    try:
        message = decode(record.key, record.value)
    except WireError as error:
        _line({"offset": record.offset, "error": str(error)})
        return
    values = None if message.values is None else dict(message.values)
    if values is not None and message.type.lower() == "set-config" and "value" in values:
        from grete.config.redact import redact_value

        values["value"] = redact_value(message.key, values["value"])
    source = None if message.origin is None else message.origin.source
    _line(
        {
            "offset": record.offset,
            "type": message.type,
            "key": message.key,
            "values": values,
            "source": source,
        }
    )


def _line(document: dict[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(document).decode() + "\n")


Row = tuple[int, bytes | None, bytes | None, int]


def _records(system: Any, stream: str, partition: int, start: int) -> Iterator[Row]:
    for first, batch in system.read(stream, partition, start):
        offsets = (
            batch.column(3).to_pylist() if batch.num_columns > 3 else range(first, first + batch.num_rows)
        )
        columns = (batch.column(i).to_pylist() for i in range(3))
        yield from zip(offsets, *columns, strict=True)


def _print_stream_record(partition: int, record: Row, raw: bool) -> None:
    offset, key, value, timestamp_ms = record
    document = {
        "partition": partition,
        "offset": offset,
        "key": _shown(key, raw),
        "value": _shown(value, raw),
        "timestamp_ms": timestamp_ms,
    }
    _line(document)


def _shown(data: bytes | None, raw: bool) -> str | None:
    if data is None:
        return None
    return data.hex() if raw else data.decode("utf-8", errors="replace")


def _tail(options: argparse.Namespace) -> int:
    stream = _name(options.stream)
    with _system() as system:
        position = {p: int(o.upcoming) for p, o in system.offsets(stream).items()}
        while True:
            for partition, start in position.items():
                for record in _records(system, stream, partition, start):
                    _print_stream_record(partition, record, options.raw)
                    position[partition] = record[0] + 1
            sys.stdout.flush()
            time.sleep(_TAIL_POLL_S)


def _append(options: argparse.Namespace) -> int:
    from grete.systems.local import Message

    def messages(lines: Iterable[bytes]) -> Iterator[Message]:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _message(number, line)

    appended = 0
    source = sys.stdin.buffer if options.from_file == "-" else open(options.from_file, "rb")  # noqa: SIM115
    with _system() as system, source:
        batch = []
        for message in messages(source):
            batch.append(message)
            if len(batch) >= _APPEND_BATCH:
                appended += system.append(_name(options.stream), batch)
                batch = []
        appended += system.append(_name(options.stream), batch)
    print(f"{appended} appended to {options.stream}")
    return 0


def _message(number: int, line: bytes) -> Any:
    from grete.systems.local import Message

    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"line {number} is not JSON: {error}") from error
    if not isinstance(document, dict) or "value" not in document:
        raise ConfigError(f"line {number}: write an object with value and, if you like, key and partition")
    now_ms = time.time_ns() // 1_000_000
    timestamp_ms = document.get("timestamp_ms", now_ms)
    return Message(
        _bytes(document.get("key")), _bytes(document["value"]), timestamp_ms, document.get("partition")
    )


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _create(options: argparse.Namespace) -> int:
    from grete.systems.base import StreamSpec

    with _system() as system:
        system.create_stream(StreamSpec(_name(options.stream), options.partitions, options.compacted))
    return 0


def _list(options: argparse.Namespace) -> int:
    with _system() as system:
        rows = []
        for name in system.streams():
            offsets = system.offsets(name)
            info = system.stream(name)
            records = sum(int(o.upcoming) - int(o.oldest or o.upcoming) for o in offsets.values())
            rows.append((f"local.{name}", info.partitions, records, "compacted" if info.compacted else ""))
    if options.output == "json":
        print_json([{"stream": s, "partitions": p, "records": n, "kind": k} for s, p, n, k in rows])
    else:
        print_table(("stream", "partitions", "records", ""), rows)
    return 0


def _system() -> Any:
    from contextlib import closing

    from grete.assembly import grete_home
    from grete.clock import SystemClock
    from grete.systems.local import LocalSystem

    return closing(LocalSystem(grete_home() / "local", SystemClock()))


def _name(stream: str) -> str:
    from grete.model.ids import SystemStream

    parsed = SystemStream.parse(stream)
    if parsed.system != "local":
        raise ConfigError(f"{stream!r}: only the embedded system `local` is available here")
    return parsed.stream
