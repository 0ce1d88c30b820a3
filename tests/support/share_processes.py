"""Shares in processes of their own: what Spark is for them, and a test can stop, kill and cut off each."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Self

from grete.container.epochs import Epoch
from grete.container.share_server import ShareServer
from grete.tasks.share_task import ShareTask
from grete.tasks.shares import Committed
from grete.testing.waiting import eventually, patient


class ShareProcesses:
    """The shares of one epoch. A context manager; all of its processes are killed at the end."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self.server = ShareServer(epoch.start_of, "127.0.0.1", "127.0.0.1")
        self.address = self.server.address
        """Where shares find the container."""
        self._processes: list[SpawnProcess] = []
        self._is_closed = threading.Event()
        self._listening = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._listening.start()
        return self

    def _listen(self) -> None:
        while not self._is_closed.is_set():
            try:
                event = self.server.events.get(timeout=0.05)
            except queue.Empty:
                continue
            if isinstance(event, Committed):
                self._epoch.committed(event)

    def begin(self, slot: int, *, failpoint: str = "") -> SpawnProcess:
        """Begin a share, as often as a test likes."""
        work = ShareTask(self._epoch.spec, self.address, self.server.key)
        process = multiprocessing.get_context("spawn").Process(target=work, args=(slot,))
        with _environment({"GRETE_FAILPOINT": failpoint} if failpoint else {}):
            process.start()
        self._processes.append(process)
        return process

    def begin_all(self) -> list[SpawnProcess]:
        """Begin every share."""
        return [self.begin(slot) for slot in self._epoch.slots]

    def end(self) -> None:
        """Ask all to end, and wait until they have."""
        self.server.end_all()
        for process in self._processes:
            process.join(patient(60))
            assert process.exitcode is not None

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._is_closed.set()
        self._listening.join()
        with self.server:
            pass


def stop(process: SpawnProcess) -> None:
    """SIGSTOP."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    await_stopped(process)


def await_stopped(process: SpawnProcess) -> None:
    """Until it has stopped, at a failpoint for example."""
    stat = Path(f"/proc/{process.pid}/stat")
    eventually(lambda: stat.read_text().rpartition(") ")[2][0] == "T", "the process stops")


def go_on(process: SpawnProcess) -> None:
    """SIGCONT."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
