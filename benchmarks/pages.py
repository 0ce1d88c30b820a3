"""What open pages cost a coordinator: its processor time with none open, and with a hundred.

The job runs with a steady input; each page listens to events and fetches itself anew at each of them, as the pages'
script does. Ten browsers that have signed in have ten pages open each, of seven kinds.

    python -m benchmarks.pages
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.contestants import keep
from benchmarks.processes import own_cpu_s

BROWSERS, PAGES_OF_EACH = 10, 10
SECONDS = 30.0
PARTITIONS = 100
RECORDS_A_SECOND = 200
KINDS = ("", "work", "checkpoints", "config", "failures", "streams", "coordination")
_APPLICATION = """
import grete

class Visits(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        pass
"""
_CONFIG = {
    "job.name": "visits",
    "job.application.path": ".",
    "task.class": "visits:Visits",
    "task.inputs": "local.in",
}


async def _page(
    address: tuple[str, int], path: str, cookie: str, until_s: float, taken_s: list[float]
) -> int:
    """Follow the job until the time is over; returns how often the page was fetched."""
    tag, fetched = "none", 0
    head = f"Host: {address[0]}:{address[1]}\r\nCookie: {cookie}\r\n"
    events, writer = await asyncio.open_connection(*address)
    writer.write(f"GET /ui/events HTTP/1.1\r\n{head}\r\n".encode())
    fetches, asking = await asyncio.open_connection(*address)
    while time.monotonic() < until_s:
        line = await asyncio.wait_for(events.readline(), 60)
        if not line.startswith(b"event: look"):
            assert line, "the server has closed"
            continue
        began_s = time.perf_counter()
        asking.write(f"GET {path} HTTP/1.1\r\n{head}If-None-Match: {tag}\r\n\r\n".encode())
        answer = (await fetches.readuntil(b"\r\n\r\n")).decode("latin-1")
        assert answer.startswith(("HTTP/1.1 200", "HTTP/1.1 304")), answer
        fields = dict(one.lower().split(": ", 1) for one in answer.split("\r\n")[1:] if ": " in one)
        await fetches.readexactly(int(fields.get("content-length", "0")) if " 200" in answer[:13] else 0)
        taken_s.append(time.perf_counter() - began_s)
        tag, fetched = fields["etag"], fetched + 1
    writer.close()
    asking.close()
    return fetched


async def _browse(host: str, port: int, cookies: Sequence[str]) -> None:
    until_s = time.monotonic() + SECONDS
    taken_s: list[float] = []
    paths = [f"/ui/job/visits/{KINDS[number % len(KINDS)]}" for number in range(PAGES_OF_EACH)]
    fetched = await asyncio.gather(
        *(_page((host, port), path, cookie, until_s, taken_s) for cookie in cookies for path in paths)
    )
    taken_s.sort()
    figures = {
        "pages": len(fetched),
        "fetches": sum(fetched),
        "p50_ms": round(1000 * taken_s[len(taken_s) // 2], 1),
        "p99_ms": round(1000 * taken_s[len(taken_s) * 99 // 100], 1),
    }
    print(json.dumps(figures))


def _grete(*words: str) -> str:
    command = [sys.executable, "-m", "grete.cli.main", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _cookie() -> tuple[str, str]:
    """A browser that has signed in by the link of `grete status`: address and cookie."""
    import httpx2

    said = next(
        line for line in _grete("status", "--job", "visits").splitlines() if line.startswith("pages: ")
    )
    answer = httpx2.get(said.removeprefix("pages: "), follow_redirects=False, trust_env=False)
    return f"{answer.url.host}:{answer.url.port}", answer.headers["set-cookie"].partition(";")[0]


def _share_of_a_core(pid: int, feed: Path) -> float:
    """The coordinator's own processor time over the next seconds, while records come."""
    began_s, used_s = time.monotonic(), own_cpu_s(pid)
    while (passed_s := time.monotonic() - began_s) < SECONDS:
        _grete("stream", "append", "local.in", "--lines", "--from-file", str(feed))
        time.sleep(min(1.0, max(0.0, SECONDS - passed_s)))
    return (own_cpu_s(pid) - used_s) / (time.monotonic() - began_s)


def run() -> dict[str, object]:
    """The coordinator's share of a core without pages and with them, and how long a page takes."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["GRETE_HOME"] = str(home / "home")
        (home / "visits.py").write_text(_APPLICATION)
        config, feed = home / "visits.properties", home / "lines"
        config.write_text("".join(f"{key}={value}\n" for key, value in _CONFIG.items()))
        feed.write_text("a visit\n" * RECORDS_A_SECOND)
        _grete("stream", "create", "local.in", "--partitions", str(PARTITIONS))
        command = [sys.executable, "-m", "grete.testing.sparkless", "--config", str(config)]
        with (home / "log").open("wb") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            time.sleep(10)
            cookies = [_cookie() for _ in range(BROWSERS)]
            time.sleep(40)  # who has looked is forgotten
            without = _share_of_a_core(job.pid, feed)
            host, _, port = cookies[0][0].partition(":")
            browse = [
                sys.executable,
                "-m",
                "benchmarks.pages",
                host,
                port,
                *(cookie for _, cookie in cookies),
            ]
            browsing = subprocess.Popen(browse, stdout=subprocess.PIPE)
            with_pages = _share_of_a_core(job.pid, feed)
            fetched, _ = browsing.communicate(timeout=60)
            assert browsing.returncode == 0
            return {
                "seconds": SECONDS,
                "partitions": PARTITIONS,
                "share_of_a_core_without": round(without, 4),
                "share_of_a_core_with": round(with_pages, 4),
                **json.loads(fetched),
            }
        finally:
            job.terminate()
            job.wait()


def main() -> None:
    """Measure, print, keep."""
    figures = {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_1_min": os.getloadavg()[0],
        "pages": run(),
    }
    keep(figures, kind="pages", is_discarded=False)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        asyncio.run(_browse(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
    else:
        main()
