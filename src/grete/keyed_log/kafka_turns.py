"""Comparing and setting in a Kafka topic: all writers use one transactional id, in turns.

Opening the id ends every other user's transaction, so from opening to the first refused request no other process can
have written: what was read in between still holds when our write is committed. A writer that was ended by another
opens again, reads, and decides again.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace

from grete.clock import Clock, Deadline
from grete.errors import GreteError, LogCorrupted, LogError, LogUnreachable
from grete.kafka.errors import translated
from grete.kafka.log_clients import KafkaClients
from grete.kafka.log_topic import find_or_create
from grete.kafka.settings import KafkaLogSettings
from grete.kafka.topics import delete_topic
from grete.keyed_log.base import Entry
from grete.keyed_log.kafka_header import AppendOrigin
from grete.keyed_log.kafka_reader import LogReader
from grete.keyed_log.kafka_writer import Append, KafkaWriter, NotWritten, OutcomeUnknown

_PAUSES_S = (0.05, 1.0)
"""At most, before the second attempt; doubled with each, since a process that opens the id takes it from others."""
_CREATION_S = 30.0


class KafkaTurns:
    """A topic and its one transactional id. `clock` counts timeouts, so it is the machine's own.

    Raises:
        LogError: the topic cannot be made or cannot keep a value.
    """

    def __init__(self, name: str, settings: KafkaLogSettings, clock: Clock) -> None:
        clients = self._clients = KafkaClients(name, settings, clock)
        find_or_create(KafkaClients(name, replace(settings, timeout_s=_CREATION_S), clock), clock)
        self.reader = LogReader(clients, clock)
        self._name = name
        self._clock = clock
        self._writer = KafkaWriter(clients, clock, f"grete-{name}")

    def change(
        self,
        read: Callable[[], None],
        decide: Callable[[], Entry | None],
        timeout_s: float,
        append_id: str | None = None,
    ) -> int | None:
        """Append what `decide` returns, in view of what `read` has read last; None changes nothing.

        Returns the offset of the record, whose header has the append id (a random one when absent). Both functions
        are called first without disturbing others, and again whenever the topic may have changed since; also when it
        holds an own attempt whose answer did not come, which `decide` has to recognise. What it raises ends the
        attempt.

        Raises:
            LogError: nothing was decided in time.
        """
        origin = AppendOrigin(None, append_id or uuid.uuid4().hex, "")
        with self._writer.lock:
            # spread, so that two processes do not take the id from each other for ever
            deadline = Deadline(self._clock, timeout_s, pauses_s=_PAUSES_S, spread=random.random)
            while True:
                try:
                    return self._try(read, decide, origin, deadline.at_s)
                except LogCorrupted:
                    raise
                except (NotWritten, OutcomeUnknown, LogError) as failure:
                    self._writer.drop()
                    if not deadline.pause():
                        raise LogUnreachable(f"topic {self._name}: {failure}") from failure

    def _try(
        self,
        read: Callable[[], None],
        decide: Callable[[], Entry | None],
        origin: AppendOrigin,
        deadline_s: float,
    ) -> int | None:
        if not self._writer.is_open:
            read()
            if decide() is None:
                return None
            self._writer.open(deadline_s)
            read()
        try:
            entry = decide()
        except GreteError:
            self._writer.drop()  # others write from now on: the next attempt has to read what they have written
            raise
        if entry is None:
            return None
        append = Append([entry], origin, self._clock.wall_ms())
        last = self._writer.write(append, deadline_s, self.reader.check_appended)
        self.reader.note_appended(last)
        return last

    def delete(self) -> None:
        """Delete the topic, with the time that creating one is given.

        Raises:
            LogError: the brokers refuse, or did not answer.
        """
        settings = replace(self._clients.settings, timeout_s=_CREATION_S)
        with translated(f"deleting topic {self._name}"):
            delete_topic(KafkaClients(self._name, settings, self._clock), self._name)

    def close(self) -> None:
        """Release everything; what was written stays."""
        with self._writer.lock:
            self._writer.close()
        self.reader.close()
