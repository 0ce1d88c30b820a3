"""The pages in Chromium: each of them in two sizes, by keyboard alone, while the job goes on and ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys
from tests.support.browser import Browser, opened_browser
from tests.support.visits_job import JOB, append, running_visits

from grete.cli.main import main
from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.operations import open_job
from grete.pages.serve import pages_server
from grete.pages.sign_in import SignIn
from grete.pages.site import PAGES
from grete.pages.watch import Watch
from grete.server.rights import Tokens
from grete.server.serve import bind
from grete.testing.waiting import eventually

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with a job that runs."""
    home = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GRETE_HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def job(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with running_visits(home, "one", "odd", "three", partitions=2) as running:
        yield running


class ServedPages:
    """`grete ui` of the home in a process of its own."""

    def __init__(self, *more: str) -> None:
        command = [sys.executable, "-m", "grete.cli.main", "ui", "-o", "json", *more]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env={**os.environ}
        )
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.url, self.link = said["url"], said["link"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def pages(job: subprocess.Popen[bytes]) -> Iterator[ServedPages]:
    served = ServedPages()
    yield served
    served.close()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened_browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def browser(window: Browser, pages: ServedPages) -> Browser:
    """Signed in, by the link of `grete ui`."""
    window.resize(1280)
    window.darken("light")
    window.open(pages.link)
    window.complaints()
    return window


def test_every_page_fits_its_window_is_quiet_and_can_be_read_by_everybody(
    browser: Browser, pages: ServedPages
) -> None:
    actions = ("stop", "drain", "set?key=task.commit.ms&value=7000", "rewind?to=oldest&live=1", "send-again")
    paths = ["", *(f"job/visits/{page}" for page in PAGES), *(f"job/visits/do/{one}" for one in actions)]
    found = []
    for width, scheme in ((1280, "light"), (400, "dark")):
        browser.resize(width)
        browser.darken(scheme)
        for path in paths:
            browser.open(pages.url + path)
            found += [f"{width} {path}: {one}" for one in (*browser.complaints(), *browser.barriers())]
            if over := browser.overflow():
                found.append(f"{width} {path}: {over} pixels too wide")
    assert not found


def test_a_page_follows_its_job_by_itself(browser: Browser, pages: ServedPages, home: Path) -> None:
    browser.open(f"{pages.url}job/visits/streams?stream=local.in&at=0")
    assert "four" not in browser.text()
    append(home, "four")
    eventually(lambda: "four" in browser.text(), "the record is shown", context=browser.text)


def test_a_message_that_was_set_aside_is_sent_again(browser: Browser, pages: ServedPages) -> None:
    browser.open(f"{pages.url}job/visits/failures")
    assert "an odd visit" in browser.text()
    browser.follow("Send all again…")
    eventually(lambda: browser.focused() == "reason", "it asks why", context=browser.text)
    browser.press("the task was mended", Keys.ENTER)
    eventually(lambda: "1 messages were sent again" in browser.text(), "it is done", context=browser.text)
    with open_job(JOB) as handle:
        last = [one for one in handle.history() if one.event == "dead-letters-replayed"]
    assert [one.details["reason"] for one in last] == ["the task was mended"]


def test_a_key_is_changed_by_the_keyboard_alone(browser: Browser, pages: ServedPages) -> None:
    browser.open(f"{pages.url}job/visits/config?key=task.commit.ms#set")
    for _ in range(200):
        browser.press(Keys.TAB)
        if browser.focused() == "value":
            break
    browser.press("7000", Keys.ENTER)
    eventually(lambda: browser.focused() == "reason", "it asks why", context=browser.text)
    assert "grete config set task.commit.ms=7000" in browser.text()
    browser.press("by keyboard", Keys.ENTER)
    eventually(lambda: "1 key changed" in browser.text(), "it is done", context=browser.text)
    with open_job(JOB) as handle:
        assert handle.config()["task.commit.ms"] == "7000"


def why(browser: Browser, reason: str, done: str) -> None:
    """Say why, and see that it is done."""
    eventually(lambda: browser.focused() == "reason", "it asks why", context=browser.text)
    browser.press(reason, Keys.ENTER)
    eventually(lambda: done in browser.text(), "it is done", context=browser.text)


def test_a_container_is_restarted_a_job_rewound_and_a_configuration_rolled_back(
    browser: Browser, pages: ServedPages
) -> None:
    browser.open(f"{pages.url}job/visits/work")
    browser.follow("restart")
    why(browser, "new code", "Container 0: restart requested")
    with open_job(JOB) as handle:
        first = handle.config_generations()[0]
        handle.stream.change_config({"task.commit.ms": "4321"}, run_id="r", reason="to be undone")
    eventually(lambda: "to be undone" in str(details_of("reconfigured")), "the job has followed")
    browser.open(f"{pages.url}job/visits/do/rollback?number={first.number}")
    why(browser, "it was better", f"keys are as they were in generation {first.number}")
    eventually(lambda: "it was better" in str(details_of("reconfigured")), "the job has followed")
    browser.open(f"{pages.url}job/visits/do/rewind?to=oldest&live=1")
    why(browser, "count again", "The rewind is written")
    with open_job(JOB) as handle:
        assert handle.config().get("task.commit.ms") == first.config.get("task.commit.ms")
    assert [one["reason"] for one in details_of("rewind")] == ["count again"]
    assert "new code" in str(details_of("container-exited")), "the container has ended for it"


def details_of(event: str) -> list[dict[str, str]]:
    with open_job(JOB) as handle:
        return [one.details for one in handle.history() if one.event == event]


@pytest.mark.nightly  # a minute of pages
def test_a_page_that_is_open_for_long_keeps_nothing_of_what_it_was(
    browser: Browser, pages: ServedPages
) -> None:
    for path in ("job/visits/", "job/visits/work"):
        browser.open(pages.url + path)
        browser.renew(50)
        nodes, heap = browser.held()
        served = resident_kb(pages.process.pid)
        browser.renew(300)
        more_nodes, more_heap = (
            after - before for before, after in zip((nodes, heap), browser.held(), strict=True)
        )
        assert more_nodes < 300, f"{path}: {more_nodes} nodes more after 300 looks"
        assert more_heap < 300_000, f"{path}: {more_heap} bytes more after 300 looks"
        assert resident_kb(pages.process.pid) - served < 8_000


def resident_kb(pid: int) -> int:
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1])


class PipelineWatch(Watch):
    """Sees the job as a pipeline with state, which has told what Spark tells of one."""

    def rows(self) -> dict[JobId, dict[str, Any]]:
        state = {
            "state-rows": 1_200_000,
            "state-bytes": 88_000_000,
            "rows-updated": 12,
            "late-rows-dropped": 3,
        }
        groups = {
            "source.local.orders": {"input-rows": 1_000, "processed-rows-per-second": 812.5},
            "source.local.payments-of-the-last-three-business-days": {"input-rows": 7},
            "operator.0.stateStoreSave": state,
            "operator.1.symmetricHashJoin": state,
            "query": {"batch-id": 41, "watermark-ms": 1_796_000_000_000, "page": "http://127.0.0.1:4040"},
        }
        told = {"spark": {"0": groups}, "expectations": {"amount >= 0": {"checked": 4_812, "failed": 37}}}
        return {job: {**row, **told} for job, row in super().rows().items()}


@pytest.mark.usefixtures("job")
def test_a_pipeline_is_a_graph_that_can_be_read_in_both_sizes(window: Browser, home: Path) -> None:
    watch = PipelineWatch(lambda: [JOB])
    server = pages_server(watch, SignIn(Tokens(None, "write"), SystemClock()), bind("127.0.0.1", 0))
    watch.start()
    server.start()
    try:
        for width in (1280, 400):
            window.resize(width)
            window.open(f"{server.url}/ui/job/visits/")
            eventually(lambda: "Spark's own page" in window.text(), "the graph is there", context=window.text)
            text = window.text()
            assert "symmetricHashJoin" in text
            assert "state-rows: 1,200,000" in text
            assert all(one in text for one in ("amount >= 0", "4,812", "37"))
            assert not window.barriers()
            assert not window.overflow()
            assert not window.texts_that_leave_their_boxes()
    finally:
        watch.close()
        server.close()


def test_a_page_whose_server_is_gone_says_so_and_comes_back(browser: Browser, pages: ServedPages) -> None:
    browser.open(f"{pages.url}job/visits/")
    port = pages.url.split(":")[2].split("/")[0]
    pages.close()
    eventually(browser.says_that_nobody_answers, "the page says that nobody answers")
    again = ServedPages("--port", port)
    try:
        eventually(lambda: "Sign in" in browser.text(), "another server does not know the session")
        browser.open(again.link)
        assert "visits" in browser.text()
    finally:
        again.close()


def test_a_coordinator_serves_its_job_and_status_gives_the_link(
    window: Browser, job: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--job", "visits"]) == 0
    [link] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("pages: ")]
    window.open(link.removeprefix("pages: "))
    eventually(lambda: "visits" in window.text(), "the job is there", context=window.text)
    window.follow("visits")
    eventually(lambda: "running" in window.text(), "it was looked at", context=window.text)
    window.follow("Stop…")
    eventually(lambda: window.focused() == "reason", "it asks why", context=window.text)
    window.press("the test is over", Keys.ENTER)
    eventually(lambda: job.poll() is not None, "the job has ended")
    eventually(window.says_that_nobody_answers, "its pages end with it")
    with open_job(JOB) as handle:
        state = handle.state()
    assert state is not None
    assert (state.state, state.message) == ("stopped", "the test is over")
