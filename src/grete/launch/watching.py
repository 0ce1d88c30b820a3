"""The thread by which a launcher watches what it has started."""

from __future__ import annotations

import threading
from collections.abc import Callable

from grete.errors import JobError


class WatchingThread:
    """Runs until it has ended by itself. A coordinator must not lead on without it."""

    def __init__(self, run: Callable[[], None], watched: str) -> None:
        """`watched` is what it looks at, for people."""
        self._run = run
        self._watched = watched
        self._broke: Exception | None = None
        self._thread = threading.Thread(target=self._guarded, name=watched, daemon=True)

    @property
    def has_broken(self) -> bool:
        """Whether it has ended by an error."""
        return self._broke is not None

    def begin(self) -> None:
        """Start it, unless it was.

        Raises:
            JobError: it has ended by an error of its own.
        """
        if self._thread.ident is None:
            self._thread.start()
        elif self._broke is not None:
            raise JobError(
                f"the coordinator cannot look at its {self._watched} any more: {self._broke}"
            ) from self._broke

    def join(self) -> None:
        """Wait for its end, if it runs."""
        if self._thread.is_alive():
            self._thread.join()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - a thread begins here; who leads is told by `begin`
            self._broke = error
