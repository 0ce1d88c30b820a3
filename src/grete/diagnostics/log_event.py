"""A log record as JSON, in the fields of Samza's LoggingEventJsonSerde (logstash's event format, version 1)."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from grete.config.redact import Redactor

_LEVELS = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
"""Where Python's word is not log4j's."""
_LONGEST = 200_000
"""Characters of one text: a record above a megabyte would not fit into other systems' streams."""


def log_event(
    record: logging.LogRecord, *, mdc: Mapping[str, str], host: str, location: bool, hide: Redactor
) -> dict[str, Any]:
    """The record's event, with every known secret masked, and what looks like one. Never raises on odd arguments."""
    event: dict[str, Any] = {
        "@version": 1,
        "@timestamp": _timestamp(record.created),
        "source_host": host,
        "message": _text(_message(record), hide),
        "logger_name": record.name,
        "level": _LEVELS.get(record.levelno, record.levelname),
        "thread_name": record.threadName or "",
        "mdc": dict(mdc),
        "ndc": [],
    }
    if record.exc_info and record.exc_info[1] is not None:
        event["exception"] = exception_fields(record.exc_info[1], lambda text: _text(text, hide))
    if location:
        event |= {
            "file": record.filename,
            "line_number": record.lineno,
            "class": record.module,
            "method": record.funcName or "",
        }
    return event


def exception_fields(error: BaseException, clean: Callable[[str], str]) -> dict[str, str]:
    """An exception's class, message and stack with its causes."""
    return {
        "exception_class": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception_message": clean(str(error)),
        "stacktrace": clean("".join(traceback.format_exception(error))),
    }


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError, IndexError):
        return (
            f"{record.msg!r} {record.args!r}"  # arguments that do not fit the format: the record still counts
        )


def _text(text: str, hide: Redactor) -> str:
    # lone surrogates have no UTF-8; a log record must not be lost to one
    clean = hide.everything(text).encode("utf-8", "replace").decode()
    return clean if len(clean) <= _LONGEST else clean[:_LONGEST] + f"... ({len(clean)} characters)"


def _timestamp(created_s: float) -> str:
    return datetime.fromtimestamp(created_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
