"""Producers without transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grete.clock import Clock, Deadline
from grete.errors import StreamError, StreamUnreachable
from grete.kafka.client import KafkaConnection
from grete.kafka.errors import describe, is_temporary, reason_of
from grete.kafka.library import KafkaError, KafkaException, Message, Producer
from grete.model.streams import Headers

_SETTINGS = {"enable.idempotence": True}
_TUNABLE = {"linger.ms": 20}
_STEP_S = 1.0

Row = tuple[int, bytes | None, bytes | None, int, Headers]
"""Partition, key, value, time in ms, headers."""


class PlainSender:
    """Appends to one topic. Used by one thread. `name` is the topic's name for people."""

    def __init__(self, connection: KafkaConnection, topic: str, name: str, clock: Clock) -> None:
        self._connection = connection
        self._topic = topic
        self._name = name
        self._clock = clock
        self._error: KafkaError | None = None
        self._producer: Producer | None = None

    def send(self, rows: Iterable[Row]) -> None:
        """Append the records; all copies have them on return.

        Raises:
            StreamError: the brokers have not taken one: others may be there.
            StreamUnreachable: no answer in time; any of them may be there.
        """
        if self._producer is None:
            timeout = {"message.timeout.ms": round(self._connection.timeout_s * 1000)}
            self._producer = self._connection.new_sender(
                f"writing {self._name}", {**_SETTINGS, **timeout}, _TUNABLE
            )
        self._error = None
        try:
            for row in rows:
                self._produce(self._producer, row)
        except KafkaException as error:
            raise self._refused(reason_of(error)) from error
        deadline = Deadline(self._clock, self._connection.timeout_s)
        while self._producer.flush(_STEP_S) > 0 and not deadline.is_over:
            pass
        if len(self._producer) > 0:
            given_up, self._producer = self._producer, None
            given_up.purge()  # else they would come after what is written next
            given_up.flush(_STEP_S)  # and so would the reports of them
            raise StreamUnreachable(f"{self._name}: brokers did not take the records in time")
        if self._error is not None:
            raise self._refused(self._error)

    def _produce(self, producer: Producer, row: Row) -> None:
        partition, key, value, time_ms, headers = row
        while True:
            try:
                producer.produce(
                    self._topic, value, key, partition, self._take, timestamp=time_ms, headers=[*headers]
                )
            except BufferError:  # more than the client holds: a part of it goes out first
                producer.poll(_STEP_S)
            else:
                return

    def _take(self, error: KafkaError | None, _: Message) -> None:
        self._error = self._error or error

    def _refused(self, reason: KafkaError) -> StreamError:
        kind = StreamUnreachable if is_temporary(reason) else StreamError
        return kind(f"{self._name}: {describe(reason)}")

    def close(self) -> None:
        """Let go; what `send` has returned from is there."""
        self._producer = None


class Acknowledged:
    """The outcome of records that were sent together. `end` is the offset after the last one."""

    def __init__(self) -> None:
        self.end = -1
        self._error: KafkaError | None = None

    def take(self, error: KafkaError | None, message: Message) -> None:
        """Called by the producer for each record."""
        if error is not None:
            self._error = self._error or error
            return
        self.end = max(self.end, (message.offset() or 0) + 1)

    def refuse(self, error: KafkaException) -> None:
        """A record was refused before it was sent."""
        self._error = self._error or reason_of(error)

    @property
    def refusal(self) -> str | None:
        """The reason of the first refusal; None when no record was refused."""
        return None if self._error is None else describe(self._error)

    @property
    def is_too_large(self) -> bool:
        """Whether that was for its size."""
        return self._error is not None and self._error.code() == KafkaError.MSG_SIZE_TOO_LARGE


class AcknowledgedSender:
    """Sends records to topics and reports the outcome. Used by one thread at a time."""

    def __init__(self, connection: KafkaConnection, doing: str, settings: Mapping[str, Any]) -> None:
        self._producer = connection.new_sender(doing, settings)

    def send(self, topic: str, rows: Iterable[Row], outcome: Acknowledged) -> None:
        """Hand over records, until one is refused."""
        try:
            for partition, key, value, time_ms, headers in rows:
                self._producer.produce(
                    topic, value, key, partition, outcome.take, timestamp=time_ms, headers=[*headers]
                )
        except KafkaException as error:
            outcome.refuse(error)

    def flush(self, timeout_s: float) -> bool:
        """Wait for the brokers' answers; returns whether all are there."""
        return self._producer.flush(timeout_s) == 0
