"""Whether the inputs of a running pipeline are still those that it began with.

Spark goes by names: where a topic is deleted and made again within seconds it reads on at the old offsets, and leaves
out what the new one begins with. So the streams' ids are compared before each commit, and while nothing comes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from grete.errors import StreamError, StreamRecreated

_log = logging.getLogger("grete.container")
_EVERY_S = 2.0


class SameInputs:
    """Compares when asked, and every two seconds in a thread of its own until it is closed."""

    def __init__(self, compare: Callable[[], None], *, every_s: float = _EVERY_S) -> None:
        """`compare` raises StreamRecreated, or another StreamError while there is no answer."""
        self._compare = compare
        self._every_s = every_s
        self._closed = threading.Event()
        self._other: StreamRecreated | None = None
        self._thread = threading.Thread(target=self._watch, name="grete-same-inputs", daemon=True)
        self._thread.start()

    def check_now(self) -> None:
        """Before a commit.

        Raises:
            StreamRecreated: naming the input.
            StreamError: no answer; nothing is known then.
        """
        self._compare()

    def check_seen(self) -> None:
        """What the thread has seen.

        Raises:
            StreamRecreated: naming the input.
        """
        if self._other is not None:
            raise self._other

    def _watch(self) -> None:
        while self._other is None and not self._closed.wait(self._every_s):
            try:
                self._compare()
            except StreamRecreated as error:
                self._other = error
            except StreamError as error:  # brokers are away: who reads waits for them
                _log.debug("whether inputs are the same is not known: %s", error)

    def close(self) -> None:
        """End the thread, once it has its answer."""
        self._closed.set()
