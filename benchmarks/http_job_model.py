"""The job model over HTTP: latency under 50 concurrent readers, each asking again as soon as it has its answer.

The server is the coordinator's own, token and Host check included. The readers are in a process of their own and
speak plain HTTP/1.1, so that their work weighs little in the figures.

    python -m benchmarks.http_job_model
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise

from benchmarks import RESULTS

READERS = 50
SECONDS = 5.0
TOKEN = "benchmark"  # noqa: S105 - of a server that lives as long as this script


async def _reader(port: int, until_s: float, etag: bytes, latencies: list[float]) -> int:
    """Ask until the time is over; returns the bytes received."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nIf-None-Match: %s\r\n\r\n"
        % (TOKEN.encode(), etag)
    )
    received = 0
    while (started := time.perf_counter()) < until_s:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 304")), head
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        latencies.append(time.perf_counter() - started)
        received += len(head) + len(body)
    writer.close()
    return received


async def _read(port: int, etag: str) -> None:
    latencies: list[float] = []
    started = time.perf_counter()
    until_s = started + SECONDS
    received = sum(
        await asyncio.gather(*(_reader(port, until_s, etag.encode(), latencies) for _ in range(READERS)))
    )
    elapsed_s = time.perf_counter() - started
    latencies.sort()
    figures = {
        "requests": len(latencies),
        "requests_per_s": round(len(latencies) / elapsed_s, 1),
        "p50_ms": round(1000 * latencies[len(latencies) // 2], 1),
        "p99_ms": round(1000 * latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)], 1),
        "max_ms": round(1000 * latencies[-1], 1),
        "mb_per_s": round(received / elapsed_s / 1e6, 1),
    }
    assert all(before <= after for before, after in pairwise(latencies))
    print(json.dumps(figures))


def _measure(tasks: int) -> dict[str, object]:
    """Serve the model of so many tasks and let the readers read it, whole and unchanged (304)."""
    from grete.clock import SystemClock
    from grete.config.settings import Settings
    from grete.coordinator.job_model import Remembered, calculate
    from grete.coordinator.metadata_manager import MetadataMetrics
    from grete.coordinator.view import View
    from grete.keyed_log.memory import MemoryKeyedLog
    from grete.metadata.coordinator_stream import CoordinatorStream
    from grete.model.ids import JobId, SystemStream
    from grete.server.rights import Tokens
    from grete.server.serve import bind, coordinator_server

    settings = Settings.of({"job.name": "bench", "task.inputs": "kafka.in", "job.container.count": "10"})
    clock = SystemClock()
    model = calculate(settings, {SystemStream("kafka", "in"): tasks}, Remembered()).model
    stream = CoordinatorStream(MemoryKeyedLog(clock), clock, source="benchmark")
    view = View(JobId("bench"), stream, MetadataMetrics(), "run", 1)
    view.containers.serve(settings, model)
    server = coordinator_server(view, bind("127.0.0.1", 0), Tokens(TOKEN))
    server.start()
    try:
        port = server.url.rsplit(":", 1)[1]
        import httpx2

        first = httpx2.get(server.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False)
        figures: dict[str, object] = {"tasks": tasks, "bytes": len(first.content)}
        for name, etag in (("whole", "none"), ("unchanged", first.headers["etag"])):
            command = [sys.executable, "-m", "benchmarks.http_job_model", port, etag]
            figures[name] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return figures
    finally:
        server.close()


def run() -> dict[str, object]:
    """The figures for models of 100, 1,000 and 10,000 tasks."""
    measured = {str(tasks): _measure(tasks) for tasks in (100, 1_000, 10_000)}
    return {"readers": READERS, "seconds": SECONDS, "models": measured}


def main() -> None:
    """Measure, print, keep."""
    figures = {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_1_min": os.getloadavg()[0],
        "http_job_model": run(),
    }
    text = json.dumps(figures, indent=2)
    print(text)
    name = str(figures["when"]).replace(":", "")
    (RESULTS / f"{name}-http-job-model.json").write_text(text + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_read(int(sys.argv[1]), sys.argv[2]))
    else:
        main()
