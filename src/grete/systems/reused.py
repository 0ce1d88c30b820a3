"""An open system that one user leaves to the next: to open its clients takes longer than most of what they do."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grete.clock import Clock
from grete.config.key_tables import job, task
from grete.config.settings import Settings
from grete.systems.base import System
from grete.systems.factory import open_system

_OF_TASKS = frozenset(
    key.name
    for key in (
        job.CONTAINER_COUNT,
        task.WINDOW,
        task.MAX_RECORDS,
        task.MAX_BYTES,
        task.COMMIT,
        task.MAX_CONCURRENCY,
        task.CALLBACK_TIMEOUT,
        task.PROFILE,
    )
)
"""Keys that no system reads, however it is made: a change of these leaves its clients as they are."""


@dataclass(frozen=True, slots=True)
class _OpenSystem:
    """What a system was opened with."""

    config: Mapping[str, str]
    name: str
    home: Path


class ReusedSystem:
    """At most one open system, for users that follow each other. Safe to use from several threads.

    One that is left for longer than `idle_s` is closed; None keeps it until `close`.
    """

    def __init__(self, *, idle_s: float | None = None) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._kept: tuple[_OpenSystem, System] | None = None
        self._timer: threading.Timer | None = None

    @contextmanager
    def lent(self, settings: Settings, name: str, home: Path, clock: Clock) -> Iterator[System]:
        """The system that was left, if it was opened with the same, else one that is opened now.

        After an error of its user it is closed, and the next one opens its own.

        Raises:
            GreteError: see `open_system`.
        """
        asked = _OpenSystem({k: v for k, v in settings.raw.items() if k not in _OF_TASKS}, name, home)
        system = self._taken(asked)
        if system is None:
            system = open_system(settings, name, home, clock)
        else:
            system.forget()
        try:
            yield system
        except BaseException:
            system.close()
            raise
        self._leave(asked, system)

    def _taken(self, asked: _OpenSystem) -> System | None:
        with self._lock:
            kept, self._kept = self._kept, None
            if self._timer is not None:
                self._timer.cancel()
        if kept is not None and kept[0] != asked:
            kept[1].close()
            return None
        return None if kept is None else kept[1]

    def _leave(self, opened: _OpenSystem, system: System) -> None:
        with self._lock:
            before, self._kept = self._kept, (opened, system)
            if self._idle_s is not None:
                self._timer = threading.Timer(self._idle_s, self._close, (system,))
                self._timer.daemon = True
                self._timer.start()
        if before is not None:
            before[1].close()

    def _close(self, idle: System) -> None:
        """Unless it was taken meanwhile."""
        with self._lock:
            if self._kept is None or self._kept[1] is not idle:
                return
            self._kept = None
        idle.close()

    def close(self) -> None:
        """Close what is left."""
        with self._lock:
            kept, self._kept = self._kept, None
            if self._timer is not None:
                self._timer.cancel()
        if kept is not None:
            kept[1].close()
