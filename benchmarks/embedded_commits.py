"""Commits of several processes into one file of the embedded system, each in small transactions a few ms apart.

    python -m benchmarks.embedded_commits [--seconds 10] [--wait NAME ...] [--writers N ...] [--slower-ms 3]

A writer has a slot and commits 1 to 20 records to a stream, as many changes to a changelog and two checkpoints, then
pauses 5 to 10 ms. Prints a JSON object a line: how writers wait for each other, how many there are, the commits a
second of all together, and ms of a commit: p50, p99 and the longest, the p99 of the slowest writer, and how many
commits the one with the fewest has made. `--slower-ms` adds to each commit what a slower disk would take, under the
write lock.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import apsw

from grete.clock import SystemClock
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.model.streams import StreamSpec
from grete.sqlite_file import connection, file
from grete.systems.local.system import LocalSystem
from grete.systems.records import records

_PAUSE_S = (0.005, 0.010)


class _NoQueue:
    """Writers meet at SQLite's lock only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def passing(self, timeout_s: float) -> Iterator[None]:
        yield

    def close(self) -> None:
        pass


class _BlockingQueue(_NoQueue):
    """Writers sleep in the kernel's queue of a lock beside the file, and hold it until they have the write lock."""

    _descriptor = -1

    @contextlib.contextmanager
    def passing(self, timeout_s: float) -> Iterator[None]:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path.with_name("queue"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def _sqlites_own(opened: connection.Connection) -> None:
    opened.db.set_busy_timeout(30_000)


def _wait_by(name: str) -> None:
    """Change how this process waits for the write lock of a file."""
    if name == "sqlite":
        before = connection.Connection._set_pragmas

        def set_pragmas(self: connection.Connection, path: Path, library: str) -> None:
            _sqlites_own(self)
            before(self, path, library)

        connection.Connection._set_pragmas = set_pragmas  # type: ignore[method-assign]
    if name in ("sqlite", "eager"):
        file.Turnstile = _NoQueue  # type: ignore[assignment, misc]
    if name == "flock":
        file.Turnstile = _BlockingQueue  # type: ignore[assignment, misc]


WAITS = ("sqlite", "eager", "flock", "product")


def _write(
    wait: str,
    directory: Path,
    number: int,
    options: argparse.Namespace,
    start: Barrier,
    out: Callable[..., None],
) -> None:
    _wait_by(wait)
    if options.slower_ms:
        _slow_down(options.slower_ms / 1000)
    system, chance, took = LocalSystem(directory, SystemClock()), random.Random(number), []  # noqa: S311
    slot = system.transactions(Fence("container/job/0", 1), number, [])
    slot.open(0)
    records([None], [None], [1])  # the first one imports pandas
    start.wait()
    end, position = time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        count = chance.randint(1, 20)
        sent = records([b"k%d" % i for i in range(count)], [b"x" * 60] * count, [1] * count)
        began = time.perf_counter()
        slot.begin()
        slot.send_batch("out", number, sent)
        slot.send_batch("changes", number, sent, after=position)
        position = slot.settle(0)["changes", number]
        slot.send_entries("checkpoints", [Entry(b"%d" % number, b"c" * 300)] * 2, 1)
        slot.commit(0)
        took.append(time.perf_counter() - began)
        time.sleep(chance.uniform(*_PAUSE_S))
    system.close()
    out(took)


def _slow_down(seconds: float) -> None:
    commit = file.SqliteFile._commit

    def delayed(self: file.SqliteFile, opened: connection.Connection) -> None:
        time.sleep(seconds)
        commit(self, opened)

    file.SqliteFile._commit = delayed  # type: ignore[method-assign]


def _at(times: list[float], share: float) -> float:
    return round(sorted(times)[min(len(times) - 1, int(share * len(times)))] * 1000, 2)


def measure(wait: str, writers: int, options: argparse.Namespace) -> dict[str, object]:
    """Let so many processes write for a while."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        with contextlib.closing(LocalSystem(directory, SystemClock())) as system:
            system.create_stream(StreamSpec("out", writers))
            system.create_stream(StreamSpec("changes", writers, compacted=True))
        queue = context.SimpleQueue()
        start = context.Barrier(writers)
        processes = [
            context.Process(target=_write, args=(wait, directory, n, options, start, queue.put))
            for n in range(writers)
        ]
        for process in processes:
            process.start()
        each = [queue.get() for _ in processes]
        for process in processes:
            process.join()
    took = [one for times in each for one in times]
    return {
        "wait": wait,
        "writers": writers,
        "commits_per_s": round(len(took) / options.seconds),
        "p50_ms": _at(took, 0.5),
        "p99_ms": _at(took, 0.99),
        "max_ms": _at(took, 1),
        "slowest_writers_p99_ms": max(_at(times, 0.99) for times in each),
        "fewest_commits": min(map(len, each)),
    }


def main() -> None:
    """Measure each way with 1, 2, 4 and 8 writers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--slower-ms", type=float, default=0)
    parser.add_argument("--wait", nargs="*", default=WAITS, choices=WAITS)
    parser.add_argument("--writers", nargs="*", type=int, default=(1, 2, 4, 8))
    options = parser.parse_args()
    print(
        json.dumps(
            {"sqlite": apsw.sqlite_lib_version(), "cores": os.cpu_count(), "slower_ms": options.slower_ms}
        )
    )
    for writers in options.writers:
        for wait in options.wait:
            print(json.dumps(measure(wait, writers, options)), flush=True)


if __name__ == "__main__":
    main()
