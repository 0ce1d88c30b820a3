"""A container's life without Spark: what it does, and with which code it ends, when its coordinator is gone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from grete.config.settings import Settings
from grete.container import lifecycle
from grete.container.assignment import Assignment
from grete.container.control import Control, Ended
from grete.container.main_loop import ContainerMainLoop
from grete.errors import GreteError, InDoubt, LogUnreachable, MayStillCommit, StreamUnreachable
from grete.metadata.access import open_coordinator_stream
from grete.metadata.job_state import JobState, write_state
from grete.metadata.locality import LocalityManager
from grete.model.ending import ExitCode

CONFIG = {
    "yarn.container.heartbeat.retry.count": "1",
    "yarn.container.heartbeat.retry-sleep-duration.ms": "100",
}


class Coordinator(HTTPServer):
    """Answers one container until it is ended."""

    def __init__(self) -> None:
        self.command: dict[str, Any] = {"action": "run", "number": 0}
        super().__init__(("127.0.0.1", 0), _Handler)
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def end(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Coordinator

    def do_GET(self) -> None:
        job = {"name": "job", "id": "1"}
        self._answer({"job": job, "container_id": "0", "epoch": 1, "config": CONFIG, "tasks": []})

    def do_POST(self) -> None:
        heartbeat = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._answer(self.server.command)
        if heartbeat["paused"]:
            self.server.command = {"action": "run", "number": 1}

    def _answer(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    server = Coordinator()
    yield server
    if server.thread.is_alive():
        server.end()


def life(
    coordinator: Coordinator, directory: Path, work: Any, on_assigned: Any = lambda assignment: None
) -> ContainerMainLoop:
    (directory / "token").write_text("secret")
    environment = {
        "COORDINATOR_URL": f"http://127.0.0.1:{coordinator.server_port}",
        "GRETE_COORDINATOR_TOKEN_FILE": str(directory / "token"),
        "GRETE_CONTAINER_EPOCH": "1",
        "GRETE_CONTAINER_IN_PROCESS": "1",
        "GRETE_HOME": str(directory),
        "SAMZA_CONTAINER_ID": "0",
        "SAMZA_COORDINATOR_SYSTEM_CONFIG": "{}",
    }
    return ContainerMainLoop(environment, threading.Event(), work, on_assigned=on_assigned)


def until_told(control: Control) -> Ended:
    while not control.is_set():
        control.wait(0.01)
    return Ended.INTERRUPTED


def test_a_container_that_is_asked_to_stop_says_that_it_has_not_read_everything(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator.command = {"action": "stop", "number": 0}

    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        return until_told(control)

    assert life(coordinator, tmp_path, work).run() == ExitCode.STOPPED


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MayStillCommit("no broker answers"), ExitCode.FAILED),
        (StreamUnreachable("no broker answers"), ExitCode.STOPPED),
    ],
)
def test_one_that_is_asked_to_stop_does_not_say_that_it_ended_well_when_something_of_it_may_still_commit(
    coordinator: Coordinator, tmp_path: Path, error: GreteError, code: ExitCode
) -> None:
    """Who asked fences it off then. That a store does not answer is no failure of one that needs it no more."""
    coordinator.command = {"action": "stop", "number": 0}

    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        until_told(control)
        raise error

    assert life(coordinator, tmp_path, work).run() == code


def test_a_container_reports_that_it_is_at_a_barrier_and_leaves_it_with_the_directive(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report is sent at once, and nothing is looked at again and again."""
    monkeypatch.setattr(lifecycle, "_WAIT_AT_BARRIER_S", 3600)
    runs: list[Assignment] = []

    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        runs.append(assignment)
        if len(runs) > 1:
            return Ended.DRAINED
        coordinator.command = {"action": "pause", "number": 7}
        return until_told(control)

    assert life(coordinator, tmp_path, work).run() == ExitCode.OK
    assert len(runs) == 2


def test_what_takes_long_to_start_is_begun_once_and_before_the_container_writes_anything(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    hosts: list[int] = []

    def count_hosts(assignment: Assignment) -> None:
        with open_coordinator_stream(Settings(), assignment.job, tmp_path) as stream:
            hosts.append(len(LocalityManager(stream).read_locality()))

    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        count_hosts(assignment)
        if len(hosts) > 2:
            return Ended.DRAINED
        coordinator.command = {"action": "pause", "number": 7}
        return until_told(control)

    assert life(coordinator, tmp_path, work, count_hosts).run() == ExitCode.OK
    assert hosts == [0, 1, 1]


def test_a_container_without_a_coordinator_ends_so_that_the_next_one_starts_it_again(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        coordinator.end()
        return until_told(control)

    assert life(coordinator, tmp_path, work).run() == ExitCode.STOPPED


def test_a_container_that_has_read_everything_says_so(coordinator: Coordinator, tmp_path: Path) -> None:
    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        return Ended.DRAINED

    assert life(coordinator, tmp_path, work).run() == ExitCode.OK


def test_a_container_whose_store_does_not_answer_starts_again_until_it_does(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process stays, as often as it takes: without intervention, and without an end (G15)."""
    monkeypatch.setattr(lifecycle, "_OUTAGE_PAUSE_S", (0.001, 0.002))
    outages: list[GreteError] = [
        StreamUnreachable("no broker answers"),
        LogUnreachable("no broker answers"),
        InDoubt("a", "no broker answers", may_pass=True),
    ]
    seen: list[Assignment] = []

    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        seen.append(assignment)
        if outages:
            raise outages.pop()
        return Ended.DRAINED

    assert life(coordinator, tmp_path, work).run() == ExitCode.OK
    assert len(seen) == 4


def test_a_container_whose_disk_is_in_doubt_ends(coordinator: Coordinator, tmp_path: Path) -> None:
    """An I/O error of a disk is final (RELIABILITY rule 9)."""

    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        raise InDoubt("commit", "EIO")

    assert life(coordinator, tmp_path, work).run() == 1


def test_a_coordinator_whose_token_cannot_be_read_yet_is_found_as_soon_as_it_can(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    """Its job has just ended, or it has only begun: an observer is not hurt, and looks again."""
    url, token = f"http://127.0.0.1:{coordinator.server_port}", tmp_path / "jobs" / "job-1" / "its-token"
    found: list[bool] = []

    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        with open_coordinator_stream(Settings(), assignment.job, tmp_path) as stream:
            for token_file in ("", str(tmp_path), str(token)):
                write_state(stream, JobState("running", "run", 2, url, token_file))
                found.append(container._find_coordinator() is not None)
        token.parent.mkdir(parents=True, exist_ok=True)
        token.write_text("secret")
        found.append(container._find_coordinator() is not None)
        return Ended.DRAINED

    container = life(coordinator, tmp_path, work)
    assert container.run() == ExitCode.OK
    assert found == [False, False, False, True]


@pytest.mark.parametrize(
    ("url", "token_file", "content"),
    [
        ("http://[::1", "jobs/job-1/token", b"secret"),
        ("http://10.0.0.1:80", "jobs/job-1/token", b"secret"),
        ("http://127.0.0.1@evil.example:80", "jobs/job-1/token", b"secret"),
        ("file:///etc/passwd", "jobs/job-1/token", b"secret"),
        ("http://127.0.0.1:80", "elsewhere", b"secret"),
        ("http://127.0.0.1:80", "jobs/job-1/../../elsewhere", b"secret"),
        ("http://127.0.0.1:80", "jobs/job-1/token", "gehe\u00efm".encode()),
        ("http://127.0.0.1:80", "jobs/job-1/token", b"root:x:0:0:root"),
        ("http://127.0.0.1:80", "jobs/job-1/token", b"x" * 1_000_000),
        ("http://127.0.0.1:80", "jobs/job-1/token", b""),
        ("http://127.0.0.1:80\x00", "jobs/job-1/token", b"secret"),
    ],
)
def test_no_word_in_the_stream_sends_a_file_elsewhere_or_keeps_the_container_from_ending(
    coordinator: Coordinator, tmp_path: Path, url: str, token_file: str, content: bytes
) -> None:
    """Others may write into the coordinator stream: what they name is asked only if it is this job's, and here."""
    found: list[object] = []

    def work(assignment: Assignment, control: Control, on_batch: Any) -> Ended:
        (tmp_path / "jobs" / "job-1").mkdir(parents=True)
        (tmp_path / token_file).write_bytes(content)
        with open_coordinator_stream(Settings(), assignment.job, tmp_path) as stream:
            write_state(stream, JobState("running", "run", 2, url, str(tmp_path / token_file)))
        found.append(container._find_coordinator())
        return Ended.DRAINED

    container = life(coordinator, tmp_path, work)
    assert container.run() == ExitCode.OK
    assert found == [None]


def test_a_container_on_another_machine_than_its_coordinator_is_refused_with_the_way_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {
        "SAMZA_CONTAINER_ID": "0",
        "GRETE_CONTAINER_EPOCH": "1",
        "COORDINATOR_URL": "http://192.0.2.7:8000",
        "GRETE_COORDINATOR_TOKEN_FILE": str(tmp_path / "token"),
        "SAMZA_COORDINATOR_SYSTEM_CONFIG": "{}",
        "GRETE_HOME": str(tmp_path),
    }
    (tmp_path / "token").write_text("token")

    def work(*_: object) -> Ended:
        raise AssertionError("it does not begin")

    end = ContainerMainLoop(environment, threading.Event(), work).run()
    assert end == ExitCode.CONFIG
    assert "the coordinator at http://192.0.2.7:8000 is on another machine" in caplog.text
