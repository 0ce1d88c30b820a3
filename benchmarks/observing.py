"""What it costs to be seen: processor time of a job at full rate, by itself, traced, and scraped each second.

A StreamTask passes records on from one embedded stream to another until all are there; what comes on top in one of
the runs is the price. The three take turns, so that a machine that slows down slows all of them.

    python -m benchmarks.observing
"""

from __future__ import annotations

import http.server
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx2

from benchmarks.contestants import keep
from grete.testing.server_cluster import free_ports

RECORDS = 6_000_000
PARTITIONS = 8
ROUNDS = 3
EVERY_S = 1.0
KINDS = ("by itself", "traced", "scraped")
_APPLICATION = """
import grete

class Pass(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.message, key=envelope.key)
"""
_CONFIG = {
    "job.name": "pass",
    "job.application.path": ".",
    "job.http.auth": "none",
    "task.class": "passing:Pass",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
}


class _Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def _receive() -> None:
    """Be a receiver of spans, in a process of its own."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def _grete(*words: str) -> str:
    command = [sys.executable, "-m", "grete.cli.main", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _scrape(port: int, ended: threading.Event, taken: list[int]) -> None:
    while not ended.wait(EVERY_S):
        with suppress(httpx2.TransportError):  # it begins, or has ended
            taken.append(len(httpx2.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).content))


def _once(kind: str, port: int) -> dict[str, float]:
    """One run over all records: seconds, and processor seconds of all its processes."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["GRETE_HOME"] = str(home / "home")
        (home / "passing.py").write_text(_APPLICATION)
        traces = {"job.traces.endpoint": f"http://127.0.0.1:{port}"} if kind == "traced" else {}
        [served] = free_ports(1)
        traces["job.http.port"] = str(served)
        config, feed = home / "pass.properties", home / "lines"
        config.write_text("".join(f"{key}={value}\n" for key, value in {**_CONFIG, **traces}.items()))
        feed.write_text(f"{'a visit ' * 12}\n" * RECORDS)
        for stream in ("in", "out"):
            _grete("stream", "create", f"local.{stream}", "--partitions", str(PARTITIONS))
        _grete("stream", "append", "local.in", "--lines", "--from-file", str(feed))
        ended, scrapes = threading.Event(), list[int]()
        scraper = threading.Thread(target=_scrape, args=(served, ended, scrapes))
        command = [
            sys.executable,
            "-m",
            "grete.testing.sparkless",
            "--until-drained",
            "--config",
            str(config),
        ]
        began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with (home / "log").open("wb") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log)
        if kind == "scraped":
            scraper.start()
        assert job.wait() == 0, (home / "log").read_text()
        seconds = time.monotonic() - began_s
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended.set()
        if kind == "scraped":
            scraper.join()
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"seconds": round(seconds, 2), "cpu_s": round(used_s, 2), "scrapes": len(scrapes)}


def run() -> dict[str, object]:
    """The runs, and by how much the median processor time of each kind is above that of the job by itself."""
    receiver = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.observing", "receive"], stdout=subprocess.PIPE, text=True
    )
    assert receiver.stdout is not None
    port = int(receiver.stdout.readline())
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    try:
        for _ in range(ROUNDS):
            for kind in KINDS:
                runs[kind].append(_once(kind, port))
    finally:
        receiver.kill()
    middle = {kind: statistics.median(one["cpu_s"] for one in done) for kind, done in runs.items()}
    return {
        "records": RECORDS,
        "runs": runs,
        "cpu_ratio": {kind: round(cpu_s / middle[KINDS[0]], 4) for kind, cpu_s in middle.items()},
    }


def main() -> None:
    """Measure, print, keep."""
    figures = {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_1_min": os.getloadavg()[0],
        "observing": run(),
    }
    keep(figures, kind="observing", is_discarded=False)


if __name__ == "__main__":
    _receive() if sys.argv[1:] == ["receive"] else main()
