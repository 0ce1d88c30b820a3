"""Text from elsewhere for terminals and log files: a key, a name or an exception's message cannot forge a line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def printable(text: str) -> str:
    """The text with control characters, which could say anything to a terminal, and what is no text escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def shortened(text: str, longest: int) -> str:
    """The text, or as many whole words of it as fit, and how long it was: a path or a command is never cut in two."""
    if len(text) <= longest:
        return text
    return f"{text[: longest + 1].rpartition(' ')[0] or text[:longest]} ... ({len(text)} characters)"


class LineFormatter(logging.Formatter):
    """A record begins a line; further lines of it, as a traceback has, are indented. All of it is printable."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        return "\n    ".join(printable(line) for line in super().format(record).split("\n"))


def log_to_stderr(level: int | str) -> None:
    """Log from here on as every process of a job does; nothing where logging is set up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(_FORMAT))
    logging.basicConfig(level=level.upper() if isinstance(level, str) else level, handlers=[handler])


def utc_text(timestamp_ms: int) -> str:
    """A time for people: UTC, to the second."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"  # from a clock that people do not have
