"""Reads a topic that DataFrame pipelines write with stamps, each record of a committed batch once: what Kafka's
`read_committed` gives where they write in transactions.

    reader = CommittedReader(consumer, {JobId("words"): checkpoint_log})
    while True:
        message = reader.poll(1.0)

The consumer is the caller's own (a `Consumer` of confluent-kafka, or what does as it), subscribed or assigned by him,
with the rights to read the topic;
the checkpoint log is the job's (`System.checkpoint_log`, or `grete.keyed_log.kafka.open_checkpoint_log`).

What is promised, for records that a pipeline stamped (others come as they are):

- a record of an attempt that never committed is never returned; one of a committed batch always is;
- one that Spark wrote twice, because it ran a task twice, is returned once; that is per partition of the topic and
  since the reader was made, so after a restart the records of the batch that is read first may come again;
- the order of a partition is kept: a record whose batch is not decided yet holds up what is behind it, until the
  batch commits or the container that wrote it is succeeded or fenced off. A job that died and is never started again
  holds its last batch up for ever.

Not promised: that a batch is returned as a whole, or at once over several partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from grete.checkpoint.output_commits import OutputCommits, RecordFate, Stamp, WriterAttempt
from grete.clock import Clock, Deadline, SystemClock
from grete.errors import ConfigError
from grete.keyed_log.base import KeyedLog
from grete.model.ids import JobId


class ConsumedPartition(Protocol):
    """A partition of a topic, as the consumer names it."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def partition(self) -> int:
        """Its number."""


class ConsumedMessage(Protocol):
    """A record, as the consumer returns it."""

    def topic(self) -> str | None:
        """The topic that it is from; none with an error."""

    def partition(self) -> int | None:
        """The number of its partition; none with an error."""

    def headers(self) -> Any:
        """Names and values, or none."""

    def error(self) -> object | None:
        """What went wrong instead of a record."""


M = TypeVar("M", bound=ConsumedMessage)
M_co = TypeVar("M_co", bound=ConsumedMessage, covariant=True)
P = TypeVar("P", bound=ConsumedPartition)


class Consumer(Protocol[M_co, P]):
    """The part of a consumer that the reader needs."""

    def poll(self, timeout: float) -> M_co | None:
        """The next record within so many seconds."""

    def assignment(self) -> list[P]:
        """The partitions that it reads."""

    def pause(self, partitions: list[P]) -> None:
        """Return no record of these until they are resumed."""

    def resume(self, partitions: list[P]) -> None:
        """Go on with these."""


Place = tuple[str, int]
"""Topic and partition."""
_LOOK_S = 0.1
"""How often the log is looked at while a record waits for it."""


class Repetitions:
    """Recognises a row that was written twice. Holds the numbers of one batch of each container."""

    def __init__(self) -> None:
        self._batches: dict[tuple[str, str], tuple[tuple[WriterAttempt, int], set[int]]] = {}

    def is_one(self, stamp: Stamp) -> bool:
        """Whether a record was returned before, given that all before it in its partition were checked.

        A batch is over before the next one of its container begins, so what comes of it later is written twice.
        """
        container, now = (stamp.attempt.job, stamp.attempt.container), (stamp.attempt, stamp.batch)
        newest, seen = self._batches.get(container, (now, set()))
        if now > newest:
            newest, seen = now, set()
        if now < newest or stamp.sequence in seen:
            return True
        if stamp.sequence is not None:
            seen.add(stamp.sequence)
        self._batches[container] = (newest, seen)
        return False


class CommittedReader(Generic[M, P]):
    """See the head of the module. Used by one thread."""

    def __init__(
        self, consumer: Consumer[M, P], logs: Mapping[JobId, KeyedLog], clock: Clock | None = None
    ) -> None:
        """`logs` has the checkpoint log of every job that writes the topics."""
        self._consumer = consumer
        self._clock = clock or SystemClock()
        self._logs = {job: _JobLog(log) for job, log in logs.items()}
        self._repetitions: dict[Place, Repetitions] = {}
        self._undecided: dict[Place, M] = {}

    def poll(self, timeout_s: float) -> M | None:
        """The next record, None when there is none within `timeout_s` or what there is is not decided yet.

        A message with an error is returned as the consumer gave it. The consumer's position is past records that are
        not returned yet: commit what you have processed (`store_offsets(message=...)`), not the position.

        Raises:
            ConfigError: a job writes the topic whose checkpoint log was not given.
            LogError: the checkpoint log cannot be read.
        """
        deadline = Deadline(self._clock, timeout_s)
        while True:
            if (decided := self._decided()) is not None:
                return decided
            left_s = deadline.left_s
            message = self._consumer.poll(min(left_s, _LOOK_S) if self._undecided else left_s)
            if message is not None and (message.error() is not None or self._decide(message)):
                return message
            if deadline.is_over:
                return None

    def _decided(self) -> M | None:
        """One of those that were kept, when it is committed by now."""
        if self._undecided:
            self._read_logs()
        return next((each for each in list(self._undecided.values()) if self._decide(each)), None)

    def revoked(self, partitions: Sequence[ConsumedPartition]) -> None:
        """To be called when partitions were taken away (`on_revoke`): another consumer goes on from the commit."""
        for partition in partitions:
            place = (partition.topic, partition.partition)
            self._undecided.pop(place, None)
            self._repetitions.pop(place, None)

    def _decide(self, message: M) -> bool:
        """Whether to return the message. One that is not decided is kept, and its partition rests."""
        stamp, place = Stamp.of(message.headers()), _place(message)
        if stamp is None:
            return True
        verdict = self._verdict(stamp)
        if verdict is RecordFate.PENDING:
            if place not in self._undecided:
                self._undecided[place] = message
                self._consumer.pause(self._assigned(place))
            return False
        if self._undecided.pop(place, None) is not None:
            self._consumer.resume(self._assigned(place))
        repetitions = self._repetitions.setdefault(place, Repetitions())
        return verdict is RecordFate.COMMITTED and not repetitions.is_one(stamp)

    def _assigned(self, place: Place) -> list[P]:
        return [each for each in self._consumer.assignment() if (each.topic, each.partition) == place]

    def _verdict(self, stamp: Stamp) -> RecordFate:
        logs = [log for job, log in self._logs.items() if stamp.attempt.job in (job.key, str(job))]
        if not logs:
            raise ConfigError(
                f"job {stamp.attempt.job} writes this topic, too: give the reader its checkpoint log, it has only "
                f"{', '.join(map(str, self._logs)) or 'none'}'s"
            )
        verdict = _verdict_of(logs, stamp)
        if verdict is RecordFate.PENDING:
            self._read_logs()
            verdict = _verdict_of(logs, stamp)
        return verdict

    def _read_logs(self) -> None:
        for log in self._logs.values():
            log.read()


class _JobLog:
    """The checkpoint log of a job and the commits in it, as far as it was read."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._read_up_to = -1
        self.commits = OutputCommits()

    def read(self) -> None:
        """Read on."""
        self._read_up_to = max(self._read_up_to, self.commits.read(self._log.read(after=self._read_up_to)))


def _verdict_of(logs: Sequence[_JobLog], stamp: Stamp) -> RecordFate:
    """A stamp of an earlier version may be of several jobs: it counts for one, or for none of them."""
    found = {log.commits.verdict(stamp) for log in logs}
    return next(one for one in (RecordFate.COMMITTED, RecordFate.PENDING, RecordFate.VOID) if one in found)


def _place(message: ConsumedMessage) -> Place:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition
