"""The error of a failed job, and so its exit code: those of the container that failed it."""

from __future__ import annotations

from collections.abc import Sequence

from grete.errors import ConfigError, GreteError, JobError, ProcessingError
from grete.metadata.history import HistoryRow

_ERRORS: dict[str, type[GreteError]] = {
    str(error.exit_code): error for error in (ConfigError, ProcessingError)
}


def failure(message: str, history: Sequence[HistoryRow]) -> GreteError:
    """The error to end with. Nothing is recorded of a container after the one that failed the job.

    A code that says something of that container alone (it was killed, it was fenced) is 1, a failed job.
    """
    codes = [row.details.get("exit_code", "") for row in history if row.event == "container-exited"]
    return _ERRORS.get(codes[-1] if codes else "", JobError)(message)
