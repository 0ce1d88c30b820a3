"""Messages that a job has set aside: what they were, why they failed, and sending them again."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import orjson

from grete.errors import ConfigError, JobError
from grete.metadata.replayed_letters import ReplayedLetters
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.model.streams import Headers
from grete.operations.job_handle import JobHandle
from grete.operations.stream_records import oldest_offset, read_records
from grete.systems.base import Message, System

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
class Replay:
    """What is sent again: of the letters that were `found`, those to append by input."""

    found: Sequence[Letter]
    by_input: Mapping[SystemStream, Sequence[Letter]]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The stream that holds a job's dead letters, and which of them were sent again."""

    handle: JobHandle
    system: System
    stream: str
    replayed: ReplayedLetters

    def last(self, most: int) -> Iterator[Letter]:
        """The last of each partition."""
        offsets = self.system.offsets(self.stream)
        for partition, known in sorted(offsets.items()):
            oldest = oldest_offset(self.system, self.stream, partition)
            yield from self._read(partition, max(oldest, int(known.upcoming) - most))

    def plan_replay(self, numbers: Collection[str] | None, *, again: bool) -> Replay:
        """Which messages would be appended to their inputs: those of these numbers, or None for every one.

        Raises:
            JobError: there is no dead letter of a number.
        """
        found = [one for one in self._every() if numbers is None or one.number in numbers]
        missing = sorted(set(numbers or ()) - {one.number for one in found})
        if missing:
            raise JobError(
                f"there is no dead letter {', '.join(missing)}; `grete dead-letters list` has them"
            )
        by_input: dict[SystemStream, list[Letter]] = {}
        for one in found:
            if again or not one.is_replayed:
                by_input.setdefault(one.ssp.system_stream, []).append(one)
        return Replay(found, by_input)

    def execute_replay(self, plan: Replay) -> None:
        """Append first, note afterwards: what is killed in between is appended once more by the next replay."""
        for input_, letters in plan.by_input.items():
            with self.handle.system(input_.system) as target:
                for start in range(0, len(letters), _BATCH):
                    self._append(target, input_.stream, letters[start : start + _BATCH])

    def _append(self, target: System, stream: str, letters: Sequence[Letter]) -> None:
        target.append(
            stream,
            [
                Message(one.key, one.value, one.timestamp_ms, one.ssp.partition, one.headers)
                for one in letters
            ],
        )
        by_partition: dict[int, list[int]] = {}
        for one in letters:
            by_partition.setdefault(one.partition, []).append(one.position)
        for partition, offsets in by_partition.items():
            self.replayed.add(partition, offsets)

    def _every(self) -> Iterator[Letter]:
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


@contextmanager
def open_dead_letters(handle: JobHandle) -> Iterator[DeadLetters]:
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
        yield DeadLetters(handle, system, stream.stream, ReplayedLetters(handle.stream, stream, uid))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
