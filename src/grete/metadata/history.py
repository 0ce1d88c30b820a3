"""A job's events as rows in its own stream: deployments, attempts, exits, ends. Simple strings only."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grete.failpoints import failpoint
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId

HISTORY = "grete-history"
GIVEN_UP, STOPPED = "given up", "stopped by an operator"
"""Why a container rests."""
STARTS = ("deployment", "attempt", "change")
"""Events with which a coordinator starts all containers."""
_IN_ORDER = ("ended", "stopped")
_KEPT = 500
_OF_WRITER = "-"
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One event. `details` are names and values for people."""

    number: int
    timestamp_ms: int
    host: str
    username: str
    event: str
    details: dict[str, str]

    @property
    def is_failed_exit(self) -> bool:
        """Whether a container ended otherwise than in order."""
        return self.event == "container-exited" and self.details.get("meaning") not in _IN_ORDER


class History:
    """Appends and lists events; the oldest beyond 500 go. `urgent` ones are written on a full disk too."""

    def __init__(self, stream: CoordinatorStream, *, urgent: bool = False) -> None:
        self._stream = stream
        self._urgent = urgent

    def append(self, event: str, **details: str) -> None:
        """Add a row. Durable on return."""
        keys = self._keys()
        number = _number(keys[-1]) + 1 if keys else 0
        # several processes may take the same number at once, and each row counts
        own = f"{number}{_OF_WRITER}{uuid.uuid4().hex[:8]}"
        entries = [self._stream.entry(HISTORY, own, {"event": event, **details})]
        entries += [self._stream.entry(HISTORY, old, None) for old in keys[: max(0, len(keys) + 1 - _KEPT)]]
        self._stream.append(entries, urgent=self._urgent)
        failpoint("history.written")

    def _keys(self) -> list[str]:
        found = (key for key in self._stream.messages(HISTORY) if _number(key) >= 0)
        return sorted(found, key=lambda key: (_number(key), key))

    def rows(self) -> list[HistoryEvent]:
        """Every row kept, oldest first."""
        rows = []
        for key, message in self._stream.messages(HISTORY).items():
            number = _number(key)
            if number < 0 or message.origin is None:
                continue
            details = dict(message.values or {})
            event = details.pop("event", "")
            origin = message.origin
            rows.append(
                HistoryEvent(number, origin.timestamp_ms, origin.host, origin.username, event, details)
            )
        return sorted(rows, key=lambda row: (row.number, row.timestamp_ms))


@dataclass(frozen=True, slots=True)
class Ending:
    """How a container's last incarnation ended: `ended`, `stopped` or `failed`, and why as far as it is known."""

    state: str
    message: str

    @classmethod
    def of(cls, details: Mapping[str, str]) -> Ending:
        """As the row of an exit has it."""
        meaning, cause, reason = (details.get(name, "") for name in ("meaning", "cause", "reason"))
        if meaning in _IN_ORDER:
            return cls(meaning, cause)
        code = f"exit code {details.get('exit_code', 'unknown')}"
        return cls("failed", reason or code if meaning == "failed" else f"{meaning}: {reason or code}")


def endings(rows: Iterable[HistoryEvent]) -> dict[ContainerId, Ending]:
    """How containers ended since their job's last start, as far as it is known.

    The last exit is that of the container for which the job has failed, if it has. The others are killed then, and of
    that there is no row: only those that had ended by themselves are known.
    """
    found: dict[ContainerId, Ending] = {}
    last = None
    for row in rows:
        if row.event in STARTS:
            found = {}
        elif row.event == "container-exited":
            last = ContainerId(row.details.get("container", ""))
            found[last] = Ending.of(row.details)
        elif row.event == "failed":
            found = {id_: how for id_, how in found.items() if id_ == last or how.state == "ended"}
    return found


def unchanged_attempts(rows: Iterable[HistoryEvent]) -> int:
    """The attempts of the last deployment that changed nothing, as far as the rows that are kept go (S0-21)."""
    count = 0
    for row in rows:
        if row.event == "deployment":
            count = 0
        elif row.event == "attempt":
            count += 1
    return count


def rests(rows: Iterable[HistoryEvent]) -> dict[ContainerId, str]:
    """Why containers do not run: given up, or stopped by an operator, and not started since."""
    found: dict[ContainerId, str] = {}
    for row in rows:
        container = ContainerId(row.details.get("container", ""))
        if row.event in STARTS:
            found = {}  # another coordinator starts them all
        elif row.event == "container-given-up":
            found[container] = GIVEN_UP
        elif row.event == "orphan-stopped" or (row.event, row.details.get("what")) == (
            "container-requested",
            "stop",
        ):
            found[container] = STOPPED
        elif row.event == "container-requested":
            found.pop(container, None)
    return found


def rests_in_words(found: Mapping[ContainerId, str], of: int) -> str:
    """As `1 of 2 containers given up`; empty when none rests."""
    counted = Counter(found.values())
    return ", ".join(
        f"{count} of {of} container{'' if of == 1 else 's'} {why}" for why, count in sorted(counted.items())
    )


def _number(key: str) -> int:
    """A row's place; -1 for a key that is none of ours. Rows of earlier versions have it alone."""
    number = key.partition(_OF_WRITER)[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= _DIGITS else -1
