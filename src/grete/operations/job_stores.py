"""The stores of a running job for its HTTP server. Nothing is loaded or opened before somebody asks."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from grete.extras import require
from grete.model.ids import JobId
from grete.operations.job_handle import open_job
from grete.wire.coordinator_api import StoreAnswer

if TYPE_CHECKING:
    from grete.operations.store_reader import StoreReader


class JobStores:
    """Implements `server.app.StoreQueries`. Thread-safe: one question after the other."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._reader: StoreReader | None = None

    def read(self, store: str, *, key: str | None, prefix: str, task: str | None, limit: int) -> StoreAnswer:
        """See StoreQueries.

        Raises:
            ConfigError, JobError, WireError: see StoreQueries.
            CoordinatorUnavailable: a range was asked for, and the store is on another machine.
            GreteError: streams do not answer.
        """
        with self._lock:
            if self._reader is None:
                require("arrow")
                from grete.operations.store_reader import (
                    StoreReader,  # Arrow, which the coordinator does not need
                )

                self._reader = StoreReader(self._stack.enter_context(open_job(self._job)), self._stack)
            return self._reader.read(store, key=key, prefix=prefix, task=task, limit=limit)

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            self._stack.close()
            self._reader = None
