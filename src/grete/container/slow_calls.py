"""What the application does for as long as it wants: said in the log, so that a job that hangs there is no riddle."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY_S = 60.0
_log = logging.getLogger("grete.container")


@contextmanager
def logged_while_it_runs(what: str, every_s: float = _EVERY_S) -> Iterator[None]:
    """Say each minute within the block that it has not ended."""
    ended, began_s = threading.Event(), time.monotonic()

    def say() -> None:
        while not ended.wait(every_s):
            _log.warning(
                "%s has not ended after %.0f s. There is no limit for it; a stop gives it task.shutdown.ms",
                *(what, time.monotonic() - began_s),
            )

    thread = threading.Thread(target=say, name="lasting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
