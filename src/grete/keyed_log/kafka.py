"""A keyed log in a Kafka topic: one partition, compacted, that Samza's JVM classes read and write as well.

- **All or nothing**: an append is one transaction, its records are adjacent (else it is aborted and tried again), and
  readers see committed records only.
- **Fenced** by the broker: each scope has a transactional id of its own (`kafka_writer`), and its epoch is beside an
  offset committed in the same transaction, in a group without members. It takes no room in the log, and the group
  coordinator answers for it in one request. Readers check the epoch in the record's header besides.
- **In doubt**: each record carries its append's id (the writer's incarnation and a number, if the caller gives none).
  After a commit without answer the transactional id is opened again, which ends the old transaction one way or the
  other, and the id is looked for among the last records.

Offsets are the broker's, so there are gaps: a marker follows each append. What this cannot promise: brokers forget
epochs and transactional ids of scopes that were not written for `offsets.retention.minutes` and
`transactional.id.expiration.ms`, a week by default. A writer that was replaced, and finds its epoch forgotten, stops.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from grete.clock import Clock, Deadline
from grete.config.settings import Settings
from grete.errors import Fenced, IllegalStateError, InDoubt, LogCorrupted, LogError, LogUnreachable
from grete.kafka.epoch import EpochPending, writer_id
from grete.kafka.epoch_topic import EPOCHS
from grete.kafka.errors import translated
from grete.kafka.log_clients import KafkaClients
from grete.kafka.log_topic import LogTopic, find_again, find_or_create
from grete.kafka.settings import (
    KafkaLogSettings,
    checkpoint_log_settings,
    coordinator_log_settings,
)
from grete.kafka.topics import delete_topic
from grete.keyed_log.base import Entry, Fence, KeyedLog, Record
from grete.keyed_log.coordinator_log import LogContext
from grete.keyed_log.kafka_compaction import compact_now
from grete.keyed_log.kafka_header import AppendOrigin
from grete.keyed_log.kafka_ids import AppendIds
from grete.keyed_log.kafka_reader import TRANSACTION_STRIDE, LogReader
from grete.keyed_log.kafka_writer import Append, KafkaWriter, NotWritten, OutcomeUnknown

_PAUSES_S = (0.02, 1.0)
_EPOCH_REFRESH_S = 3_600.0
_HEADER_BYTES = 256


def open_coordinator_log(context: LogContext) -> KafkaKeyedLog:
    """The coordinator stream on a Kafka system of the configuration."""
    settings = coordinator_log_settings(context.settings, context.system)
    return KafkaKeyedLog(context.name, settings, context.clock, must_exist=context.must_exist)


def open_checkpoint_log(settings: Settings, system: str, name: str, clock: Clock) -> KafkaKeyedLog:
    """The checkpoint log `name` on a Kafka system of the configuration; made when it is not there."""
    return KafkaKeyedLog(name, checkpoint_log_settings(settings, system), clock)


@dataclass(slots=True)
class _Attempt:
    """One append. `is_repeatable`: the caller may have tried before; `is_in_doubt`: a commit had no answer;
    `is_claim`: it raises the scope, or is refused.
    """

    entries: Sequence[Entry]
    fence: Fence | None
    id: str
    is_repeatable: bool
    deadline: Deadline
    is_in_doubt: bool = False
    is_claim: bool = False


class KafkaKeyedLog(KeyedLog):
    """The log in the topic `name`, made when it is not there unless it `must_exist`.

    Raises:
        LogNotFound: it must exist and does not.
        UnsafeStorage: the topic has another clean-up policy or more than one partition.
        LogError: no broker answers, or they are too few for the copies.
    """

    stride = TRANSACTION_STRIDE

    def __init__(
        self, name: str, settings: KafkaLogSettings, clock: Clock, *, must_exist: bool = False
    ) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._clients = KafkaClients(name, settings, clock)
        self._topic: LogTopic = find_or_create(self._clients, clock, must_exist=must_exist)
        self._largest = min(settings.max_message_bytes, self._topic.max_message_bytes)
        self._reader = LogReader(self._clients, clock)
        self._ids = AppendIds(self._reader)
        self._incarnation = uuid.uuid4().hex[:16]
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._writers: dict[str | None, KafkaWriter] = {}
        self._closed = False

    # --- writing ---

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        """See KeyedLog. Tries again by itself for `timeout_s` when that cannot write twice.

        Raises:
            LogError: an entry larger than the topic takes, or nothing was written in time.
        """
        self._check_open()
        for entry in entries:
            self._check_size(entry)
        attempt = _Attempt(
            entries,
            fence,
            append_id or f"{self._incarnation}-{next(self._numbers)}",
            is_repeatable=append_id is not None,
            deadline=self._deadline(),
        )
        writer = self._writer(None if fence is None else fence.scope)
        with writer.lock:
            return self._append(writer, attempt)

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._settings.timeout_s, pauses_s=_PAUSES_S)

    def _append(self, writer: KafkaWriter, attempt: _Attempt) -> int:
        while True:
            outcome = self._try(writer, attempt)
            if isinstance(outcome, int):
                return outcome
            self._check_same_topic()
            if not attempt.deadline.pause():
                if attempt.is_in_doubt:
                    raise InDoubt(attempt.id, f"topic {self._name}: {outcome}", may_pass=True) from outcome
                raise LogUnreachable(f"nothing was appended to topic {self._name}: {outcome}") from outcome

    def _try(self, writer: KafkaWriter, attempt: _Attempt) -> int | Exception:
        """Once: the offset, or why it may be tried again."""
        try:
            if not writer.is_open:
                self._open(writer, attempt)
            found = self._ids.find(attempt.id) if attempt.is_in_doubt else None
            if found is None:
                attempt.is_in_doubt = False
                if attempt.fence is not None:
                    self._check_fence(writer, attempt, attempt.fence)
                found = self._ids.find(attempt.id) if attempt.is_repeatable else None
            return self._write(writer, attempt) if found is None else found
        except OutcomeUnknown as unknown:
            attempt.is_in_doubt = True
            return unknown
        except NotWritten as refusal:
            writer.drop()
            if refusal.is_final and not attempt.is_in_doubt:
                raise LogError(f"nothing was appended to topic {self._name}: {refusal}") from refusal
            return refusal
        except (Fenced, LogCorrupted):
            raise
        except LogError as error:
            if not attempt.is_in_doubt:
                raise
            return error

    def _write(self, writer: KafkaWriter, attempt: _Attempt) -> int:
        fence = attempt.fence
        raised_to = None if fence is None else self._epoch_to_write(writer, fence)
        if attempt.entries or raised_to is not None:
            origin = (
                AppendOrigin(None, attempt.id, "")
                if fence is None
                else AppendOrigin(fence.epoch, attempt.id, fence.scope)
            )
            append = Append(attempt.entries, origin, self._clock.wall_ms(), raised_to)
            last = writer.write(append, attempt.deadline.at_s, self._reader.check_appended)
            self._reader.note_appended(last)
        if not attempt.entries:
            return self.end()
        self._await_readable(writer, last, attempt.deadline.left_s)
        return last

    def _epoch_to_write(self, writer: KafkaWriter, fence: Fence) -> int | None:
        """The epoch when it is new to the broker, or was written so long ago that it might be forgotten."""
        is_old = self._clock.monotonic_s() - writer.epoch_written_s > _EPOCH_REFRESH_S
        return fence.epoch if writer.known_epoch != fence.epoch or is_old else None

    def _await_readable(self, writer: KafkaWriter, last: int, left_s: float) -> None:
        """The append is durable; its marker, and with it readers, follow within milliseconds.

        What cannot be read is not acknowledged: the broker may have forgotten the marker, and then the next process
        that opens the id aborts the append (`kafka_writer`).

        Raises:
            OutcomeUnknown: not readable for longer than any transaction may live.
        """
        patience_s = 2 * self._settings.transaction_timeout_s
        reason = self._reader.await_stable(last, min(patience_s, left_s))
        if reason:
            writer.give_up()
            raise OutcomeUnknown(f"committed, and cannot be read: {reason}")

    def _open(self, writer: KafkaWriter, attempt: _Attempt) -> None:
        """Take over the writer's id, unless it shows already that we are fenced: our successor is left in peace."""
        if attempt.fence is not None and not attempt.is_in_doubt:
            with suppress(EpochPending):  # opening the id ends what nobody else will
                self._check_epoch(attempt, attempt.fence, writer.stored_epoch())
        was_at = writer.known_epoch
        writer.open(attempt.deadline.at_s)
        writer.known_epoch = None
        if attempt.fence is not None:
            stored = writer.settled_epoch(attempt.deadline.at_s)
            writer.known_epoch = self._epoch_after_opening(stored, attempt.fence, was_at)

    def _epoch_after_opening(self, stored: int | None, fence: Fence, was_at: int | None) -> int | None:
        if stored is None and was_at is not None:
            self._check_same_topic()
            raise LogError(
                f"topic {self._name}: the epoch of {fence.scope!r} is gone from the brokers (its group or topic "
                f"{EPOCHS} was deleted, or it was not written for longer than offsets.retention.minutes), so it is "
                f"unknown whether another writer is above epoch {fence.epoch}. This process must end; restart it"
            )
        return self._reader.highest_epoch(fence.scope) if stored is None else stored

    def _check_fence(self, writer: KafkaWriter, attempt: _Attempt, fence: Fence) -> None:
        """An epoch read since the id was opened holds until a request is refused; a question rereads it."""
        self._check_epoch(attempt, fence, writer.known_epoch)
        if not attempt.entries:
            self._check_epoch(attempt, fence, writer.stored_epoch())

    def _check_epoch(self, attempt: _Attempt, fence: Fence, seen: int | None) -> None:
        if seen is not None and (seen > fence.epoch or (attempt.is_claim and seen == fence.epoch)):
            raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)

    def _check_same_topic(self) -> None:
        """After a failure: whether the topic is still the one that was opened."""
        found = find_again(self._clients, self._topic)
        if found is None or found.id != self._topic.id:
            raise LogCorrupted(
                f"topic {self._name} was deleted{'' if found is None else ' and recreated'} while it was open. "
                "Nothing is written to it; find out why, and start again"
            )

    def raise_fence(self, fence: Fence) -> None:
        """See KeyedLog."""
        self.append([], fence=fence)

    def claim(self, fence: Fence) -> None:
        """See KeyedLog."""
        self._check_open()
        id_ = f"{self._incarnation}-{next(self._numbers)}"
        attempt = _Attempt([], fence, id_, is_repeatable=False, deadline=self._deadline(), is_claim=True)
        writer = self._writer(fence.scope)
        with writer.lock:
            self._append(writer, attempt)

    def _writer(self, scope: str | None) -> KafkaWriter:
        with self._lock:
            if scope not in self._writers:
                tool = f"grete-{self._name}-tool-{self._incarnation}"
                id_ = tool if scope is None else writer_id(self._name, scope)
                self._writers[scope] = KafkaWriter(self._clients, self._clock, id_)
            return self._writers[scope]

    def _check_size(self, entry: Entry) -> None:
        size = len(entry.key) + len(entry.value or b"") + _HEADER_BYTES
        if size > self._largest:
            raise LogError(
                f"topic {self._name} takes records of up to {self._largest} bytes, and that of key "
                f"{entry.key[:80]!r} has {size}. Nothing was written. Make it smaller, or raise max.message.bytes "
                f"of the topic and {self._settings.size_key}"
            )

    def resolve(self, append_id: str) -> int | None:
        """See KeyedLog. Ends what this object has left open, and waits for what others have."""
        self._check_open()
        deadline_s = self._clock.monotonic_s() + self._settings.timeout_s
        with self._lock:
            writers = list(self._writers.values())
        for writer in writers:
            with writer.lock:
                if writer.is_in_doubt:
                    try:
                        writer.open(deadline_s)
                    except NotWritten as error:
                        raise error.as_log_error(f"topic {self._name}: cannot resolve {append_id}") from error
        return self._ids.find(append_id)

    # --- reading ---

    def read(self, after: int = -1) -> Iterator[Record]:
        """See KeyedLog. Records of foreign writers have no epoch.

        Raises:
            LogCorrupted: the topic was deleted and recreated since this object looked first.
            LogError: the brokers gave nothing for `timeout_s`.
        """
        self._check_open()
        last = self._reader.last_offset()
        return self._reader.records(after, last) if last > after else iter(())

    def end(self) -> int:
        """See KeyedLog."""
        self._check_open()
        return self._reader.last_offset()

    def wait(self, after: int, timeout_s: float) -> bool:
        """See KeyedLog. The broker answers as soon as there is something; no polling."""
        self._check_open()
        return self._reader.wait(after, timeout_s)

    def compact(self) -> int:
        """See KeyedLog. Brokers compact by themselves; this makes them do it now, and waits for it."""
        self._check_open()
        writer = self._writer(None)
        with writer.lock:
            return compact_now(self._clients, self._reader, writer, self._clock)

    def delete(self) -> None:
        """See KeyedLog."""
        self._check_open()
        with translated(f"deleting topic {self._name}"):
            delete_topic(self._clients, self._name)

    def close(self) -> None:
        """See KeyedLog."""
        if self._closed:
            return
        self._closed = True
        for writer in self._writers.values():
            with writer.lock:
                writer.close()
        self._reader.close()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError(f"the log of topic {self._name} is closed")
