"""Offsets of a consumer group that no consumer is a member of, as `kafka-consumer-groups --describe` shows them.

A consumer that never subscribes commits them. Brokers take that while the group has no members, and refuse it with
UNKNOWN_MEMBER_ID otherwise, whichever rebalance protocol those members use. The admin client's
`alter_consumer_group_offsets` does the same, but librdkafka 2.16 ends the process in an assertion when a broker dies
while one of the admin's requests is on its way to a group's coordinator (confluentinc/librdkafka#4605).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grete.clock import Clock, Deadline
from grete.config.key_tables.task import CONSUMER_GROUP
from grete.errors import StreamError, StreamUnreachable
from grete.kafka.client import KafkaConnection, Partition
from grete.kafka.errors import is_temporary, reason_of
from grete.kafka.library import KafkaError, KafkaException, TopicPartition

_PATIENCE_MS = 10_000
"""For a coordinator of the group that is just being found or is loading; longer is an outage, and reported."""
_POLL_S = 0.02
"""The client gives its answer within a poll and stays in it all the same."""
_AT_ONCE = 1_000
"""Partitions of one request: what it commits is one batch of the brokers' offsets topic, 1 MB at most."""
_HAS_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
)


class GroupClient:
    """A group on one cluster. Made, used and closed by one thread."""

    def __init__(self, connection: KafkaConnection, system: str, group: str, clock: Clock) -> None:
        self._system = system
        self._group = group
        self._clock = clock
        self._is_underway = False
        self._reason: KafkaError | None = None
        self._consumer = connection.new_consumer(
            f"making a consumer of the group {group!r}",
            {
                "group.id": group,
                "on_commit": self._answered,
                "session.timeout.ms": _PATIENCE_MS,  # for as long a commit waits for the group's coordinator
                "socket.timeout.ms": _PATIENCE_MS,
            },
        )

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Let the group's next record to read be these; other partitions stay as they are.

        Raises:
            StreamError: refused, as when a consumer is a member of the group.
            StreamUnreachable: no answer in time; some may be written.
        """
        where = [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
        deadline = Deadline(self._clock, _PATIENCE_MS / 1000)
        for first in range(0, len(where), _AT_ONCE):
            self._write(where[first : first + _AT_ONCE], deadline)

    def _write(self, where: list[TopicPartition], deadline: Deadline) -> None:
        while (reason := self._refusal(where, deadline)) is not None:
            may_pass = is_temporary(reason) or reason.code() == KafkaError._WAIT_COORD
            if reason.code() in _HAS_MEMBERS or not may_pass:
                raise StreamError(f"{self._doing()}: {reason.str()} ({reason.name()}){self._way_out(reason)}")
            if not deadline.pause():
                raise StreamUnreachable(f"{self._doing()}: {reason.str()} ({reason.name()})")

    def _refusal(self, where: list[TopicPartition], deadline: Deadline) -> KafkaError | None:
        """Commit, after what is still on its way: what the client sends again comes late, and would be the last word.

        Raises:
            StreamUnreachable: no answer in time; it may still come to be written.
        """
        self._await_answer(deadline)
        self._is_underway, self._reason = True, None
        try:
            self._consumer.commit(offsets=where, asynchronous=True)
        except KafkaException as error:
            self._is_underway = False
            return reason_of(error)
        self._await_answer(deadline)
        return self._reason

    def _await_answer(self, deadline: Deadline) -> None:
        while self._is_underway:
            if deadline.is_over:
                raise StreamUnreachable(f"{self._doing()}: no answer in time")
            self._consumer.poll(_POLL_S)

    def _answered(self, reason: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        of_partitions = (one.error for one in partitions if one.error is not None)
        self._reason = next(of_partitions, reason)
        self._is_underway = False

    def _doing(self) -> str:
        return f"committing offsets to the consumer group {self._group!r} in system {self._system!r}"

    def _way_out(self, reason: KafkaError) -> str:
        if reason.code() in _HAS_MEMBERS:
            return (
                f": a consumer is a member of this group; stop it, or let {CONSUMER_GROUP.name} name a group that is "
                f"the job's own"
            )
        if reason.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return f": grant Read on the consumer group {self._group!r}"
        return ""

    def close(self) -> None:
        """Wait for what is on its way, however long a broker that hangs takes for it, and let go."""
        self._consumer.close()
