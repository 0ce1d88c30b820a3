"""A logging handler that writes records to a stream (Samza's StreamAppender, S2-120 to S2-122).

It takes a stream and never a job: it builds no coordinator, no job model and reads no stream (SAMZA-723 hung because
the original built a second coordinator from inside a log call). What the writing itself logs is never written.
"""

from __future__ import annotations

import logging
import socket
import threading

import orjson

from grete.api import Serde
from grete.clock import SystemClock
from grete.config.redact import Redactor
from grete.config.settings import Settings
from grete.diagnostics.background_writer import BackgroundWriter
from grete.diagnostics.log_event import log_event
from grete.diagnostics.streams import DiagnosticsConfig, redactor_of
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.serdes import load_serde
from grete.systems.local.system import Message
from grete.systems.log_sink import open_sink


class StreamLogHandler(logging.Handler):
    """Offers every record to a writer; a log call costs its JSON and never waits."""

    def __init__(
        self,
        writer: BackgroundWriter[Message],
        diagnostics: DiagnosticsConfig,
        hide: Redactor,
        serde: Serde | None = None,
    ) -> None:
        super().__init__()
        self._writer = writer
        self._hide = hide
        self._serde = serde
        self._location = diagnostics.location
        self._key = diagnostics.container.encode()
        self._mdc = {
            "containerName": diagnostics.container,
            "jobName": diagnostics.job.name,
            "jobId": diagnostics.job.id,
        }
        self._host = socket.gethostname()
        self._inside = threading.local()
        self.failed = 0

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler. Never raises: a record that cannot be written is counted."""
        if self._writer.is_own_thread or getattr(self._inside, "active", False):
            return
        self._inside.active = True
        try:
            event = log_event(
                record, mdc=self._mdc, host=self._host, location=self._location, hide=self._hide
            )
            value = orjson.dumps(event) if self._serde is None else self._serde.to_bytes(event)
            self._writer.offer(Message(self._key, value, int(record.created * 1000)))
        except Exception:  # noqa: BLE001 - whatever a log call was given, the job goes on
            self.failed += 1
        finally:
            self._inside.active = False

    def hurry(self) -> None:
        """Let what was logged be written now, without waiting for it."""
        self._writer.hurry()

    def flush_to_stream(self, timeout_s: float) -> bool:
        """Wait until what was logged is written, at most `timeout_s`; returns whether it is.

        Not `flush`: logging calls that one at the end of a process, and whenever it likes.
        """
        return self._writer.flush(timeout_s)

    def close(self) -> None:
        """Write what is left, within seconds."""
        self._writer.close()
        super().close()


def log_handler(diagnostics: DiagnosticsConfig, settings: Settings) -> StreamLogHandler | None:
    """The handler that the configuration asks for, None when it asks for none.

    Raises:
        ConfigError: the stream's serde cannot write an event.
    """
    target = diagnostics.logs
    if target is None:
        return None
    key = diagnostics.container.encode()

    def lost(count: int) -> Message:
        text = f"{count} log records were lost, since they came faster than they could be written"
        record = logging.makeLogRecord({"name": __name__, "levelno": 30, "levelname": "WARNING", "msg": text})
        event = log_event(record, mdc={}, host=socket.gethostname(), location=False, hide=Redactor())
        return Message(key, orjson.dumps(event), int(record.created * 1000))

    serde = _serde(target.stream, settings)
    writer = BackgroundWriter(lambda: open_sink(target, SystemClock()), name="grete log stream", on_lost=lost)
    return StreamLogHandler(writer, diagnostics, redactor_of(settings.raw), serde)


def _serde(stream: SystemStream, settings: Settings) -> Serde | None:
    """The stream's own serde, else JSON (S2-122)."""
    named = settings.stream(stream).text("samza.msg.serde")
    if named is None or named == "json":
        return None
    serde = load_serde(named, settings, used_by=f"the msg.serde of {stream}")
    try:
        serde.to_bytes({"message": "", "mdc": {}})
    except Exception as error:
        raise ConfigError(f"{stream}: its serde {named!r} cannot write a log event: {error!r}") from error
    return serde
