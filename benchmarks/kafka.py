"""`make bench-kafka`: the log on Kafka, against the real Samza on the same broker, in one run.

Bootstrap of 1M distinct set-config records: Samza's `CoordinatorStreamSystemConsumer` from register to `getConfig`,
and grete's coordinator stream from opening to `config()`; processes of their own, taking turns. Memory is the highest
resident set; of Samza also what is alive on its heap after a collection. And the time of one append under a fence,
and what commits of StreamTasks cost (`kafka_commits`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import RESULTS, kafka_commits
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.model.ids import JobId
from grete.model.messages import SET_CONFIG
from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.real_samza import run_samza, samza_config

_CHUNK = 10_000
_HEAP = ("-Xmx2g",)
Figures = dict[str, float]


def _log(config: dict[str, str]) -> KafkaKeyedLog:
    job = JobId(config["job.name"], "1")
    return open_coordinator_log(Settings.of(config), stream_name(job), Path(), SystemClock())


def _fill(config: dict[str, str], records: int) -> None:
    log = _log(config)
    stream = CoordinatorStream(log, SystemClock(), source="bench")
    for start in range(0, records, _CHUNK):
        log.append(
            [
                stream.entry(SET_CONFIG, f"some.config.key.{i}", {"value": f"value {i}"})
                for i in range(start, start + _CHUNK)
            ]
        )
    log.close()


def _bootstrap_grete(config: dict[str, str]) -> Figures:
    started = time.monotonic()
    stream = CoordinatorStream(_log(config), SystemClock(), source="bench")
    keys = len(stream.config())
    seconds = time.monotonic() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "records_per_s": round(keys / seconds),
        "seconds": round(seconds, 2),
        "peak_rss_mb": round(peak_mb),
    }


def _bootstrap_samza(config: dict[str, str]) -> Figures:
    with tempfile.TemporaryDirectory() as directory:
        ((_, keys, seconds, heap_mb),) = run_samza("time-bootstrap", config, Path(directory), jvm=_HEAP)
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {
        "records_per_s": round(int(keys) / float(seconds)),
        "seconds": round(float(seconds), 2),
        "peak_rss_mb": round(peak_mb),
        "live_heap_mb": int(heap_mb),
    }


def _in_process(work: Callable[[dict[str, str]], Figures], config: dict[str, str]) -> Figures:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (config,))


def bootstrap(cluster: KafkaCluster, records: int, rounds: int) -> dict[str, object]:
    config = samza_config(cluster.bootstrap, "bench")
    _fill(config, records)
    found: dict[str, list[Figures]] = {"grete": [], "samza": []}
    for _ in range(rounds):
        for name, work in (("grete", _bootstrap_grete), ("samza", _bootstrap_samza)):
            found[name].append(_in_process(work, config))
            print(name, found[name][-1], file=sys.stderr, flush=True)
    middle = {
        name: statistics.median(each["records_per_s"] for each in figures) for name, figures in found.items()
    }
    peak = {
        name: statistics.median(each["peak_rss_mb"] for each in figures) for name, figures in found.items()
    }
    return {
        "records": records,
        **found,
        "speed_ratio": round(middle["grete"] / middle["samza"], 2),
        "memory_ratio": round(peak["grete"] / peak["samza"], 2),
    }


def appends(cluster: KafkaCluster, count: int) -> Figures:
    log = _log(samza_config(cluster.bootstrap, "appends"))
    fence, times_ms = Fence("job", 1), []
    for number in range(count + 50):
        started = time.monotonic()
        log.append([Entry(b"key%d" % (number % 100), b"x" * 200)], fence=fence)
        times_ms.append((time.monotonic() - started) * 1000)
    log.close()
    cuts = statistics.quantiles(times_ms[50:], n=100)
    return {"appends": count, "p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cluster = KafkaCluster(Path(directory))
        cluster.start()
        try:
            figures = {
                "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
                "append": appends(cluster, 1_000),
                "stream_tasks": kafka_commits.tasks(cluster.bootstrap),
                "commits": kafka_commits.commits(cluster.bootstrap),
                "bootstrap": bootstrap(cluster, given.records, given.rounds),
            }
        finally:
            cluster.stop()
    text = json.dumps(figures, indent=2)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"kafka-{str(figures['when']).replace(':', '')}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
