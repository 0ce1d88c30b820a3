"""Reading a Kafka topic as a keyed log: bounded, in order, past transaction markers and records of fenced writers.

Offsets of markers and of aborted records are gaps. A read ends at the last record that was visible when it began;
memory holds what the client fetched ahead (32 MB) and one chunk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from grete.clock import Clock, Deadline
from grete.errors import LogCorrupted, LogUnreachable
from grete.kafka.errors import translated
from grete.kafka.library import Message
from grete.kafka.log_clients import KafkaClients
from grete.kafka.topic_reader import TopicReader
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Record

_log = logging.getLogger(__name__)
TRANSACTION_STRIDE = 2
"""A transaction's marker has an offset of its own behind the records."""
_TAIL_STEPS = (64, 1_024, 16_384)


@dataclass(slots=True)
class Terms:
    """The highest epoch seen of each scope: an epoch opens a term, records of lower ones after it are ignored.

    The broker refuses such records already; this is for the day on which it has forgotten a writer.
    """

    epochs: dict[str, int] = field(default_factory=dict)
    _last: tuple[bytes, tuple[bool, int | None]] = (b"", (True, None))

    def admit(self, header: bytes, offset: int) -> tuple[bool, int | None]:
        """(whether the record counts, its epoch)."""
        last, outcome = self._last
        if last and header[header.find(b" ") + 1 :] == last:  # the next record of the same append
            return outcome
        found = kafka_header.split(header)
        origin = None if found is None else kafka_header.decode(found[1])
        if found is None or origin is None:
            return True, None
        outcome = (self._open(origin, offset), origin.epoch)
        self._last = (found[1], outcome)
        return outcome

    def _open(self, origin: kafka_header.AppendOrigin, offset: int) -> bool:
        if origin.epoch is None:
            return True
        seen = self.epochs.get(origin.scope, origin.epoch)
        self.epochs[origin.scope] = max(seen, origin.epoch)
        if origin.epoch < seen:
            _log.warning(
                "ignoring offset %d and what was appended with it: written under epoch %d of %r after epoch %d",
                offset,
                origin.epoch,
                origin.scope,
                seen,
            )
        return origin.epoch >= seen


def header_of(message: Message) -> bytes | None:
    """Our header, None on a foreign record."""
    headers = message.headers()
    if not headers:
        return None
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        if name == kafka_header.NAME:
            return value if isinstance(value, bytes) else None
    return None


def _admitted(chunk: list[Message], terms: Terms) -> Iterator[Record]:
    """The records of a chunk that count. Each takes 1 µs: a bootstrap has millions."""
    for message in chunk:
        header, epoch = header_of(message), None
        if header is not None:
            counts, epoch = terms.admit(header, message.offset() or 0)
            if not counts:
                continue
        yield Record(
            message.offset() or 0, message.key() or b"", message.value(), message.timestamp()[1], epoch
        )


class LogReader:
    """Reads one log's topic. Safe to use from several threads, each of which gets a consumer of its own."""

    def __init__(self, clients: KafkaClients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._lock = threading.Lock()
        self._topic = TopicReader(clients, clock)
        self._stable, self._last = 0, -1
        self._appended = -1
        self._terms_at: tuple[int, Terms] = (-1, Terms())

    def messages(self, first: int, end: int) -> Iterator[list[Message]]:
        """See TopicReader."""
        return self._topic.messages(first, end)

    def close(self) -> None:
        """Close every consumer that is idle, and the connection."""
        self._topic.close()
        self._clients.close()

    def highest_epoch(self, scope: str) -> int | None:
        """The highest epoch of a scope among the records that were read so far."""
        with self._lock:
            return self._terms_at[1].epochs.get(scope)

    def stable_end(self) -> int:
        """The offset after the last one that is committed or aborted.

        Raises:
            LogCorrupted: it went back: the topic was deleted and recreated.
        """
        with translated(f"reading the end of topic {self._clients.topic}"):
            end = self._clients.end(is_stable=True)
        self.check_not_back(end)
        return end

    def check_not_back(self, end: int) -> None:
        """Raises LogCorrupted when the log ends before what was read of it."""
        with self._lock:
            known = self._stable
        if end < known:
            raise LogCorrupted(
                f"topic {self._clients.topic} ends at offset {end} and was read up to {known}: it was deleted and "
                "recreated, or lost records. Start again to read it from its beginning, after finding out why"
            )

    def check_appended(self, first: int) -> None:
        """Raises LogCorrupted when a record was appended before what was read or appended here.

        The topic was recreated then, also where only its emptiness was read before.
        """
        self.check_not_back(first)
        with self._lock:
            known = self._appended
        if first <= known:
            raise LogCorrupted(
                f"topic {self._clients.topic} goes on at offset {first}, and {known} was written: it was deleted and "
                "recreated, or lost records"
            )

    def note_appended(self, last: int) -> None:
        """Remember an offset that was appended; readers may see it later."""
        with self._lock:
            self._appended = max(last, self._appended)

    def settled_end(self) -> int:
        """The end as it is now, once no transaction that began before it is open.

        Raises:
            LogError: a transaction stayed open for the whole timeout.
        """
        with translated(f"reading the end of topic {self._clients.topic}"):
            end = self._clients.end(is_stable=False)
        deadline = Deadline(self._clock, self._clients.settings.timeout_s, pauses_s=(0.002, 0.1))
        while self.stable_end() < end:
            if not deadline.pause():
                raise LogUnreachable(
                    f"topic {self._clients.topic}: a transaction before offset {end} stays open. It ends when its "
                    "writer goes on or its timeout is over; if it does not, kafka-transactions.sh find-hanging shows "
                    "whose it is, and kafka-transactions.sh abort ends it"
                )
        return end

    def await_stable(self, offset: int, timeout_s: float) -> str:
        """Wait until readers get past an offset that is there. Returns why they do not at the end, "" if they do.

        Raises:
            LogCorrupted: the topic went back.
        """
        wanted = {(self._clients.topic, 0): offset + 1}
        return self._clients.await_stable(wanted, timeout_s, self.check_not_back)

    def records(self, after: int, last: int) -> Iterator[Record]:
        """The records that count, with after < offset <= last."""
        with self._lock:
            position, known = self._terms_at
        terms = Terms(dict(known.epochs)) if after == position else Terms()
        for chunk in self.messages(after + 1, last + 1):
            yield from _admitted(chunk, terms)
        with self._lock:
            if last > self._terms_at[0]:
                self._terms_at = (last, terms)

    def last_offset(self) -> int:
        """The offset of the last record, -1 when there is none.

        Raises:
            LogCorrupted: the topic went back.
        """
        end = self.stable_end()
        with self._lock:
            if end == self._stable:
                return self._last
            known = self._stable
        last = self._find_last(known, end)
        self.note_end(end, last)
        with self._lock:
            return self._last

    def note_end(self, end: int, last: int) -> None:
        """Remember that the last record before `end` is at `last`."""
        with self._lock:
            if end >= self._stable:
                self._stable, self._last = end, max(last, self._last)

    def _find_last(self, known: int, end: int) -> int:
        """Look backwards from the end in growing steps: behind markers there is a record, and seldom far."""
        upper = end
        for step in (*_TAIL_STEPS, end):
            lower = max(known, upper - step)
            last = max((m.offset() or 0 for chunk in self.messages(lower, upper) for m in chunk), default=-1)
            if last >= 0 or lower <= known:
                return last
            upper = lower
        return -1

    def wait(self, after: int, timeout_s: float) -> bool:
        """Block until there is a record above `after`; returns whether there is one."""
        deadline = Deadline(self._clock, timeout_s)
        if self.last_offset() > after:
            return True
        with self._lock:
            first = self._stable
        if deadline.is_over:
            return False
        if self._topic.wait(first, after, deadline.left_s):
            return True
        return self.last_offset() > after
