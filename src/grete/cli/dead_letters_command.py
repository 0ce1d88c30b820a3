"""`grete dead-letters list|replay`."""

from __future__ import annotations

import argparse
import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from grete.cli.options import add_job_options, count, opened_job
from grete.cli.output import print_json_line, print_table, when
from grete.cli.stream_system import oldest_offset, read_records
from grete.errors import ConfigError, JobError
from grete.model.ids import SystemStream, SystemStreamPartition

if TYPE_CHECKING:
    from grete.operations import JobHandle
    from grete.systems.base import Message, System

_PLACE = re.compile(r"(\d{1,9}):(\d{1,18})")
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: where it is, the message that it was, and why it could not be processed."""

    number: str
    task: str
    ssp: SystemStreamPartition
    offset: str
    error: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    list_ = actions.add_parser("list", help="what was set aside, and why")
    add_job_options(list_)
    list_.add_argument("-n", type=count, default=100, metavar="N", help="the last N of each partition")
    list_.set_defaults(run=_list)
    replay = actions.add_parser("replay", help="append messages to the inputs that they came from")
    add_job_options(replay)
    which = replay.add_mutually_exclusive_group(required=True)
    which.add_argument("--number", action="append", metavar="P:OFFSET", help="this one, as `list` shows it")
    which.add_argument("--all", action="store_true", help="every one that is there")
    replay.add_argument("--execute", action="store_true", help="do it; without, show what would be appended")
    replay.set_defaults(run=_replay)


def _list(options: argparse.Namespace) -> int:
    with opened_job(options) as handle, _opened(handle) as (system, stream):
        letters = list(_last(system, stream, options.n))
    if options.output == "json":
        for letter in letters:
            print_json_line(_document(letter))
        return 0
    rows = [
        (one.number, one.task, str(one.ssp), one.offset, when(one.timestamp_ms), one.error[:200])
        for one in letters
    ]
    print_table(("number", "task", "input", "offset", "message of", "error"), rows)
    return 0


def _replay(options: argparse.Namespace) -> int:
    """What was sent again cannot be told from other messages: a second replay sends it once more."""
    from grete.systems.base import Message

    wanted = None if options.all else _wanted(options.number)
    with opened_job(options) as handle, _opened(handle) as (system, stream):
        letters = [one for one in _every(system, stream) if wanted is None or one.number in wanted]
        missing = sorted((wanted or set()) - {one.number for one in letters})
        if missing:
            raise JobError(
                f"there is no dead letter {', '.join(missing)}; `grete dead-letters list` has them"
            )
        by_input: dict[SystemStream, list[Message]] = {}
        for one in letters:
            message = Message(one.key, one.value, one.timestamp_ms, one.ssp.partition)
            by_input.setdefault(one.ssp.system_stream, []).append(message)
        if options.execute:
            for input_, messages in by_input.items():
                with handle.system(input_.system) as target:
                    for batch in _batches(messages):
                        target.append(input_.stream, batch)
    for input_, messages in sorted(by_input.items(), key=lambda item: str(item[0])):
        done = "appended" if options.execute else "would be appended; --execute does it"
        print(f"{input_}: {len(messages)} messages {done}")
    if not letters:
        print("there are no dead letters")
    return 0


def _batches(messages: list[Message]) -> Iterator[list[Message]]:
    for start in range(0, len(messages), _BATCH):
        yield messages[start : start + _BATCH]


@contextmanager
def _opened(handle: JobHandle) -> Iterator[tuple[System, str]]:
    """The system and stream that the job's dead letters are in.

    Raises:
        ConfigError: it has none.
    """
    name = handle.config().get("task.poison.dead-letter.stream", "")
    if not name:
        raise ConfigError(
            f"job {handle.job.shown} sets nothing aside: task.poison.dead-letter.stream is not set"
        )
    stream = SystemStream.parse(name)
    with handle.system(stream.system) as system:
        yield system, stream.stream


def _wanted(numbers: Iterable[str]) -> set[str]:
    wrong = [number for number in numbers if not _PLACE.fullmatch(number)]
    if wrong:
        raise ConfigError(f"--number {wrong[0]!r}: write PARTITION:OFFSET, as `grete dead-letters list` does")
    return set(numbers)


def _last(system: System, stream: str, most: int) -> Iterator[Letter]:
    offsets = system.offsets(stream)
    for partition, known in sorted(offsets.items()):
        start = max(oldest_offset(system, stream, partition), int(known.upcoming) - most)
        yield from _letters(system, stream, partition, start)


def _every(system: System, stream: str) -> Iterator[Letter]:
    for partition in range(system.partition_count(stream)):
        yield from _letters(system, stream, partition, oldest_offset(system, stream, partition))


def _letters(system: System, stream: str, partition: int, start: int) -> Iterator[Letter]:
    for record in read_records(system, stream, partition, start):
        number = f"{partition}:{record.offset}"
        try:
            found = orjson.loads(record.value or b"")
            yield Letter(
                number,
                str(found["task"]),
                SystemStreamPartition.parse(found["ssp"]),
                str(found["offset"]),
                str(found["error"]),
                _bytes(found["key_base64"]),
                _bytes(found["value_base64"]),
                record.timestamp_ms,
            )
        except (orjson.JSONDecodeError, binascii.Error, KeyError, TypeError, ValueError) as error:
            raise JobError(f"record {number} of {stream} is no dead letter of grete ({error!r})") from error


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _document(letter: Letter) -> dict[str, object]:
    return {
        "number": letter.number,
        "task": letter.task,
        "ssp": str(letter.ssp),
        "offset": letter.offset,
        "error": letter.error,
        "timestamp_ms": letter.timestamp_ms,
        "key_base64": None if letter.key is None else base64.b64encode(letter.key).decode(),
        "value_base64": None if letter.value is None else base64.b64encode(letter.value).decode(),
    }
