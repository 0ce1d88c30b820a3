"""How a write that is a transaction of brokers may end, besides well. Never leaves the package that tries again."""

from __future__ import annotations

from grete.errors import LogError, LogUnreachable


class NotWritten(Exception):
    """The transaction did not happen and never will; trying again may help, unless `is_final`."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final

    def as_log_error(self, attempted: str) -> LogError:
        """The error for callers; one that may pass unless this is final."""
        kind = LogError if self.is_final else LogUnreachable
        return kind(f"{attempted}: {self}")


class OutcomeUnknown(Exception):
    """The commit was sent and its answer did not come."""
