"""Writes what happens to a process to the diagnostics stream (Samza's DiagnosticsManager)."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import orjson

from grete import __version__
from grete.clock import Clock
from grete.config.redact import Redactor, redact
from grete.config.settings import Settings
from grete.diagnostics.background_writer import BackgroundWriter
from grete.diagnostics.diagnostics_message import (
    ExceptionEvent,
    Header,
    ProcessorStopEvent,
    diagnostics_message,
)
from grete.diagnostics.log_event import exception_fields
from grete.diagnostics.streams import DiagnosticsConfig
from grete.systems.local.system import Message

_MANY_EXCEPTIONS = 1_000
"""Exceptions published in one incarnation (Samza keeps as many): a loop that fails repeats the same one."""


class DiagnosticsManager:
    """Reports the start once, then exceptions and stops of processors. Never waits, never raises."""

    def __init__(
        self,
        writer: BackgroundWriter[Message],
        diagnostics: DiagnosticsConfig,
        settings: Settings,
        hide: Redactor,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._settings = settings
        self._hide = hide
        self._clock = clock
        self._mdc = {
            "containerName": diagnostics.container,
            "jobName": diagnostics.job.name,
            "jobId": diagnostics.job.id,
        }
        self._header = Header(
            diagnostics.job.name,
            diagnostics.job.id,
            diagnostics.container,
            socket.gethostname(),
            __version__,
            reset_time_ms=clock.wall_ms(),
        )
        self._exceptions = 0

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the thread that writes."""
        return self._writer.is_own_thread

    def started(self, **parameters: Any) -> None:
        """Report the start of the process, with configuration (secrets masked) and parameters."""
        start = {
            "containerNumCores": os.cpu_count(),
            "numPersistentStores": len(self._settings.store_names),
            "pid": os.getpid(),
            "config": redact(self._settings.raw),
            **parameters,
        }
        self._send(start=start)

    def exception(self, error: BaseException, *, time_ms: int | None = None) -> None:
        """Report an exception with its stack and causes."""
        self._exceptions += 1
        if self._exceptions > _MANY_EXCEPTIONS:
            return
        fields = exception_fields(error, self._hide.everything)
        event = ExceptionEvent(
            self._clock.wall_ms() if time_ms is None else time_ms,
            fields["exception_class"],
            fields["exception_message"],
            fields["stacktrace"],
            self._mdc,
        )
        self._send(exceptions=[event])

    def processor_stopped(self, processor_id: str, *, exit_status: int, reason: str, host: str = "") -> None:
        """Report that a container ended, with code and reason."""
        stop = ProcessorStopEvent(
            processor_id, "", host or self._header.host, exit_status, self._hide.everything(reason)
        )
        self._send(stops=[stop])

    def _send(self, **content: Any) -> None:
        now_ms = self._clock.wall_ms()
        document = diagnostics_message(self._header, now_ms, **content)
        self._writer.offer(Message(None, orjson.dumps(document, default=str), now_ms))

    def close(self) -> None:
        """Write what is left, within seconds."""
        self._writer.close()


class DiagnosticsLogHandler(logging.Handler):
    """Reports exceptions that are logged (Samza's SimpleDiagnosticsAppender)."""

    def __init__(self, manager: DiagnosticsManager) -> None:
        super().__init__(logging.WARNING)
        self._manager = manager
        self.failed = 0

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler. Never raises, and never publishes what its own writing logs."""
        if record.exc_info and record.exc_info[1] is not None and not self._manager.is_own_thread:
            try:
                self._manager.exception(record.exc_info[1], time_ms=int(record.created * 1000))
            except Exception:  # noqa: BLE001 - an exception whose text cannot be made; the log call goes on
                self.failed += 1
