"""One writer of a Kafka topic: a transactional id of its own, its appends, and its scope's epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grete.clock import Clock
from grete.kafka.epoch import EpochPending, ScopeEpoch
from grete.kafka.log_clients import KafkaClients
from grete.kafka.producer import NotWritten as NotWritten
from grete.kafka.producer import OutcomeUnknown as OutcomeUnknown
from grete.kafka.producer import TransactionalProducer
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Entry


@dataclass(frozen=True, slots=True)
class Append:
    """The records of one transaction. `epoch` raises the scope to it in the same transaction."""

    entries: Sequence[Entry]
    origin: kafka_header.AppendOrigin
    timestamp_ms: int
    epoch: int | None = None


class KafkaWriter(TransactionalProducer):
    """A transactional id and, while it is open, its producer. The caller holds `lock` around every call.

    `known_epoch` is what the broker had for the scope when the id was opened, or what was committed since.
    """

    def __init__(self, clients: KafkaClients, clock: Clock, transactional_id: str) -> None:
        super().__init__(lambda: clients.producer(transactional_id), clock)
        self.lock = threading.Lock()
        self.known_epoch: int | None = None
        self.epoch_written_s = float("-inf")
        self.place = (clients.topic, 0)
        self._clients = clients
        self._epoch = ScopeEpoch(clients, transactional_id, clock)

    def open(self, deadline_s: float) -> None:
        """Take the id over. Afterwards nothing of an older producer is open in the topic, whatever brokers forgot.

        Raises:
            NotWritten: the broker did not answer in time.
        """
        super().open(deadline_s)
        self.abort_dangling_transactions(self._clients, [self.place], deadline_s)

    def close(self) -> None:
        """Release everything."""
        self.drop()
        self._epoch.close()

    def stored_epoch(self) -> int | None:
        """The scope's epoch as the broker has it.

        Raises:
            EpochPending, NotWritten: see `ScopeEpoch.stored`.
        """
        stored = self._epoch.stored()
        if self._epoch.is_copy_behind:
            self.epoch_written_s = float("-inf")  # it is written again, to where an older version reads it
        return stored

    def settled_epoch(self, deadline_s: float) -> int | None:
        """The same, when the id was just opened: what still keeps it pending is nobody's, and is ended.

        Raises:
            NotWritten: see `ScopeEpoch.end_pending`.
        """
        try:
            return self.stored_epoch()
        except EpochPending:
            self._epoch.end_pending(self, deadline_s)
        return self.stored_epoch()

    def write(self, append: Append, deadline_s: float, check: Callable[[int], None]) -> int:
        """Append in one transaction; returns the last offset, -1 for no entries. `check` sees the first offset.

        Raises:
            NotWritten: nothing became readable.
            OutcomeUnknown: the commit may have happened. The id must be opened again before anything else.
        """
        if append.epoch is not None:
            self._epoch.prepare()
        try:
            self.begin()
            self._produce(append)
            end = self.settle(deadline_s).get(self.place, 0)
            self._check_adjacent(append, end)
            if append.entries:
                check(self.deliveries.first)
            if append.epoch is not None:
                self._epoch.send(self, append.epoch, deadline_s)
        except BaseException:
            self.abort(deadline_s)
            raise
        self.commit(deadline_s)
        if append.epoch is not None:
            self.known_epoch, self.epoch_written_s = append.epoch, self._clock.monotonic_s()
        return end - 1

    def _produce(self, append: Append) -> None:
        encoded, left = kafka_header.encode(append.origin), len(append.entries)
        for entry in append.entries:
            left -= 1
            self.produce(
                *self.place,
                entry.key,
                entry.value,
                time_ms=append.timestamp_ms,
                headers=[(kafka_header.NAME, kafka_header.with_remaining(left, encoded))],
            )

    def _check_adjacent(self, append: Append, end: int) -> None:
        """Raises NotWritten when another writer's record came between."""
        assert self.deliveries.count == len(append.entries), "every record has a report"
        if append.entries and end - self.deliveries.first != len(append.entries):
            raise NotWritten("another writer's records came between")
