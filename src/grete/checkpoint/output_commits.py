"""Which of the records that a pipeline has sent to Kafka count, and which are of an attempt that never committed.

A pipeline's batch is first written to the output topic and then committed in the checkpoint log, so a container that
dies in between leaves records of a batch that is written again. Every record has its origin in a header: its
`Stamp`. With each commit the log notes, under one key for each lineage, which attempt's records of which batches
count: all batches up to the last, each by the attempt that was at work then. A lineage grows by one entry for each
start of a container, so the log stays small, and compaction takes nothing away from it.

    committed   the log names this attempt for this batch
    void        it does not, and a later attempt of the same container has committed, or the log has that the
                container was fenced off: this one never will
    pending     neither: the batch is being written, or its container has died and nothing has succeeded it yet
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import orjson

from grete.checkpoint.own_keys import own_key, type_and_task
from grete.errors import WireError
from grete.keyed_log.base import Entry, Record
from grete.model.ids import ContainerId, JobId, TaskName
from grete.wire import compact_json

HEADER = "grete-stamp"
"""One header, since each costs as much as a short record."""
ONCE = "-"
"""In the place of a stamp's sequence."""
_KIND = "grete-output-commit"
_FENCED_OFF = "grete-fenced-off"


class RecordFate(Enum):
    """The fate of a record: see the head of the module."""

    COMMITTED = "committed"
    VOID = "void"
    PENDING = "pending"


@dataclass(frozen=True, slots=True, order=True)
class WriterAttempt:
    """One start of a container: its epoch, and the how manieth start of this epoch. Grows with time.

    `job` is the key of a JobId, since several jobs may write one topic. Earlier versions wrote `name-id`, which two
    jobs can share: such an attempt may be of any of them.
    """

    job: str
    container: str
    epoch: int
    run: int

    def __str__(self) -> str:
        return f"{self.job}/{self.container}.{self.epoch}.{self.run}"

    @classmethod
    def parse(cls, text: str) -> WriterAttempt:
        """Read what `str` wrote.

        Raises:
            WireError: it is something else.
        """
        try:
            container, epoch, run = text.rsplit(".", 2)
            job, name = container.rsplit("/", 1)
            return cls(job, name, int(epoch), int(run))
        except ValueError as error:
            raise WireError(f"no attempt: {text[:80]!r}") from error


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a record is from: `<attempt>.<batch>.<sequence>`. The sequence numbers the rows of a batch, with gaps.

    None, written as `-`, where Spark runs no task twice, so that no row is written twice.
    """

    attempt: WriterAttempt
    batch: int
    sequence: int | None

    def __str__(self) -> str:
        sequence = ONCE if self.sequence is None else self.sequence
        return f"{stamp_prefix(self.attempt, self.batch)}{sequence}"

    @classmethod
    def of(cls, headers: Any) -> Stamp | None:
        """The stamp among a record's headers, as confluent-kafka gives them: a list of names and values, or None.

        None when it has none that can be read, as records of other writers.
        """
        found = next((value for name, value in headers or () if name == HEADER), None)
        if found is None:
            return None
        try:
            attempt, batch, sequence = found.decode().rsplit(".", 2)
            return cls(WriterAttempt.parse(attempt), int(batch), None if sequence == ONCE else int(sequence))
        except (ValueError, WireError):
            return None


def stamp_prefix(attempt: WriterAttempt, batch: int) -> str:
    """The part that the stamps of a batch have in common."""
    return f"{attempt}.{batch}."


@dataclass(frozen=True, slots=True)
class LineageCommits:
    """The committed part of a lineage: batches up to `last`; `attempts` has each attempt's first batch, ascending."""

    lineage: str
    last: int = -1
    attempts: Sequence[tuple[int, WriterAttempt]] = ()

    def with_batch(self, batch: int, attempt: WriterAttempt) -> LineageCommits:
        """After `attempt` has committed a batch."""
        assert batch > self.last, f"batch {batch} follows batch {self.last}"
        if self.attempts and self.attempts[-1][1] == attempt:
            return replace(self, last=batch)
        return replace(self, last=batch, attempts=(*self.attempts, (batch, attempt)))

    def ranges(self) -> Iterator[tuple[WriterAttempt, int, int]]:
        """Each attempt with the first and the last of its batches that count."""
        ends = [first - 1 for first, _ in self.attempts[1:]] + [self.last]
        for (first, attempt), until in zip(self.attempts, ends, strict=True):
            yield attempt, first, until

    def entry(self, grouper: str) -> Entry:
        """As the checkpoint log has it."""
        document = {
            "lineage": self.lineage,
            "last": self.last,
            "attempts": [[first, str(attempt)] for first, attempt in self.attempts],
        }
        return Entry(own_key(_KIND, TaskName(self.lineage), grouper), compact_json.dumps(document))


def fenced_off(job: JobId, container: ContainerId, epoch: int, grouper: str) -> Entry:
    """Says that attempts of the container below this epoch commit no more. To be written once that is so.

    Else the last batch of a container that died and has no place in the model any more stays undecided, and readers
    wait for it for ever.
    """
    document = {"job": job.key, "container": container, "epoch": epoch}
    return Entry(
        own_key(_FENCED_OFF, TaskName(f"container {container}"), grouper), compact_json.dumps(document)
    )


class OutputCommits:
    """The commits of outputs in a job's checkpoint log, as far as it was read. Safe to use from one thread."""

    def __init__(self, lineages: Iterable[LineageCommits] = ()) -> None:
        self._lineages: dict[str, LineageCommits] = {}
        self._batches: dict[WriterAttempt, tuple[int, int]] = {}
        self._newest: dict[tuple[str, str], WriterAttempt] = {}
        self._fenced_off: dict[tuple[str, str], int] = {}
        for commits in lineages:
            self._add(commits)

    @property
    def lineages(self) -> Mapping[str, LineageCommits]:
        """By lineage."""
        return self._lineages

    def read(self, records: Iterable[Record]) -> int:
        """Read on in the log; returns the offset of the last record, -1 when there was none."""
        last = -1
        for record in records:
            last = record.offset
            found = _decoded(record)
            if isinstance(found, LineageCommits):
                self._add(found)
            elif found is not None:
                self._fenced_off[_place(found.job, found.container)] = found.epoch
        return last

    def _add(self, commits: LineageCommits) -> None:
        self._lineages[commits.lineage] = commits
        for attempt, first, until in commits.ranges():
            self._batches[attempt] = (first, until)
            container = _place(attempt.job, attempt.container)
            self._newest[container] = max(self._newest.get(container, attempt), attempt)

    def verdict(self, stamp: Stamp) -> RecordFate:
        """Whether a record counts."""
        first, until = self._batches.get(stamp.attempt, (0, -1))
        if first <= stamp.batch <= until:
            return RecordFate.COMMITTED
        container = _place(stamp.attempt.job, stamp.attempt.container)
        newest = self._newest.get(container)
        is_over = newest is not None and newest > stamp.attempt
        is_over = is_over or self._fenced_off.get(container, 0) > stamp.attempt.epoch
        return RecordFate.VOID if is_over else RecordFate.PENDING


def _place(job: str, container: str) -> tuple[str, str]:
    """A container under whichever name a version has written its job."""
    return job.replace("@", "-"), container


class _FencedOff(NamedTuple):
    job: str
    container: str
    epoch: int


def _decoded(record: Record) -> LineageCommits | _FencedOff | None:
    """A record of ours; None for every other one, and for damage: it must not keep a reader from reading."""
    try:
        kind = type_and_task(record.key)[0]
        if record.value is None or kind not in (_KIND, _FENCED_OFF):
            return None
        document = orjson.loads(record.value)
        if kind == _FENCED_OFF:
            return _FencedOff(str(document["job"]), str(document["container"]), int(document["epoch"]))
        attempts = tuple((int(first), WriterAttempt.parse(text)) for first, text in document["attempts"])
        return LineageCommits(document["lineage"], int(document["last"]), attempts)
    except (WireError, orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
