"""Reads the committed records of a log's topic, in chunks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from grete.clock import Clock, Deadline
from grete.errors import LogCorrupted, LogError, LogUnreachable
from grete.kafka.errors import describe, translated
from grete.kafka.library import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from grete.kafka.log_clients import KafkaClients

_CHUNK = 5_000
_POLL_S = 0.2
_FETCH_WAIT_MS = 1
"""Of one who reads as far as is known to be: behind the last record is a marker, so each such read waits for it."""
_WAIT_MS = 500


class TopicReader:
    """Safe to use from several threads, each of which gets a consumer of its own."""

    def __init__(self, clients: KafkaClients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: dict[int, list[Consumer]] = {_FETCH_WAIT_MS: [], _WAIT_MS: []}

    @contextmanager
    def _consumer(self, fetch_wait_ms: int) -> Iterator[Consumer]:
        with self._lock:
            idle = self._idle[fetch_wait_ms]
            consumer = idle.pop() if idle else None
        if consumer is None:
            consumer = self._clients.reader(fetch_wait_ms=fetch_wait_ms)
        try:
            yield consumer
        finally:
            consumer.unassign()
            with self._lock:
                idle.append(consumer)

    def close(self) -> None:
        """Close every consumer that is idle."""
        with self._lock:
            idle = [consumer for consumers in self._idle.values() for consumer in consumers]
            self._idle = {_FETCH_WAIT_MS: [], _WAIT_MS: []}
        for consumer in idle:
            consumer.close()

    def messages(self, first: int, end: int) -> Iterator[list[Message]]:
        """The committed records with first <= offset < end, in chunks.

        Raises:
            LogCorrupted: `first` is not in the topic any more.
            LogError: nothing came for the whole timeout.
        """
        if first >= end:
            return
        timeout_s = self._clients.settings.timeout_s
        with self._consumer(_FETCH_WAIT_MS) as consumer:
            consumer.assign([self._clients.partition(first if first > 0 else OFFSET_BEGINNING)])
            deadline, is_over = Deadline(self._clock, timeout_s), False
            while not is_over:
                batch = self._poll(consumer)
                if not batch and deadline.is_over:
                    raise LogUnreachable(
                        f"topic {self._clients.topic}: no record in {timeout_s:.0f} s; are brokers up?"
                    )
                if batch:
                    deadline = Deadline(self._clock, timeout_s)
                    is_over = self._is_over(batch, end)
                    yield [m for m in batch if m.error() is None and (m.offset() or 0) < end]

    def _poll(self, consumer: Consumer) -> list[Message]:
        with translated(f"reading topic {self._clients.topic}"):
            message = consumer.poll(_POLL_S)
            return [] if message is None else [message, *consumer.consume(_CHUNK, 0)]

    def _is_over(self, batch: list[Message], end: int) -> bool:
        for message in batch:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._refuse(error)
        return (batch[-1].offset() or 0) + (batch[-1].error() is None) >= end

    def _refuse(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise LogCorrupted(
                f"topic {self._clients.topic} does not hold the offset to go on from ({error.str()}): it was deleted "
                "and recreated, or records were deleted"
            )
        raise LogError(f"reading topic {self._clients.topic}: {describe(error)}")

    def wait(self, first: int, after: int, timeout_s: float) -> bool:
        """Block until there is a record above `after`, reading from `first` on; returns whether one has come."""
        deadline = Deadline(self._clock, timeout_s)
        with self._consumer(_WAIT_MS) as consumer:
            consumer.assign([self._clients.partition(first if first > 0 else OFFSET_BEGINNING)])
            while (left_s := deadline.left_s) > 0:
                try:
                    message = consumer.poll(min(left_s, _POLL_S))
                except KafkaException:
                    message = None  # a client that lost its broker comes back by itself, or the time runs out
                if message is not None and message.error() is None and (message.offset() or 0) > after:
                    return True
        return False
