"""Text from elsewhere for terminals and log files: a key, a name or an exception's message cannot forge a line."""

from __future__ import annotations

import json
import logging
import os
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


class JsonFormatter(logging.Formatter):
    """A record is one line, a JSON object: when, how bad, who says what, and whom the process works for."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            "thread": record.threadName,
            **_works_for,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)  # ASCII alone: what is no text, and what speaks to a terminal, is escaped


_works_for: dict[str, str] = {}
"""Fields of each line that is JSON."""


def log_as(**fields: str) -> None:
    """Say in each line, from here on, whom this process works for: `job`, `container`, `tasks`, `batch`, `trace`.

    An empty one is said no more.
    """
    for name, text in fields.items():
        if text:
            _works_for[name] = text
        else:
            _works_for.pop(name, None)


def log_to_stderr(level: int | str) -> None:
    """Log from here on as every process of a job does, in the form of `GRETE_LOG_FORMAT`; nothing where logging is
    set up.
    """
    handler = logging.StreamHandler(sys.stderr)
    form = os.environ.get("GRETE_LOG_FORMAT", "text").strip().lower()
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter(_FORMAT))
    logging.basicConfig(level=level.upper() if isinstance(level, str) else level, handlers=[handler])
    if form not in ("text", "json"):
        logging.getLogger("grete").warning("GRETE_LOG_FORMAT=%s is neither text nor json: it is text", form)


def utc_text(timestamp_ms: int) -> str:
    """A time for people: UTC, to the second."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"  # from a clock that people do not have
