"""Writes down how a job does while it runs: its coordinator's pages show the last hour, whoever has led meanwhile.

The figures are those that heartbeats and the lag's monitor bring anyway; a line each ten seconds costs nothing that
was to be measured. They are for people: who cannot write them says so once, and coordinates on.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from grete.clock import Clock, SystemClock
from grete.coordinator.figure_file import FigureFile
from grete.coordinator.figure_meter import FigureMeter
from grete.coordinator.view import View

_log = logging.getLogger("grete.coordinator")
_EVERY_S = 10.0


class FigureRecorder:
    """Writes the figures of a running job, every ten seconds from a thread of its own."""

    def __init__(self, view: View, folder: Path, clock: Clock | None = None) -> None:
        self._meter = FigureMeter(view, SystemClock() if clock is None else clock)
        self._file = FigureFile(folder)
        self._has_failed = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="figures", daemon=True)

    def start(self) -> None:
        """Begin; the first line comes after ten seconds."""
        self._thread.start()

    def close(self) -> None:
        """Write no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_S):
            self.record()

    def record(self) -> None:
        """Write how the job has done since the last call."""
        try:
            self._file.append(self._meter.measure())
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                _log.warning("the job's figures over time are not written: %s", error)
            self._has_failed = True
