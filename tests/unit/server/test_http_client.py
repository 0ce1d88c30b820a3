"""The client by which containers ask their coordinator."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from urllib3.exceptions import HTTPError

from grete.errors import CoordinatorUnavailable, WireError
from grete.http_answers import connections, whole_answer
from grete.http_client import Backoff, JobCoordinatorClient
from grete.server.serve import bind
from grete.wire.container_protocol import Heartbeat


class Answers(BaseHTTPRequestHandler):
    """Answers with what the test put there, in turn."""

    script: ClassVar[list[tuple[int, str]]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        status, body = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_client_tries_again_with_growing_waits(url: str) -> None:
    waits: list[float] = []
    Answers.script = [(500, "no"), (503, "no"), (200, json.dumps({"epoch": 7}))]
    client = JobCoordinatorClient(url, None, sleep=waits.append)
    assert client.get("/api/v1/containers/0") == {"epoch": 7}
    assert waits == [0.1, 0.2]


def test_an_id_of_any_letters_has_a_path(url: str) -> None:
    """Of a container, which is its `processor.id` in embedded mode."""
    Answers.script = [(200, "{}")]
    Answers.asked.clear()
    JobCoordinatorClient(url, None).get("/api/v1/containers/Zürich 1%")
    assert Answers.asked == ["/api/v1/containers/Z%C3%BCrich%201%25"]


def test_the_client_gives_up_in_samzas_words(url: str) -> None:
    Answers.script = [(500, "broken")]
    client = JobCoordinatorClient(url, None, sleep=lambda _: None)
    with pytest.raises(
        CoordinatorUnavailable, match="Unable to read JobModel from Jobcoordinator HTTP server"
    ):
        client.get("/")


def test_a_coordinator_that_is_not_there_is_an_error_at_once() -> None:
    taken = bind("127.0.0.1", 0)
    port = taken.getsockname()[1]
    taken.close()
    with pytest.raises(CoordinatorUnavailable):
        JobCoordinatorClient(f"http://127.0.0.1:{port}", None).get("/")


def test_waits_grow_to_their_maximum_and_never_shrink() -> None:
    delays = Backoff().delays_ms()
    assert [next(delays) for _ in range(9)] == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    with pytest.raises(ValueError, match="greater than 1"):
        Backoff(multiplier=1)


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"hello"),
        (200, b"[]"),
        (200, b"[" * 9999),
        (200, b'{"action": "dance", "number": 1}'),
        (200, b'{"action": "run", "number": "3"}'),
        (200, b'{"action": ["run"], "number": 3}'),
        (200, b'{"action": "run", "number": null}'),
        (409, b"{}"),
        (409, b"no"),
    ],
)
def test_who_answers_like_no_coordinator_is_none(tmp_path: Path, answer: tuple[int, bytes]) -> None:
    """Another process on the port of a coordinator that is gone."""

    class Stranger(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(answer[0])
            self.send_header("content-length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.handle_request).start()
        client = JobCoordinatorClient(f"http://127.0.0.1:{stranger.server_port}", None)
        with pytest.raises(CoordinatorUnavailable):
            client.heartbeat("0", Heartbeat(1))
        client.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://[",
        "\x00",
        "nowhere",
        "ftp://127.0.0.1",
        "http://127.0.0.1:many",
        "http://127.0.0.1:99999",
        "http://127.0.0.1/ /",
        "http://\u5ddd",
        f"http://{'x' * 70}.here",
    ],
)
def test_an_address_that_is_none_is_refused_as_one(url: str) -> None:
    with pytest.raises((WireError, CoordinatorUnavailable)):
        JobCoordinatorClient(url, None).heartbeat("0", Heartbeat(1))


class Scripted(BaseHTTPRequestHandler):
    """Answers by path."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        kind, _, status = self.path.strip("/").partition("/")
        if kind == "redirect":
            self.send_response(int(status))
            self.send_header("location", "/here")
            self.send_header("content-length", "0")
            self.end_headers()
        elif kind == "short":
            self.send_response(200)
            self.send_header("content-length", "10")
            self.end_headers()
            self.wfile.write(b"cut")
            self.close_connection = True
        elif kind == "slow":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:  # until the client has had enough
                    self.wfile.write(b"x")
                    self.server.paused.wait(0.02)  # type: ignore[attr-defined] # our own
            self.close_connection = True
        else:
            body = f"{self.command} {self.path}".encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def scripted() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        server.daemon_threads = True
        server.paused = threading.Event()  # type: ignore[attr-defined] # our own
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("status", "method"), [(302, "PUT"), (307, "PUT"), (308, "PUT"), (303, "GET")])
def test_an_answer_says_what_it_answers_after_a_redirection(scripted: str, status: int, method: str) -> None:
    answer = whole_answer(connections(), "PUT", f"{scripted}/redirect/{status}", 5, document={}, redirects=3)
    assert (answer.method, answer.url, answer.text) == (method, f"{scripted}/here", f"{method} /here")
    first = whole_answer(connections(), "PUT", f"{scripted}/redirect/{status}", 5, document={})
    assert first.is_redirect
    assert first.location == "/here"


def test_an_answer_that_is_cut_off_too_slow_or_too_large_is_none(scripted: str) -> None:
    for path, message in (("short", "IncompleteRead"), ("slow", "no whole answer in 0.3 s")):
        with pytest.raises(HTTPError, match=message):
            whole_answer(connections(), "GET", f"{scripted}/{path}", 0.3)
    with pytest.raises(HTTPError, match="more than 4 bytes"):
        whole_answer(connections(), "GET", f"{scripted}/here", 5, largest_bytes=4)


def test_a_header_that_is_none_is_not_told(scripted: str) -> None:
    with pytest.raises(HTTPError) as refused:
        whole_answer(
            connections(), "GET", f"{scripted}/here", 5, headers={"Authorization": "Bearer s3cret\n"}
        )
    assert "s3cret" not in repr(refused.value)


def test_no_proxy_and_no_login_is_taken_from_the_environment(
    scripted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert whole_answer(connections(), "GET", f"{scripted}/here", 5).text == "GET /here"
