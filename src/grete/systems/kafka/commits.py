"""Commits to a Kafka system: fences of scopes, the driver's transactions, and slots for executors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from grete.clock import Clock, Deadline
from grete.config.settings.tasks import TaskSettings
from grete.errors import Fenced, InDoubt
from grete.kafka.client import KafkaConnection, Partition
from grete.kafka.epoch import EpochPending
from grete.kafka.producer import NotWritten, OutcomeUnknown, TransactionalProducer, transaction_producer
from grete.kafka.settings import KafkaLogSettings
from grete.kafka.topics import Topics
from grete.model.fence import Fence, epoch_scope
from grete.systems.commit_group import CommitGroup
from grete.systems.kafka.fence import DRIVER, FenceReader, Fences, transactional_id
from grete.systems.kafka.transaction import GroupTransactions, Resting

_REFRESH_S = 3_600.0
_PAUSES_S = (0.05, 0.05)


class KafkaCommits:
    """Safe to use from several threads. `ensure_log` makes the topic of a checkpoint log that is not there."""

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Topics,
        ensure_log: Callable[[str], object],
        log_settings: KafkaLogSettings,
        task: TaskSettings,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._ensure_log = ensure_log
        self._log_settings = log_settings
        self._transaction_timeout_s = task.transaction_timeout_s
        self._clock = clock
        self._fences = Fences(log_settings, clock, task.commit_groups)
        self._lock = threading.RLock()
        self._writers: dict[Fence, GroupTransactions] = {}
        self._readers: dict[str, FenceReader] = {}
        self._raised: dict[Fence, float] = {}
        self._resting: dict[str, Resting] = {}

    def raise_fence(self, fences: Iterable[Fence]) -> None:
        """See TransactionalStore."""
        for fence in fences:
            self._fences.raise_epoch(fence)
            self._fences.open_all(fence, self._producer)
            self._note_raised(fence)

    def begin_epoch(self, fence: Fence) -> Fence:
        """See TransactionalStore. Who holds an id is refused, and finds the right raised when it opens one."""
        scope = epoch_scope(fence)
        self._fences.raise_epoch(fence)  # from here on no older container counts on
        stored = self._stored(scope, Deadline(self._clock, self._log_settings.timeout_s, pauses_s=_PAUSES_S))
        right = Fence(scope, 1 + (stored or 0))
        self._fences.raise_epoch(right)
        self._fences.open_all(fence, self._producer)
        self._note_raised(fence)
        self._note_raised(right)
        return right

    def keep_fences(self, fences: Iterable[Fence]) -> None:
        """See System."""
        for fence in fences:
            with self._lock:
                is_due = self._clock.monotonic_s() - self._raised.get(fence, float("-inf")) > _REFRESH_S
            if is_due:
                self._fences.raise_epoch(fence)
                self._note_raised(fence)

    def _note_raised(self, fence: Fence) -> None:
        with self._lock:
            self._raised[fence] = self._clock.monotonic_s()

    def transactions(
        self,
        fences: Sequence[Fence],
        slot: str,
        topics: Topics,
        partitions: Callable[[], Sequence[Partition]],
    ) -> GroupTransactions:
        """The transactions of one slot of the first fence's scope; see GroupTransactions."""
        return GroupTransactions(
            self._connection,
            transactional_id(fences[0].scope, slot),
            {fence: self._reader(fence.scope) for fence in fences},
            topics,
            partitions,
            self._clock,
            self._transaction_timeout_s,
            self._resting,
        )

    def commit(self, group: CommitGroup) -> dict[tuple[str, int], int]:
        """See TransactionalStore."""
        deadline = Deadline(self._clock, self._log_settings.timeout_s, pauses_s=_PAUSES_S)
        group = replace(group, segments=list(group.segments))  # they are sent again when the brokers refuse
        with self._lock:
            self._check_fences(group.fences, deadline)
            while True:
                writer = self._writer(group.fences[0])
                try:
                    return self._commit(writer, group, deadline.at_s)
                except NotWritten as refusal:
                    writer.drop()
                    if refusal.is_final or not deadline.pause():
                        attempted = f"nothing was committed in system {self._topics.system!r}"
                        raise refusal.as_log_error(attempted) from refusal
                except OutcomeUnknown as unknown:
                    raise InDoubt(transactional_id(group.fences[0].scope, DRIVER), str(unknown)) from unknown

    def _commit(
        self, writer: GroupTransactions, group: CommitGroup, deadline_s: float
    ) -> dict[tuple[str, int], int]:
        from grete.systems.records import unpack

        written = [(one.stream, one.partition, unpack(one.data)) for one in group.segments]
        for batch in written:
            self._topics.get(batch[0])
            writer.check_sizes(*batch)
        if group.checkpoint_entries:
            self._ensure_log(group.checkpoint_log)
        writer.fits([stream for stream, _, _ in written])
        if not writer.is_open:
            writer.open(deadline_s)
        writer.begin()
        try:
            for batch in written:
                writer.send_batch(*batch)
            ends = dict(writer.settle(deadline_s))
            writer.send_entries(group.checkpoint_log, group.checkpoint_entries, self._clock.wall_ms())
            writer.settle(deadline_s)
        except BaseException:
            writer.abort(deadline_s)
            raise
        writer.commit(deadline_s)
        writer.confirm()
        return ends

    def _check_fences(self, fences: Sequence[Fence], deadline: Deadline) -> None:
        """Refuse what is stale before anything is raised, then raise what is new."""
        known = {fence: self._reader(fence.scope) for fence in fences if fence not in self._raised}
        for fence in fences:
            stored = self._stored(fence.scope, deadline)
            if stored is not None and stored > fence.epoch:
                raise Fenced(fence.scope, epoch=fence.epoch, seen=stored)
        self.raise_fence(known)

    def _stored(self, scope: str, deadline: Deadline) -> int | None:
        while True:
            try:
                return self._reader(scope).stored()
            except NotWritten as error:  # as from a group coordinator that has just moved
                if error.is_final or not deadline.pause():
                    raise error.as_log_error(f"reading the epoch of {scope!r}") from error
                if isinstance(error, EpochPending):
                    self._fences.settle(scope)

    def _reader(self, scope: str) -> FenceReader:
        with self._lock:
            if scope not in self._readers:
                self._readers[scope] = FenceReader(scope, self._log_settings, self._clock)
            return self._readers[scope]

    def _writer(self, fence: Fence) -> GroupTransactions:
        if fence not in self._writers:
            for old in [one for one in self._writers if one.scope == fence.scope and one.epoch < fence.epoch]:
                self._writers.pop(old).drop()  # a coordinator fences a container off many times in its life
            # no partitions: what an older driver left open, its successor's next transaction there ends
            self._writers[fence] = self.transactions([fence], DRIVER, self._topics, lambda: ())
        return self._writers[fence]

    def _producer(self, id_: str) -> TransactionalProducer:
        return TransactionalProducer(
            lambda: transaction_producer(self._connection, id_, self._transaction_timeout_s), self._clock
        )

    def close(self) -> None:
        """Release connections."""
        with self._lock:
            for reader in self._readers.values():
                reader.close()
            self._fences.close()
            self._writers.clear()
            self._resting.clear()
