"""`grete dead-letters list|replay`."""

from __future__ import annotations

import argparse
import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from grete.cli.options import add_job_options, count, opened_job
from grete.cli.output import print_json_line, print_table, when
from grete.cli.stream_system import oldest_offset, read_records
from grete.errors import ConfigError, JobError
from grete.metadata.replayed_letters import ReplayedLetters
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.model.streams import Headers

if TYPE_CHECKING:
    from grete.operations import JobHandle
    from grete.systems.base import System

_PLACE = re.compile(r"(\d{1,9}):(\d{1,18})")
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: where it is, the message that it was, and why it could not be processed."""

    partition: int
    position: int
    is_replayed: bool
    task: str
    ssp: SystemStreamPartition
    offset: str
    error: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers

    @property
    def number(self) -> str:
        """How people name it."""
        return f"{self.partition}:{self.position}"


@dataclass(frozen=True, slots=True)
class _Letters:
    """The stream that holds a job's dead letters, and which of them were sent again."""

    system: System
    stream: str
    replayed: ReplayedLetters

    def last(self, most: int) -> Iterator[Letter]:
        """The last of each partition."""
        offsets = self.system.offsets(self.stream)
        for partition, known in sorted(offsets.items()):
            oldest = oldest_offset(self.system, self.stream, partition)
            yield from self._read(partition, max(oldest, int(known.upcoming) - most))

    def every(self) -> Iterator[Letter]:
        """All that are there."""
        for partition in range(self.system.partition_count(self.stream)):
            yield from self._read(partition, oldest_offset(self.system, self.stream, partition))

    def _read(self, partition: int, start: int) -> Iterator[Letter]:
        for record in read_records(self.system, self.stream, partition, start):
            try:
                found = orjson.loads(record.value or b"")
                yield Letter(
                    partition,
                    record.offset,
                    self.replayed.has(partition, record.offset),
                    str(found["task"]),
                    SystemStreamPartition.parse(found["ssp"]),
                    str(found["offset"]),
                    str(found["error"]),
                    _bytes(found["key_base64"]),
                    _bytes(found["value_base64"]),
                    record.timestamp_ms,
                    [(name, _bytes(value)) for name, value in found.get("headers_base64", ())],
                )
            except (orjson.JSONDecodeError, binascii.Error, KeyError, TypeError, ValueError) as error:
                raise JobError(
                    f"record {partition}:{record.offset} of {self.stream} is no dead letter of grete ({error!r})"
                ) from error


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
    replay.add_argument("--again", action="store_true", help="those too that were replayed before")
    replay.add_argument("--execute", action="store_true", help="do it; without, show what would be appended")
    replay.set_defaults(run=_replay)


def _list(options: argparse.Namespace) -> int:
    with opened_job(options) as handle, _opened(handle) as opened:
        letters = list(opened.last(options.n))
    if options.output == "json":
        for letter in letters:
            print_json_line(_document(letter))
        return 0
    rows = [
        (
            *(one.number, "yes" if one.is_replayed else "-", one.task, str(one.ssp), one.offset),
            *(when(one.timestamp_ms), one.error[:200]),
        )
        for one in letters
    ]
    print_table(("number", "replayed", "task", "input", "offset", "message of", "error"), rows)
    return 0


def _replay(options: argparse.Namespace) -> int:
    """Append first, note afterwards: what is killed in between is appended once more by the next replay."""
    wanted = None if options.all else _wanted(options.number)
    with opened_job(options) as handle, _opened(handle) as opened:
        found = [one for one in opened.every() if wanted is None or one.number in wanted]
        missing = sorted((wanted or set()) - {one.number for one in found})
        if missing:
            raise JobError(
                f"there is no dead letter {', '.join(missing)}; `grete dead-letters list` has them"
            )
        by_input: dict[SystemStream, list[Letter]] = {}
        for one in found:
            if options.again or not one.is_replayed:
                by_input.setdefault(one.ssp.system_stream, []).append(one)
        if options.execute:
            for input_, letters in by_input.items():
                with handle.system(input_.system) as target:
                    for batch in _batches(letters):
                        _append(target, input_.stream, batch, opened.replayed)
    _print_replay(options, found, by_input)
    return 0


def _append(target: System, stream: str, letters: Sequence[Letter], replayed: ReplayedLetters) -> None:
    from grete.systems.base import Message

    target.append(
        stream,
        [Message(one.key, one.value, one.timestamp_ms, one.ssp.partition, one.headers) for one in letters],
    )
    by_partition: dict[int, list[int]] = {}
    for one in letters:
        by_partition.setdefault(one.partition, []).append(one.position)
    for partition, offsets in by_partition.items():
        replayed.add(partition, offsets)


def _print_replay(
    options: argparse.Namespace, found: Sequence[Letter], by_input: Mapping[SystemStream, Sequence[Letter]]
) -> None:
    for input_, letters in sorted(by_input.items(), key=lambda item: str(item[0])):
        done = "appended" if options.execute else "would be appended; --execute does it"
        print(f"{input_}: {len(letters)} messages {done}")
    before = len(found) - sum(map(len, by_input.values()))
    if before:
        print(f"{before} were replayed before; --again appends them once more")
    if not found:
        print("there are no dead letters")


def _batches(letters: Sequence[Letter]) -> Iterator[Sequence[Letter]]:
    for start in range(0, len(letters), _BATCH):
        yield letters[start : start + _BATCH]


@contextmanager
def _opened(handle: JobHandle) -> Iterator[_Letters]:
    """The stream that the job's dead letters are in.

    Raises:
        ConfigError: it has none.
    """
    stream = handle.settings.task.dead_letters
    if stream is None:
        raise ConfigError(
            f"job {handle.job.shown} sets nothing aside: task.poison.dead-letter.stream is not set"
        )
    with handle.system(stream.system) as system:
        uid = system.stream_uid(stream.stream)
        yield _Letters(system, stream.stream, ReplayedLetters(handle.stream, stream, uid))


def _wanted(numbers: Iterable[str]) -> set[str]:
    wrong = [number for number in numbers if not _PLACE.fullmatch(number)]
    if wrong:
        raise ConfigError(f"--number {wrong[0]!r}: write PARTITION:OFFSET, as `grete dead-letters list` does")
    return set(numbers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _document(letter: Letter) -> dict[str, object]:
    return {
        "number": letter.number,
        "replayed": letter.is_replayed,
        "task": letter.task,
        "ssp": str(letter.ssp),
        "offset": letter.offset,
        "error": letter.error,
        "timestamp_ms": letter.timestamp_ms,
        "key_base64": None if letter.key is None else base64.b64encode(letter.key).decode(),
        "value_base64": None if letter.value is None else base64.b64encode(letter.value).decode(),
    }
