"""A transactional id that the broker lets one process at a time use, and while we hold it, its producer.

Opening an id ends every older producer with it: what that one had not committed is aborted and its next request is
refused. So as long as a request of ours is not refused, nobody has opened the id since, and whatever was checked
right after opening (the scope's epoch) still holds. The check and the transaction are one step in this sense.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

from grete.clock import Clock
from grete.kafka.client import describe, is_final, reason_of
from grete.kafka.outcome import NotWritten as NotWritten
from grete.kafka.outcome import OutcomeUnknown as OutcomeUnknown

_STEP_S = 5.0


def not_written(error: KafkaException) -> NotWritten:
    """The client's exception as a refusal."""
    return NotWritten(describe(reason_of(error)), is_final=is_final(reason_of(error)))


class TransactionalProducer:
    """One transactional id. Used by one thread at a time. `make` makes a producer with this id."""

    def __init__(self, make: Callable[[], Producer], clock: Clock) -> None:
        self.is_in_doubt = False
        self._make = make
        self._clock = clock
        self._producer: Producer | None = None

    @property
    def is_open(self) -> bool:
        """Whether we hold the id as far as we know."""
        return self._producer is not None

    @property
    def producer(self) -> Producer:
        """The producer of an open id."""
        assert self._producer is not None, "the id is open"
        return self._producer

    def open(self, deadline_s: float) -> None:
        """Take the id over. Afterwards no transaction of an older producer is open, ours included.

        Raises:
            NotWritten: the broker did not answer in time.
        """
        producer = self._make()
        while True:
            try:
                producer.init_transactions(self.left_s(deadline_s))
            except KafkaException as error:
                if reason_of(error).retriable() and self._clock.monotonic_s() < deadline_s:
                    continue
                raise not_written(error) from error
            break
        self._producer, self.is_in_doubt = producer, False

    def drop(self) -> None:
        """Let the producer go without committing anything. The id stays ours until somebody opens it."""
        self._producer = None

    def give_up(self) -> None:
        """Let the producer go with a commit in doubt: the id must be opened again before anything else."""
        self.is_in_doubt = True
        self.drop()

    def left_s(self, deadline_s: float) -> float:
        """How long one request may take."""
        return max(min(deadline_s - self._clock.monotonic_s(), _STEP_S), 0.05)

    def flush(self, deadline_s: float) -> None:
        """Wait until the broker has taken every record, or refused it.

        Raises:
            NotWritten: not in time.
        """
        while self._unsent(deadline_s) > 0:
            if self._clock.monotonic_s() >= deadline_s:
                raise NotWritten("the broker did not take the records in time")

    def _unsent(self, deadline_s: float) -> int:
        try:
            return self.producer.flush(self.left_s(deadline_s))
        except SystemError as error:
            # The client raises a fatal error, as that of being fenced, while it still calls back for reports; Python
            # then complains about the mixture. The producer is of no use any more, and nothing was committed.
            raise NotWritten(f"the producer has ended: {error.__cause__ or error}") from error

    def abort(self, deadline_s: float) -> None:
        """Nothing was committed, so whatever happens here nothing will be: at worst the broker's timeout aborts."""
        try:
            self.producer.abort_transaction(self.left_s(deadline_s))
        except KafkaException:
            self.drop()

    def commit(self, deadline_s: float) -> None:
        """Make the transaction's records visible.

        Raises:
            NotWritten: they never will be.
            OutcomeUnknown: they may be. The id must be opened again before anything else.
        """
        while True:
            try:
                self.producer.commit_transaction(self.left_s(deadline_s))
            except KafkaException as error:
                reason = reason_of(error)
                if reason.txn_requires_abort():
                    self.abort(deadline_s)
                    raise NotWritten(describe(reason)) from error
                if reason.retriable() and self._clock.monotonic_s() < deadline_s:
                    continue
                self.give_up()
                raise OutcomeUnknown(describe(reason)) from error
            else:
                return
