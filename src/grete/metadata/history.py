"""What happened to a job, as rows in its own stream: deployments, attempts, exits, ends. Simple strings only."""

from __future__ import annotations

from dataclasses import dataclass

from grete.failpoints import failpoint
from grete.metadata.coordinator_stream import CoordinatorStream

HISTORY = "grete-history"
_KEPT = 500


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One event. `details` are names and values for people."""

    number: int
    timestamp_ms: int
    host: str
    username: str
    event: str
    details: dict[str, str]


class History:
    """Appends and lists events; the oldest are tombstoned beyond 500."""

    def __init__(self, stream: CoordinatorStream) -> None:
        self._stream = stream

    def append(self, event: str, **details: str) -> None:
        """Add a row. Durable on return."""
        rows = self._numbers()
        number = rows[-1] + 1 if rows else 0
        entries = [self._stream.entry(HISTORY, str(number), {"event": event, **details})]
        entries += [
            self._stream.entry(HISTORY, str(old), None) for old in rows[: max(0, len(rows) + 1 - _KEPT)]
        ]
        self._stream.append(entries)
        failpoint("history.written")

    def _numbers(self) -> list[int]:
        return sorted(int(key) for key in self._stream.messages(HISTORY) if key.isdigit())

    def rows(self) -> list[HistoryRow]:
        """Every row kept, oldest first."""
        rows = []
        for key, message in self._stream.messages(HISTORY).items():
            if not key.isdigit() or message.origin is None:
                continue
            details = dict(message.values or {})
            event = details.pop("event", "")
            origin = message.origin
            rows.append(
                HistoryRow(int(key), origin.timestamp_ms, origin.host, origin.username, event, details)
            )
        return sorted(rows, key=lambda row: row.number)
