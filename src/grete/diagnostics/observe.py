"""Logs and diagnostics of a process go to streams for as long as a `with` lasts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.diagnostics.background_writer import BackgroundWriter
from grete.diagnostics.log_handler import log_handler
from grete.diagnostics.manager import DiagnosticsLogHandler, DiagnosticsManager
from grete.diagnostics.streams import DiagnosticsConfig, diagnostics_config, redactor_of
from grete.model.ids import JobId
from grete.systems.log_sink import open_sink


class Observer:
    """Publishes the process's events beyond its log. Does nothing where diagnostics are not configured."""

    def __init__(self, manager: DiagnosticsManager | None) -> None:
        self._manager = manager

    def event(self, name: str, details: Mapping[str, str]) -> None:
        """A row of the job's history: a container's exit goes to the diagnostics stream."""
        if self._manager is not None and name == "container-exited":
            reason = details.get("reason") or details.get("meaning", "")
            self._manager.processor_stopped(
                details.get("container", ""), exit_status=int(details.get("exit-code", "-1")), reason=reason
            )


@contextmanager
def observed(
    settings: Settings,
    job: JobId,
    container: str,
    home: Path,
    *,
    own_process: bool = True,
    **parameters: Any,
) -> Iterator[Observer]:
    """Attach what the configuration asks for to the root logger; publish the start, and an exception that leaves.

    Without `own_process` the process's owner has attached its handlers already: nothing is logged twice.

    Raises:
        ConfigError: the configuration of logs or diagnostics is wrong.
    """
    diagnostics = diagnostics_config(settings, job, container, home)
    handlers: list[logging.Handler] = []
    logs = log_handler(diagnostics, settings) if own_process else None
    if logs is not None:
        handlers.append(logs)
    manager = _manager(diagnostics, settings)
    if manager is not None:
        if own_process:
            handlers.append(DiagnosticsLogHandler(manager))
        manager.started(**parameters)
    root = logging.getLogger()
    levels = _hear_more(root) if logs is not None else {}
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield Observer(manager)
    except BaseException as error:
        if manager is not None:
            manager.exception(error)
        raise
    finally:
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
        for logger_or_handler, level in levels.items():
            logger_or_handler.setLevel(level)
        if manager is not None:
            manager.close()


def _hear_more(root: logging.Logger) -> dict[logging.Logger | logging.Handler, int]:
    """Let records from INFO up reach the stream, while other handlers keep their levels.

    Returns the levels to restore.
    """
    if root.level <= logging.INFO:
        return {}
    before: dict[logging.Logger | logging.Handler, int] = {root: root.level}
    for handler in root.handlers:
        before[handler] = handler.level
        handler.setLevel(max(handler.level, root.level))
    root.setLevel(logging.INFO)
    return before


def _manager(diagnostics: DiagnosticsConfig, settings: Settings) -> DiagnosticsManager | None:
    target = diagnostics.events
    if target is None:
        return None
    writer = BackgroundWriter(lambda: open_sink(target, SystemClock()), name="grete diagnostics stream")
    return DiagnosticsManager(writer, diagnostics, settings, redactor_of(settings.raw), SystemClock())
