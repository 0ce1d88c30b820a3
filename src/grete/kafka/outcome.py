"""How a write that is a transaction of brokers may end, besides well. Never leaves the package that tries again."""

from __future__ import annotations


class NotWritten(Exception):
    """The transaction did not happen and never will; trying again may help, unless `is_final`."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class OutcomeUnknown(Exception):
    """The commit was sent and its answer did not come."""
