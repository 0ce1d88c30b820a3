"""Coordinator streams of an embedded system: logs in one file beside its streams."""

from __future__ import annotations

from pathlib import Path

from grete.config.settings import Settings
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.errors import LogNotFound
from grete.keyed_log.coordinator_log import LogContext
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.sqlite_file import open_file

FILE_NAME = "coordinator.db"


def coordinator_file(settings: Settings, home: Path) -> Path:
    """The file of coordinator streams and leaderships: the coordinator system's when that one is embedded."""
    system = settings.system(settings.coordinator.system)
    return (system if system.is_embedded else settings.system(EMBEDDED_SYSTEM)).directory(home) / FILE_NAME


def open_coordinator_log(context: LogContext) -> SqliteKeyedLog:
    """See coordinator_log.open_coordinator_log.

    Raises:
        LogNotFound: with `must_exist`, when there is no file. An empty log in a file that is there is fine.
    """
    path = context.settings.system(context.system).directory(context.home) / FILE_NAME
    if context.must_exist and not path.exists():
        raise LogNotFound(f"there are no coordinator streams in {path.parent}")
    return SqliteKeyedLog(open_file(path), context.name, context.clock, owns_file=True)
