"""A transactional id that the broker lets one process at a time use, and while we hold it, its producer.

Opening an id ends every older producer with it: what that one had not committed is aborted and its next request is
refused. So as long as a request of ours is not refused, no other process has opened the id since, and whatever was
checked right after opening (the scope's epoch) still holds. The check and the transaction are one step in this sense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from grete.clock import Clock
from grete.kafka.client import KafkaConnection, Partition
from grete.kafka.errors import describe, is_final, reason_of
from grete.kafka.library import KafkaError, KafkaException, Message, Producer
from grete.kafka.outcome import NotWritten as NotWritten
from grete.kafka.outcome import OutcomeUnknown as OutcomeUnknown
from grete.model.streams import Headers

_STEP_S = 5.0
_FLUSH_STEP_S = 1.0
BATCH_BYTES = 512 * 1024
_LARGEST_MESSAGE = 1_000_000_000
_ABORTED_KEY = b"grete-nothing"
"""The key of records that are aborted."""


def not_written(error: KafkaException) -> NotWritten:
    """The client's exception as a refusal."""
    return _refusal(reason_of(error))


def _refusal(reason: KafkaError) -> NotWritten:
    return NotWritten(describe(reason), is_final=is_final(reason))


class Deliveries:
    """Offsets of one transaction's records as the brokers report them before the commit, or the first refusal.

    `ends` has the offset after the last reported record of each partition, `count` and `first` are of all reports.
    """

    def __init__(self) -> None:
        self.ends: dict[Partition, int] = {}
        self.count, self.first = 0, -1
        self.refusal: KafkaError | None = None

    def take(self, error: KafkaError | None, message: Message) -> None:
        """Called by the producer for each record that is to be reported."""
        if error is not None:
            self.refusal = self.refusal or error
            return
        where, offset = (str(message.topic()), int(message.partition() or 0)), message.offset() or 0
        self.ends[where] = max(offset + 1, self.ends.get(where, 0))
        self.first = offset if self.count == 0 else min(self.first, offset)
        self.count += 1


class TransactionalProducer:
    """One transactional id. Used by one thread at a time. `make` makes a producer with this id."""

    def __init__(self, make: Callable[[], Producer], clock: Clock) -> None:
        self.is_in_doubt = False
        self.deliveries = Deliveries()
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
        try:
            self.request(producer.init_transactions, deadline_s)
        except KafkaException as error:
            raise not_written(error) from error
        self._producer, self.is_in_doubt = producer, False

    def request(self, send: Callable[[float], object], deadline_s: float) -> None:
        """Send a request, which gets the time that it may take; again while its refusal may pass.

        Raises:
            KafkaException: refused, or no answer by the deadline.
        """
        while True:
            try:
                send(self._left_s(deadline_s))
            except KafkaException as error:
                reason = reason_of(error)
                may_pass = reason.retriable() and not reason.txn_requires_abort()
                if not may_pass or self._clock.monotonic_s() >= deadline_s:
                    raise
            else:
                return

    def drop(self) -> None:
        """Let the producer go without committing anything. The id stays ours until another process opens it."""
        self._producer = None

    def give_up(self) -> None:
        """Let the producer go with a commit in doubt: the id must be opened again before anything else."""
        self.is_in_doubt = True
        self.drop()

    def _left_s(self, deadline_s: float) -> float:
        """How long one request may take."""
        return max(min(deadline_s - self._clock.monotonic_s(), _STEP_S), 0.05)

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            NotWritten: the id is not ours any more.
        """
        self.deliveries = Deliveries()
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise not_written(error) from error

    def produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        time_ms: int = 0,
        headers: Headers = (),
    ) -> None:
        """Hand over a record; without a time it is of now.

        Raises:
            NotWritten: refused; the transaction is to be aborted.
        """
        take = self.deliveries.take
        try:
            self.producer.produce(topic, value, key, partition, take, timestamp=time_ms, headers=[*headers])
        except KafkaException as error:
            raise self._refused(reason_of(error)) from error

    def produce_columns(
        self,
        topic: str,
        partition: int,
        columns: tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[int]],
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Hand over records of one partition, in order: keys, values, timestamps in ms; headers, if any. 2 µs each.

        The last one is reported; a refusal of another shows when the transaction is committed.

        Raises:
            NotWritten: refused; the transaction is to be aborted.
        """
        produce, last = self.producer.produce, len(columns[0]) - 1
        try:
            if headers is not None:
                self._produce_with_headers(topic, partition, columns, headers)
                return
            for row, (key, value, time_ms) in enumerate(zip(*columns, strict=True)):
                report = self.deliveries.take if row == last else None
                produce(topic, value, key, partition, report, None, time_ms)  # by place: 0.2 µs less
        except KafkaException as error:
            raise self._refused(reason_of(error)) from error

    def _produce_with_headers(
        self,
        topic: str,
        partition: int,
        columns: tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[int]],
        headers: Sequence[Headers | None],
    ) -> None:
        produce, last = self.producer.produce, len(headers) - 1
        for row, (key, value, time_ms, of_record) in enumerate(zip(*columns, headers, strict=True)):
            report = self.deliveries.take if row == last else None
            produce(topic, value, key, partition, report, None, time_ms, [*(of_record or ())])

    def settle(self, deadline_s: float) -> Mapping[Partition, int]:
        """Wait for the brokers to have everything; the offset after the last record of each partition.

        Raises:
            NotWritten: refused, or not in time.
        """
        self._flush(deadline_s)
        if self.deliveries.refusal is not None:
            raise self._refused(self.deliveries.refusal)
        return self.deliveries.ends

    def _flush(self, deadline_s: float) -> None:
        """Wait until the broker has taken every record, or refused it.

        Raises:
            NotWritten: not in time, or not before the transaction is aborted.
        """
        while (unsent := self._unsent(deadline_s)) > 0:
            reason = self._reason_to_abort()
            if reason is not None:
                raise _refusal(reason)
            if self._clock.monotonic_s() >= deadline_s:
                raise NotWritten(
                    f"brokers did not take {unsent} records of a transaction in time; check that they run and can be "
                    f"reached, and that each partition that is written has a leader"
                )

    def _unsent(self, deadline_s: float) -> int:
        try:
            return self.producer.flush(min(self._left_s(deadline_s), _FLUSH_STEP_S))
        except KafkaException as error:  # a fatal one
            raise not_written(error) from error
        except SystemError as error:
            # The client mostly raises it, as that of being fenced, while it still calls back for reports; Python
            # then complains about the mixture. The producer is of no use any more, and nothing was committed.
            self.drop()
            said = str(error.__cause__ or error)
            # The client loses count of who holds this exception, so it stays for ever, and by its traceback would
            # the frames of all callers with all clients that they use: some 25 with four threads each.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            raise NotWritten(f"the producer has ended: {said}") from None

    def _refused(self, seen: KafkaError) -> NotWritten:
        """The refusal of a record: why the transaction is lost if it is, else what was seen of it.

        When a batch is refused, the client reports that it purged the records behind it, and takes no others. Nobody
        could know from that that a topic takes less now, and the same was sent again for two minutes.
        """
        return _refusal(self._reason_to_abort() or seen)

    def _reason_to_abort(self) -> KafkaError | None:
        """Why the transaction that is open can only be aborted; None while it can be committed.

        The client cannot be asked, but says it when it refuses to begin another one: that, or that one is open.
        """
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            reason = reason_of(error)
            return None if reason.code() == KafkaError._STATE else reason
        raise AssertionError("a transaction is open")

    def abort(self, deadline_s: float) -> None:
        """Nothing was committed, so whatever happens here nothing will be: at worst the broker's timeout aborts."""
        if not self.is_open:
            return  # the producer has ended, and its transaction with it
        try:
            self.producer.abort_transaction(self._left_s(deadline_s))
        except KafkaException:
            self.drop()

    def abort_dangling_transactions(
        self, connection: KafkaConnection, partitions: Sequence[Partition], deadline_s: float
    ) -> None:
        """End what an older producer of the id may have left open in the partitions, whatever brokers forgot.

        Brokers do not always end what they say they have ended. A coordinator that has to end a transaction while a
        partition has no leader (all of its brokers were killed and come back) takes the topic for deleted and skips
        it (4.3.1, `TransactionMarkerChannelManager`): readers wait for ever, and the next commit of the same id would
        bring the aborted records back. A transaction of its own that is aborted ends what is left; of other ids it
        ends nothing.

        Raises:
            NotWritten: not possible in time; the id is let go.
        """
        try:
            stuck = connection.with_open_transactions(partitions)
            if stuck:
                self.append_and_abort(stuck, deadline_s)
        except KafkaException as error:
            self.drop()
            raise not_written(error) from error
        except BaseException:
            self.drop()
            raise

    def append_and_abort(self, partitions: Sequence[Partition], deadline_s: float) -> None:
        """Append a record to each partition and abort them, and with them what is open of this id. No reader sees it.

        Raises:
            NotWritten: not even that was possible in time.
        """
        try:
            self.begin()
            for topic, partition in partitions:
                self.produce(topic, partition, _ABORTED_KEY, b"")
            self.settle(deadline_s)
        except BaseException:
            self.abort(deadline_s)
            raise
        self.abort(deadline_s)
        if not self.is_open:
            raise NotWritten("a transaction could not be aborted")

    def commit(self, deadline_s: float) -> None:
        """Make the transaction's records visible.

        Raises:
            NotWritten: they never will be.
            OutcomeUnknown: they may be. The id must be opened again before anything else.
        """
        try:
            self.request(self.producer.commit_transaction, deadline_s)
        except KafkaException as error:
            reason = reason_of(error)
            if reason.txn_requires_abort():
                self.abort(deadline_s)
                raise _refusal(reason) from error
            self.give_up()
            raise OutcomeUnknown(describe(reason)) from error


class ReadableProducer(TransactionalProducer):
    """A transactional id whose commits can be confirmed: that their records can be read. Used by one thread.

    Brokers do not always end what they say is committed (see `abort_dangling_transactions`), and a topic with an open
    transaction stands still for all its readers. Of 6 runs that killed the broker right after "committed", 3 did.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        make: Callable[[], Producer],
        clock: Clock,
        transaction_timeout_s: float,
    ) -> None:
        super().__init__(make, clock)
        self._connection = connection
        self._patience_s = 2 * transaction_timeout_s
        self._unconfirmed: dict[Partition, int] = {}

    def commit(self, deadline_s: float) -> None:
        """See TransactionalProducer. Whether it can be read is looked after by `confirm`."""
        super().commit(deadline_s)
        self._unconfirmed |= self.deliveries.ends

    def confirm(self) -> None:
        """Wait until readers get to the end of what was committed since the last time.

        Raises:
            OutcomeUnknown: they do not for long; the id must be opened again before anything else.
        """
        ends, self._unconfirmed = self._unconfirmed, {}
        if not ends or not self.is_open:
            return
        reason = self._connection.await_stable(ends, self._patience_s)
        if reason:
            self.give_up()
            raise OutcomeUnknown(f"committed, and cannot be read: {reason}")


def transaction_producer(
    connection: KafkaConnection, id_: str, transaction_timeout_s: float, batch_bytes: int = BATCH_BYTES
) -> Producer:
    """A producer of a transactional id, for many records at once."""
    return connection.new_producer(
        f"making the producer {id_}",
        id_,
        {
            "transaction.timeout.ms": round(transaction_timeout_s * 1000),
            "batch.size": batch_bytes,
            "batch.num.messages": 100_000,
            "message.max.bytes": _LARGEST_MESSAGE,  # the topic decides
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 2_147_483_647,
        },
        tunable={"linger.ms": 20},
    )
