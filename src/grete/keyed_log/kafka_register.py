"""One value in a Kafka topic of its own, changed by comparing and setting.

All writers use the same transactional id. Opening the id ends every other user's transaction,
so from opening to the first refused request no other process can have written: what was read in between still holds
when our write is committed. A writer that was ended by another opens again, reads, and decides again.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace

from grete.clock import Clock, Deadline
from grete.errors import LogCorrupted, LogError, LogUnreachable
from grete.kafka.log_clients import KafkaClients
from grete.kafka.log_topic import find_or_create
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log.base import Entry
from grete.keyed_log.kafka_header import Origin
from grete.keyed_log.kafka_reader import LogReader
from grete.keyed_log.kafka_writer import Append, KafkaWriter, NotWritten, OutcomeUnknown

_KEY = b"value"
_PAUSES_S = (0.05, 1.0)
"""At most, before the second attempt; doubled with each, since a process that opens the id takes it from others."""
_CREATION_S = 30.0
Decide = Callable[[bytes | None], bytes | None]


class KafkaRegister:
    """The value in the topic `name`. `clock` counts timeouts, so it is the machine's own.

    Raises:
        LogError: the topic cannot be made or cannot keep a value.
    """

    def __init__(self, name: str, settings: KafkaLogSettings, clock: Clock) -> None:
        clients = KafkaClients(name, settings, clock)
        find_or_create(KafkaClients(name, replace(settings, timeout_s=_CREATION_S), clock), clock)
        self._name = name
        self._settings = settings
        self._clock = clock
        self._reader = LogReader(clients, clock)
        self._writer = KafkaWriter(clients, clock, f"grete-{name}")
        self._origin = Origin(None, uuid.uuid4().hex, "")
        self._value: bytes | None = None

    def read(self, *, is_settled: bool = False) -> bytes | None:
        """The value; None when none was set.

        A value that was set a moment ago may not be readable yet, though its transaction is committed: the broker
        ends it for readers later. `is_settled` waits for that.

        Raises:
            LogError: no answer, or the topic was recreated; or a transaction stayed open while we waited.
        """
        if is_settled:
            self._reader.settled_end()
        last = self._reader.last_offset()
        values = [m.value() for chunk in self._reader.messages(last, last + 1) for m in chunk]
        return values[-1] if values else None

    def change(self, decide: Decide, timeout_s: float) -> None:
        """Set what `decide` makes of the value; None changes nothing, and what it raises ends the attempt.

        It is called first without disturbing others, and again whenever the value may have changed since; also
        with the value of an own attempt whose answer did not come, which it has to recognise.

        Raises:
            LogError: nothing was decided in time.
        """
        with self._writer.lock:
            # spread, so that two processes do not take the id from each other for ever
            deadline = Deadline(self._clock, timeout_s, pauses_s=_PAUSES_S, spread=random.random)
            while (failure := self._try(decide, deadline.at_s)) is not None:
                self._writer.drop()
                if not deadline.pause():
                    raise LogUnreachable(f"topic {self._name}: {failure}") from failure

    def _try(self, decide: Decide, deadline_s: float) -> Exception | None:
        try:
            if not self._writer.is_open:
                if decide(self.read()) is None:
                    return None
                self._writer.open(deadline_s)
                self._value = self.read()
            value = decide(self._value)
            if value is not None:
                append = Append([Entry(_KEY, value)], self._origin, self._clock.wall_ms())
                self._writer.write(append, deadline_s, self._reader.check_not_back)
                self._value = value
        except (NotWritten, OutcomeUnknown) as failure:
            return failure
        except LogCorrupted:
            raise
        except LogError as failure:
            return failure
        return None

    def close(self) -> None:
        """Release everything; the value stays."""
        with self._writer.lock:
            self._writer.close()
        self._reader.close()
