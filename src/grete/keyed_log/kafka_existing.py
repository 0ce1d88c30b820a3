"""A log on Kafka that exists already and may only be read. `KafkaKeyedLog` creates its topic; this does not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from grete.clock import Clock
from grete.errors import IllegalStateError
from grete.kafka.log_clients import KafkaClients
from grete.keyed_log.base import Entry, Fence, KeyedLog, Record
from grete.keyed_log.kafka_reader import TRANSACTION_STRIDE, LogReader


class ExistingLog(KeyedLog):
    """A log that may only be read."""

    stride = TRANSACTION_STRIDE

    def __init__(self, clients: KafkaClients, clock: Clock) -> None:
        self._name = clients.topic
        self._reader = LogReader(clients, clock)

    def read(self, after: int = -1) -> Iterator[Record]:
        """See KeyedLog."""
        return self._reader.records(after, self.end())

    def end(self) -> int:
        """See KeyedLog."""
        return self._reader.last_offset()

    def newest(self) -> Record | None:
        """The last record, None in an empty log."""
        end = self.end()
        return next(itertools.islice(self._reader.records(end - 1, end), 1), None) if end >= 0 else None

    def wait(self, after: int, timeout_s: float) -> bool:
        """See KeyedLog."""
        return self._reader.wait(after, timeout_s)

    def close(self) -> None:
        """See KeyedLog."""
        self._reader.close()

    def _refuse(self) -> IllegalStateError:
        return IllegalStateError(f"the log in topic {self._name} was opened to be read only")

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        """Not to be called."""
        raise self._refuse()

    def resolve(self, append_id: str) -> int | None:
        """Not to be called."""
        raise self._refuse()

    def raise_fence(self, fence: Fence) -> None:
        """Not to be called."""
        raise self._refuse()

    def claim(self, fence: Fence) -> None:
        """Not to be called."""
        raise self._refuse()

    def compact(self) -> int:
        """Not to be called."""
        raise self._refuse()
