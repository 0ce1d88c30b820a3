"""Pictures of every page, of a job to which something has happened: `make screenshots` writes docs/screenshots/."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.browser import Browser, opened_browser

from grete.cli.main import main as grete
from grete.clock import SystemClock
from grete.environment import grete_home
from grete.launch.processes import parse_name
from grete.model.ids import JobId
from grete.operations import open_job
from grete.pages.serve import serve_pages
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import eventually

PICTURES = Path(__file__).parents[2] / "docs" / "screenshots"
JOB = JobId("orders")
_APPLICATION = """
import json
import grete

class Totals(grete.StreamTask):
    def init(self, context):
        self.totals = context.store("totals")

    def process(self, envelope, collector, coordinator):
        order = envelope.message
        total = (self.totals.get(order["customer"]) or 0) + order["cents"]
        self.totals.put(order["customer"], total)
        collector.send("local.totals", {"customer": order["customer"], "cents": total}, key=order["customer"])
"""
_CONFIG = """
job.name=orders
job.container.count=2
job.application.path=.
task.class=totals:Totals
task.inputs=local.orders
task.outputs=local.totals
task.commit.ms=1000
task.poison.policy=dead-letter
task.poison.dead-letter.stream=local.odd-orders
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.totals.factory=grete.store.sqlite
stores.totals.key.serde=string
stores.totals.msg.serde=json
stores.totals.changelog=local.totals-changelog
shop.password=not-to-be-shown
"""
_SIZES = ((1280, "light"), (400, "dark"))
_PAGES = {
    "jobs": "",
    "job": "job/orders/?hours=1",
    "work": "job/orders/work",
    "checkpoints": "job/orders/checkpoints",
    "configuration": "job/orders/config",
    "failures": "job/orders/failures",
    "streams": "job/orders/streams?stream=local.totals",
    "coordination": "job/orders/coordination",
    "rewind": "job/orders/do/rewind?to=oldest&state=discard&live=1",
}


def _command(*words: str) -> None:
    if grete(list(words)):
        raise SystemExit(f"grete {' '.join(words)} failed")


def _order(number: int) -> Message:
    customer = f"c-{number % 97}"
    value = f'{{"customer": "{customer}", "cents": {100 + number % 900}}}'
    return Message(customer.encode(), value.encode(), SystemClock().wall_ms(), number % 97 % 4)


@contextmanager
def _fed(home: Path) -> Iterator[None]:
    """Orders come all the time, one of which has no price."""
    over = threading.Event()

    def feed() -> None:
        number = 0
        with closing(LocalSystem(home / "local", SystemClock())) as system:
            while not over.wait(0.25):
                orders = [_order(i) for i in range(number, number + 200)]
                if number == 1_600:
                    orders.append(Message(b"c-7", b'{"customer": "c-7"}', SystemClock().wall_ms(), 3))
                system.append("orders", orders)
                number += 200

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _live(home: Path) -> None:
    """What happens to the job before pictures are taken."""
    time.sleep(8)
    _command("config", "set", "task.commit.ms=2000", "--job", "orders", "--reason", "fewer commits")
    time.sleep(4)
    with open_job(JOB) as handle:
        name = parse_name(next(iter(handle.launches().values())).handle)
    assert name is not None
    os.kill(name.pid, signal.SIGKILL)
    time.sleep(8)
    what = ("--to", "offset:100", "--ssp", "local.orders.1", "--task", "Partition 1", "--state", "discard")
    _command(
        "checkpoint", "rewind", *what, "--live", "--execute", "--job", "orders", "--reason", "a wrong price"
    )
    time.sleep(12)


def _take(browser: Browser, url: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    for width, scheme in _SIZES:
        browser.darken(scheme)
        for name, path in _PAGES.items():
            browser.resize(width)
            browser.open(url + path)
            height = int(browser.driver.execute_script("return document.documentElement.scrollHeight"))
            browser.resize(width, min(max(height, 500), 1_200))
            browser.driver.save_screenshot(str(PICTURES / f"{name}-{width}.png"))


def main() -> None:
    """Run the job, let something happen to it, take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        os.environ["GRETE_HOME"] = str(home)
        home.mkdir()
        (home / "totals.py").write_text(_APPLICATION)
        (home / "orders.properties").write_text(_CONFIG)
        _command("stream", "create", "local.orders", "--partitions", "4")
        _command("stream", "create", "local.odd-orders", "--partitions", "1")
        command = [
            sys.executable,
            "-m",
            "grete.testing.sparkless",
            "--config",
            str(home / "orders.properties"),
        ]
        with (home / "log").open("wb") as log, _fed(home):
            job = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                eventually(_runs, "the job runs", context=(home / "log").read_text)
                with (
                    serve_pages(grete_home(), 0, may_write=True) as pages,
                    opened_browser(home / "chromium") as browser,
                ):
                    browser.open(pages.link())
                    browser.open(f"{pages.url}job/orders/")
                    _live(home)
                    _take(browser, pages.url)
            finally:
                _command("stop", "--job", "orders")
                job.wait()


def _runs() -> bool:
    with open_job(JOB, must_exist=False) as handle:
        return bool(handle.launches())


if __name__ == "__main__":
    main()
