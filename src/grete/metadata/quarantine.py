"""Records of a coordinator stream that were not understood: set aside with their offset while they are there."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

SHOWN = 100
"""How many of them a document names; the total stands beside them."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record that was not understood."""

    offset: int
    reason: str

    def __str__(self) -> str:
        return f"offset {self.offset}: {self.reason}"


class Quarantine:
    """One entry for each key, which goes when the key is written again or deleted. Not thread-safe."""

    def __init__(self) -> None:
        self._records: dict[Hashable, Quarantined] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, key: Hashable, record: Quarantined) -> None:
        """Set a record aside."""
        self._records[key] = record

    def discard(self, key: Hashable) -> None:
        """Forget the record that was set aside under the key, which is gone."""
        self._records.pop(key, None)

    def by_key(self) -> dict[Hashable, Quarantined]:
        """Everything set aside."""
        return dict(self._records)

    def records(self) -> list[Quarantined]:
        """Everything set aside, by offset."""
        return sorted(self._records.values(), key=lambda record: record.offset)
