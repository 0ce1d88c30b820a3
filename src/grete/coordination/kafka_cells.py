"""Coordination cells in a compacted Kafka topic, one a scope. The version of a cell is the offset of its record."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from grete.clock import SystemClock
from grete.coordination.cells import Cell, Cells, below, check_size
from grete.errors import CellChanged, CoordinationUnreachable, LogUnreachable
from grete.kafka.library import Message
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Entry
from grete.keyed_log.kafka_reader import header_of
from grete.keyed_log.kafka_turns import KafkaTurns

_OVERHEAD = 1_000
"""Of a batch of one record, with its header."""


@dataclass(frozen=True, slots=True)
class _CellRow:
    """The last record of a name; `value` None is its removal."""

    value: bytes | None
    offset: int
    append_id: str

    @property
    def version(self) -> str | None:
        return None if self.value is None else str(self.offset)

    @property
    def cell(self) -> Cell | None:
        return None if self.value is None else Cell(self.value, str(self.offset))


class KafkaCells(Cells):
    """The cells in the topic `name`. Each read goes on where the one before has ended.

    A write takes the transactional id, which all processes use in turns.
    """

    def __init__(self, name: str, settings: KafkaLogSettings, *, timeout_s: float) -> None:
        self._turns = KafkaTurns(name, settings, SystemClock())
        self._timeout_s = timeout_s
        self._largest = settings.max_message_bytes - _OVERHEAD
        self._lock = threading.Lock()
        self._rows: dict[str, _CellRow] = {}
        self._end = 0

    def read(self, name: str) -> Cell | None:
        """See Cells."""
        with self._lock, _answered():
            self._catch_up()
            row = self._rows.get(name)
            return None if row is None else row.cell

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """See Cells."""
        begins = below(prefix)
        with self._lock, _answered():
            self._catch_up()
            found = {name: row.cell for name, row in self._rows.items() if name.startswith(begins)}
        return {name: cell for name, cell in found.items() if cell is not None}

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """See Cells."""
        check_size(name, value, self._largest - len(name), "Kafka")
        return Cell(value, str(self._set(name, value, expected)))

    def delete(self, name: str, expected: str) -> None:
        """See Cells."""
        self._set(name, None, expected)

    def _set(self, name: str, value: bytes | None, expected: str | None) -> int:
        append_id = uuid.uuid4().hex

        def decide() -> Entry | None:
            row = self._rows.get(name)
            if row is not None and row.append_id == append_id:
                return None  # our own attempt, whose answer did not come
            if (None if row is None else row.version) != expected:
                raise CellChanged(name)
            return Entry(name.encode(), value)

        with self._lock, _answered():
            self._catch_up()
            offset = self._turns.change(self._catch_up, decide, self._timeout_s, append_id)
            if offset is not None:
                self._rows[name] = _CellRow(value, offset, append_id)
                self._end = offset + 1
            return self._rows[name].offset

    def _catch_up(self) -> None:
        reader = self._turns.reader
        end = reader.settled_end()
        for chunk in reader.messages(self._end, end):
            for message in chunk:
                self._note(message)
        self._end = max(self._end, end)

    def _note(self, message: Message) -> None:
        header = header_of(message)
        found = None if header is None else kafka_header.split(header)
        origin = None if found is None else kafka_header.decode(found[1])
        append_id = "" if origin is None else origin.append_id
        name = (message.key() or b"").decode()
        self._rows[name] = _CellRow(message.value(), message.offset() or 0, append_id)

    def clear(self) -> None:
        """See Cells. The topic goes."""
        with self._lock, _answered():
            self._turns.delete()

    def close(self) -> None:
        """See Cells."""
        self._turns.close()


@contextmanager
def _answered() -> Iterator[None]:
    """Brokers that do not answer are, for this port, a service that does not."""
    try:
        yield
    except LogUnreachable as error:
        raise CoordinationUnreachable(str(error)) from error
