"""The fences of a Kafka system: the epoch below which brokers let no process commit.

A log of its own, `__grete_fences`, holds each scope's epoch (as the keyed log on Kafka does: beside an offset of a
group without members, written under a transactional id) and, as a record, how many transactional ids the scope has
used. A container's epoch is raised in two steps: first it is durable there, then every id of the scope is opened. A
process that opens an id reads the epoch right afterwards and stops when it is higher than its own. So once
`raise_fence` has returned, no process of an older epoch commits: one that held an id is refused, and one that opens
an id stops. The number of the container's epoch of shares is a scope of its own (`epoch_scope`), written and read in
the same steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from grete.clock import Clock
from grete.errors import Fenced, LogError
from grete.kafka.epoch import ScopeEpoch, writer_id
from grete.kafka.epoch_topic import EPOCHS
from grete.kafka.log_clients import KafkaClients
from grete.kafka.producer import NotWritten, TransactionalProducer
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.kafka import KafkaKeyedLog

FENCES = "__grete_fences"
DRIVER = "driver"
"""The slot of the process that plans; the others are numbered."""
_AT_ONCE = 8


def transactional_id(scope: str, slot: str) -> str:
    """The id of one slot of a scope."""
    return f"grete-{scope}-{slot}"


class FenceReader:
    """The stored epoch of one scope. Cheap: one request each time."""

    def __init__(self, scope: str, settings: KafkaLogSettings, clock: Clock) -> None:
        self._scope = scope
        self._clients = KafkaClients(FENCES, settings, clock)
        self._epoch = ScopeEpoch(self._clients, writer_id(FENCES, scope), clock)

    def check(self, epoch: int) -> None:
        """Whether `epoch` is still the highest.

        Raises:
            Fenced: a higher one is stored.
            LogError: none is stored, though it was raised once.
            NotWritten: no answer.
        """
        stored = self._epoch.stored()
        if stored is None:
            raise LogError(
                f"the epoch of {self._scope!r} is gone from the brokers (topic {EPOCHS} was deleted, or it was not "
                "raised for longer than offsets.retention.minutes), so it is unknown whether another process is "
                f"above epoch {epoch}. This process must end; restart it"
            )
        if stored > epoch:
            raise Fenced(self._scope, epoch=epoch, seen=stored)

    def stored(self) -> int | None:
        """The epoch, None when there is none.

        Raises:
            NotWritten: no answer.
        """
        return self._epoch.stored()

    def close(self) -> None:
        """Release the clients."""
        self._epoch.close()
        self._clients.close()


class Fences:
    """Raises epochs. The log is made when it is needed first."""

    def __init__(self, settings: KafkaLogSettings, clock: Clock, slots: int) -> None:
        self._settings = settings
        self._clock = clock
        self._slots = slots
        self._opened: KafkaKeyedLog | None = None

    @property
    def _log(self) -> KafkaKeyedLog:
        if self._opened is None:
            self._opened = KafkaKeyedLog(FENCES, self._settings, self._clock)
        return self._opened

    def raise_epoch(self, fence: Fence) -> None:
        """Make the epoch durable; also again, for brokers forget an epoch that was not written for a week.

        Raises:
            Fenced: the scope is above it already.
        """
        self._log.raise_fence(fence)

    def settle(self, scope: str) -> None:
        """End what keeps the scope's epoch pending and is nobody's (`ScopeEpoch.end_pending`), by raising nothing."""
        with suppress(Fenced):
            self._log.raise_fence(Fence(scope, 0))

    def open_all(self, fence: Fence, make: Callable[[str], TransactionalProducer]) -> None:
        """Open every id that the scope has ever used, after its epoch was raised. `make` makes a producer of an id.

        Raises:
            LogError: the brokers did not answer.
        """
        slots = max(self._slots, self._recorded(fence.scope))
        if slots > self._recorded(fence.scope):
            self._log.append(
                [Entry(fence.scope.encode(), json.dumps({"slots": slots}).encode())], fence=fence
            )
        ids = [transactional_id(fence.scope, slot) for slot in (DRIVER, *map(str, range(slots)))]
        self._open(ids, make)

    def _recorded(self, scope: str) -> int:
        key, slots = scope.encode(), 0
        for record in self._log.read():
            if record.key == key and record.value is not None:
                slots = max(slots, int(json.loads(record.value)["slots"]))
        return slots

    def _open(self, ids: Iterable[str], make: Callable[[str], TransactionalProducer]) -> None:
        deadline_s = self._clock.monotonic_s() + self._settings.timeout_s

        def open_one(id_: str) -> None:
            make(id_).open(deadline_s)

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="grete-fence") as pool:
            try:
                list(pool.map(open_one, ids))
            except NotWritten as error:
                raise error.as_log_error("the older processes could not be fenced") from error

    def close(self) -> None:
        """Release the log."""
        if self._opened is not None:
            self._opened.close()
