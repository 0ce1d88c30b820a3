"""The assignment that a container is to run next, fetched while its shares still end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from grete.errors import GreteError


class PrefetchedAssignment:
    """At most one fetched document, by the number of its assignment. Safe for several threads.

    On Kafka it takes the coordinator 40 ms to answer, since it reads its stream to the end first.
    """

    def __init__(self, fetch: Callable[[], dict[str, Any]]) -> None:
        """`fetch` may raise a GreteError, which is nobody's then: who wants the document fetches it again."""
        self._fetch = fetch
        self._lock = threading.Lock()
        self._begun: tuple[int, Future[dict[str, Any] | None]] | None = None

    def begin(self, serial: int) -> None:
        """Fetch it, unless that has begun."""
        with self._lock:
            if self._begun is not None and self._begun[0] == serial:
                return
            answer: Future[dict[str, Any] | None] = Future()
            self._begun = serial, answer
        threading.Thread(target=self._run, args=(answer,), name="grete-assignment", daemon=True).start()

    def _run(self, answer: Future[dict[str, Any] | None]) -> None:
        try:
            answer.set_result(self._fetch())
        except GreteError:
            answer.set_result(None)
        except BaseException:
            answer.set_result(None)
            raise

    def take(self, serial: int | None) -> dict[str, Any] | None:
        """The document of the assignment of this number; None if it was not fetched, or another came."""
        with self._lock:
            begun, self._begun = self._begun, None
        if begun is None or begun[0] != serial:
            return None
        document = begun[1].result()
        return document if document is not None and document.get("serial") == serial else None
