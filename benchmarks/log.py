"""The embedded log: durable appends a second with 1 and 8 writers; bootstrap of 1M records of 10k live keys."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path

from grete.clock import SystemClock
from grete.keyed_log.base import Entry
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.messages import SET_CONFIG
from grete.sqlite_file import open_file


def _log(path: Path) -> SqliteKeyedLog:
    return SqliteKeyedLog(open_file(path), "log", SystemClock())


def _append(path: Path, count: int) -> None:
    log = _log(path)
    for i in range(count):
        log.append([Entry(b"key%d" % (i % 100), b"x" * 200)])


def appends_per_second(writers: int, each: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log.db"
        _log(path)
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=_append, args=(path, each)) for _ in range(writers)]
        for process in processes:
            process.start()
        started, before = time.monotonic(), _log(path).end()
        for process in processes:
            process.join()
        return (_log(path).end() - before) / (time.monotonic() - started)


def syncs_per_second(count: int = 1_000) -> float:
    """Speed of the disk for a writer of one page and fdatasync: the bound of every durable append."""
    with tempfile.TemporaryDirectory() as directory:
        descriptor = os.open(Path(directory) / "pages", os.O_RDWR | os.O_CREAT)
        os.pwrite(descriptor, bytes(4096 * 256), 0)
        os.fsync(descriptor)
        started = time.monotonic()
        for i in range(count):
            os.pwrite(descriptor, b"x" * 4096, 4096 * (i % 256))
            os.fdatasync(descriptor)
        seconds = time.monotonic() - started
        os.close(descriptor)
    return count / seconds


def _bootstrap(path: Path, results: multiprocessing.Queue[float]) -> None:
    started = time.monotonic()
    stream = CoordinatorStream(_log(path), SystemClock(), source="bench")
    stream.catch_up()
    results.put(time.monotonic() - started)
    results.put(len(stream.config()))
    results.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def bootstrap(records: int, keys: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log.db"
        log = _log(path)
        stream = CoordinatorStream(log, SystemClock(), source="bench")
        for start in range(0, records, 10_000):
            log.append(
                [
                    stream.entry(SET_CONFIG, f"some.config.key.{i % keys}", {"value": f"value {i}"})
                    for i in range(start, start + 10_000)
                ]
            )
        context = multiprocessing.get_context("spawn")
        results: multiprocessing.Queue[float] = context.Queue()
        process = context.Process(target=_bootstrap, args=(path, results))
        process.start()
        seconds, live, peak_mb = results.get(), results.get(), results.get()
        process.join()
    return {"records_per_s": round(records / seconds), "live_keys": live, "peak_rss_mb": round(peak_mb)}


def run() -> dict[str, object]:
    """All figures of the log."""
    return {
        "fdatasyncs_per_s": round(syncs_per_second()),
        "appends_per_s_1_writer": round(appends_per_second(1, 3_000)),
        "appends_per_s_8_writers": round(appends_per_second(8, 500)),
        "bootstrap_1m_records_10k_keys": bootstrap(1_000_000, 10_000),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
