"""The stores of a running job for its HTTP server. Nothing is loaded or opened before somebody asks."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from grete.errors import CoordinatorUnavailable
from grete.extras import require
from grete.model.ids import JobId
from grete.operations.job_handle import open_job
from grete.wire.coordinator_api import StoreAnswer

if TYPE_CHECKING:
    from grete.operations.store_reader import StoreReader


_WAITING = 8
"""Questions at a time. The server has 40 threads, and heartbeats need some of them."""


class JobStores:
    """Implements `server.app.StoreQueries`. Thread-safe: one question after the other, and few that wait."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_WAITING)
        self._stack = ExitStack()
        self._reader: StoreReader | None = None

    def read(self, store: str, *, key: str | None, prefix: str, task: str | None, limit: int) -> StoreAnswer:
        """See StoreQueries.

        Raises:
            ConfigError, JobError, WireError: see StoreQueries.
            CoordinatorUnavailable: too many ask at once; or the store is on another machine, and a range was asked
                for, or a key that was not written lately.
            GreteError: streams do not answer.
        """
        if not self._turns.acquire(blocking=False):
            raise CoordinatorUnavailable(f"{_WAITING} questions to stores are waiting: ask again")
        try:
            with self._lock:
                return self._begun().read(store, key=key, prefix=prefix, task=task, limit=limit)
        finally:
            self._turns.release()

    def _begun(self) -> StoreReader:
        """With Arrow, which a coordinator does not need otherwise."""
        if self._reader is None:
            require("arrow")
            from grete.operations.store_reader import StoreReader

            self._reader = StoreReader(self._stack.enter_context(open_job(self._job)), self._stack)
        return self._reader

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            self._stack.close()
            self._reader = None
