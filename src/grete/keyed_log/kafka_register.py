"""One value in a Kafka topic of its own, changed by comparing and setting (`grete.keyed_log.kafka_turns`)."""

from __future__ import annotations

from collections.abc import Callable

from grete.clock import Clock
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log.base import Entry
from grete.keyed_log.kafka_turns import KafkaTurns

_KEY = b"value"
Decide = Callable[[bytes | None], bytes | None]


class KafkaRegister:
    """The value in the topic `name`. `clock` counts timeouts, so it is the machine's own.

    Raises:
        LogError: the topic cannot be made or cannot keep a value.
    """

    def __init__(self, name: str, settings: KafkaLogSettings, clock: Clock) -> None:
        self._turns = KafkaTurns(name, settings, clock)
        self._value: bytes | None = None

    def read(self, *, is_settled: bool = False) -> bytes | None:
        """The value; None when none was set.

        A value that was set a moment ago may not be readable yet, though its transaction is committed: the broker
        ends it for readers later. `is_settled` waits for that.

        Raises:
            LogError: no answer, or the topic was recreated; or a transaction stayed open while we waited.
        """
        reader = self._turns.reader
        if is_settled:
            reader.settled_end()
        last = reader.last_offset()
        values = [m.value() for chunk in reader.messages(last, last + 1) for m in chunk]
        return values[-1] if values else None

    def change(self, decide: Decide, timeout_s: float) -> None:
        """Set what `decide` makes of the value; None changes nothing, and what it raises ends the attempt.

        It is called first without disturbing others, and again whenever the value may have changed since; also
        with the value of an own attempt whose answer did not come, which it has to recognise.

        Raises:
            LogError: nothing was decided in time.
        """
        decided: list[bytes | None] = [None]

        def read() -> None:
            self._value = self.read()

        def entry() -> Entry | None:
            decided[0] = decide(self._value)
            return None if decided[0] is None else Entry(_KEY, decided[0])

        if self._turns.change(read, entry, timeout_s) is not None:
            self._value = decided[0]

    def delete(self) -> None:
        """Delete the topic."""
        self._turns.delete()

    def close(self) -> None:
        """Release everything; the value stays."""
        self._turns.close()
