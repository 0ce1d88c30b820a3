"""The HTTP API: who gets in, and what is served."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from grete.errors import Fenced
from grete.http_client import JobCoordinatorClient
from grete.model.ids import ContainerId, JobId
from grete.server import app as server_app
from grete.server import serve
from grete.server.app import build_app
from grete.server.connections import MOST, ConnectionLimits, bounded_protocol
from grete.server.rights import Tokens
from grete.server.serve import HttpServer, bind, bind_beside, coordinator_server, write_token
from grete.testing.waiting import eventually
from grete.wire.container_protocol import AssignmentMessage, Command, Directive, Heartbeat
from grete.wire.prometheus_text import TEXT

TOKEN = "t0ken"  # noqa: S105 - of this test
TOKENS = Tokens(TOKEN, container=TOKEN)
HOST = {"host": "127.0.0.1"}
KNOWN = Directive(Command.RUN, 1)
GOOD = {**HOST, "authorization": f"Bearer {TOKEN}"}
ROUTES = (
    "/",
    "/api/v1/job-model",
    "/api/v1/containers/0",
    "/api/v1/job",
    "/api/v1/config",
    "/api/v1/history",
    "/api/v1/checkpoints",
    "/api/v1/lag",
    "/api/v1/openapi.json",
    "/metrics",
    "/readyz",
)


class View:
    """A coordinator with one container under epoch 7."""

    @property
    def containers(self) -> View:
        return self

    @property
    def requests(self) -> View:
        return self

    def job_model_document(self) -> bytes:
        return b'{"containers":{}}'

    def assignment(self, container_id: str) -> AssignmentMessage | None:
        made = AssignmentMessage(
            job=JobId("job"), container_id=ContainerId("0"), epoch=7, config={}, tasks=()
        )
        return made if container_id == "0" else None

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        if heartbeat.epoch != 7:
            raise Fenced(container_id, epoch=heartbeat.epoch, seen=7)
        return Directive(Command.RUN, 1)

    def job(self) -> dict[str, Any]:
        return {"state": "running"}

    def config(self) -> dict[str, str]:
        return {}

    def history(self) -> list[dict[str, Any]]:
        return []

    def checkpoints(self) -> dict[str, dict[str, str]]:
        return {}

    def lag(self) -> dict[str, Any]:
        return {"total": 0, "tasks": {}, "partitions": [], "missing": []}

    def metrics(self, *, each_partition: bool = True, form: str = TEXT) -> str:
        return "x 1\n"

    def not_ready(self) -> str:
        return ""


@pytest.fixture
def client() -> Iterator[TestClient]:
    app = build_app(View(), tokens=TOKENS, hosts=frozenset({"127.0.0.1", "localhost"}))
    with TestClient(app, raise_server_exceptions=False) as made:
        yield made


@pytest.mark.parametrize("path", ROUTES)
def test_with_token_every_route_answers(client: TestClient, path: str) -> None:
    assert client.get(path, headers=GOOD).status_code == 200


def test_liveness_needs_no_token(client: TestClient) -> None:
    assert client.get("/healthz", headers=HOST).text == "ok\n"


class Resting(View):
    def not_ready(self) -> str:
        return "container 1 given up"


def test_readiness_is_one_word_and_its_absence_has_the_reason(client: TestClient) -> None:
    ready = client.get("/readyz", headers=GOOD)
    assert (ready.status_code, ready.text) == (200, "ready\n")
    app = build_app(Resting(), tokens=TOKENS, hosts=frozenset({"127.0.0.1", "localhost"}))
    with TestClient(app, raise_server_exceptions=False) as resting:
        answer = resting.get("/readyz", headers=GOOD)
    assert (answer.status_code, answer.text) == (503, "not ready: container 1 given up\n")


def test_an_unchanged_model_is_not_sent_again(client: TestClient) -> None:
    tag = client.get("/", headers=GOOD).headers["etag"]
    assert client.get("/", headers={**GOOD, "if-none-match": tag}).status_code == 304


def test_if_none_match_is_compared_as_http_says(client: TestClient) -> None:
    tag = client.get("/", headers=GOOD).headers["etag"]
    for condition in ("*", f"W/{tag}", f'"other", {tag}', f'W/"other",W/{tag}'):
        assert client.get("/", headers={**GOOD, "if-none-match": condition}).status_code == 304
    for condition in ('"*"', '"other"', "", tag.strip('"')):
        assert client.get("/", headers={**GOOD, "if-none-match": condition}).status_code == 200


def test_a_refusal_says_what_would_be_right(client: TestClient) -> None:
    assert client.get("/", headers=HOST).headers["www-authenticate"] == "Bearer"
    refused = client.delete("/api/v1/job", headers=GOOD)
    assert refused.status_code == 405
    assert sorted(refused.headers["allow"].split(", ")) == ["GET", "HEAD"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"epoch":7}', {"content-type": "application/json"}, 200),
        (b'{"epoch":6}', {"content-type": "application/json"}, 409),
        (b'{"epoch":"7"}', {"content-type": "application/json"}, 400),
        (b'{"epoch":true}', {"content-type": "application/json"}, 400),
        (b'{"epoch":1' + b"0" * 5000 + b"}", {"content-type": "application/json"}, 400),
        (b'{"epoch":7,"commit_seconds":1e999}', {"content-type": "application/json"}, 400),
        (b'{"epoch":7,"records":"many"}', {"content-type": "application/json"}, 400),
        (b'{"epoch":NaN}', {"content-type": "application/json"}, 400),
        (b'{"epoch":7,"epoch":7}', {"content-type": "application/json"}, 400),
        (b"[" * 100_000, {"content-type": "application/json"}, 400),
        (b"\xff", {"content-type": "application/json"}, 400),
        (b'{"epoch":7}', {"content-type": "text/plain"}, 415),
        (b" " * (1024 * 1024 + 1), {"content-type": "application/json"}, 413),
    ],
)
def test_heartbeats_are_read_strictly(
    client: TestClient, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = client.post("/api/v1/containers/0/heartbeat", content=body, headers={**GOOD, **headers})
    assert answer.status_code == status


def test_a_token_file_is_only_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "state" / "token"
    first, second = write_token(path), write_token(path)
    assert first != second
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == second
    assert [one.name for one in path.parent.iterdir()] == ["token"]


def test_while_a_token_is_replaced_the_one_before_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "token", []
    before = write_token(path)
    monkeypatch.setattr(serve, "failpoint", lambda name: seen.append(path.read_text()))
    write_token(path)
    assert seen == [before]


def test_a_port_in_use_and_an_address_of_another_machine_are_refused_before_anything_happens() -> None:
    from grete.errors import ConfigError

    taken = bind("127.0.0.1", 0)
    taken.listen()
    with pytest.raises(ConfigError, match=r"job\.http\.port"):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match=r"cannot bind 192\.0\.2\.1:0"):
        bind("192.0.2.1", 0)
    taken.close()


def test_a_port_that_a_predecessor_still_has_is_left_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = bind("127.0.0.1", 0)
    taken.listen()
    port = taken.getsockname()[1]
    own = bind_beside("127.0.0.1", port, "process 77 on here")
    assert own.getsockname()[1] not in (0, port)
    assert f"job.http.port={port} is still held by process 77 on here" in caplog.text
    own.close()
    taken.close()
    free = bind_beside("127.0.0.1", port, "process 77 on here")
    assert free.getsockname()[1] == port
    free.close()


@pytest.fixture
def served() -> Iterator[str]:
    server = coordinator_server(View(), bind("127.0.0.1", 0), TOKENS)
    server.start()
    yield server.url
    server.close()


def test_a_server_leaves_the_logging_of_its_process_alone() -> None:
    """uvicorn's own configuration of logging closes every handler there is: a log stream would have no more."""

    class Closes(logging.Handler):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    handler = Closes()
    logging.getLogger().addHandler(handler)
    try:
        server = coordinator_server(View(), bind("127.0.0.1", 0), TOKENS)
        server.start()
        server.close()
        assert not handler.is_closed
    finally:
        logging.getLogger().removeHandler(handler)


def test_fifty_readers_at_once_all_get_the_whole_model(served: str) -> None:
    def read(_: int) -> tuple[int, bytes]:
        with httpx2.Client(
            headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=60
        ) as reader:
            answer = reader.get(served)
            return answer.status_code, answer.content

    with ThreadPoolExecutor(50) as pool:
        assert set(pool.map(read, range(100))) == {(200, b'{"containers":{}}')}


def test_a_request_whose_headers_have_no_end_is_refused(served: str) -> None:
    host, port = served.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"x" * 17_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def raw(port: int, head: bytes) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port), timeout=30)
    opened.sendall(head)
    return opened


def test_silent_connections_keep_no_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections need no token to be opened; a heartbeat gets through all the same."""
    monkeypatch.setattr(serve, "bounded_protocol", lambda: bounded_protocol(ConnectionLimits(most=8)))
    server = coordinator_server(View(), bind("127.0.0.1", 0), TOKENS)
    server.start()
    port = int(server.url.rsplit(":", 1)[1])
    idle = [raw(port, b"GET / HTTP/1.1\r\nhost:") for _ in range(40)]
    answers = [httpx2.get(f"{server.url}/readyz", headers=GOOD, trust_env=False) for _ in range(10)]
    assert {answer.status_code for answer in answers} == {200}
    for one in idle:
        one.close()
    server.close()


@pytest.fixture
def descriptors() -> Iterator[None]:
    """As many as a thousand connections take, where a login shell has 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nhost:"], ids=["silent", "half a head"])
def test_a_thousand_idle_connections_cost_no_heartbeat_and_no_more_than_the_limits(
    tmp_path: Path, head: bytes
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    server = coordinator_server(View(), bind("127.0.0.1", 0), TOKENS)
    server.start()
    held = server._server.server_state.connections
    with ExitStack() as idle, closing(JobCoordinatorClient(server.url, tmp_path / "token")) as container:
        took, most = [], 0
        for opened in range(1000):
            idle.enter_context(raw(server.address[1], head))
            if opened % 50 == 49:
                began = time.monotonic()
                assert container.heartbeat("0", Heartbeat(7)) == KNOWN
                took.append(time.monotonic() - began)
                most = max(most, len(held))
        with closing(JobCoordinatorClient(server.url, tmp_path / "token")) as another:
            assert another.heartbeat("0", Heartbeat(7)) == KNOWN
    server.close()
    assert max(took) < 5, "a container waits a minute, and is silent after one"
    assert 200 < most <= MOST + serve._BACKLOG


def test_the_head_of_a_request_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "bounded_protocol", lambda: bounded_protocol(ConnectionLimits(head_s=0.1)))
    server = coordinator_server(View(), bind("127.0.0.1", 0), TOKENS)
    server.start()
    port = int(server.url.rsplit(":", 1)[1])
    request = f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()
    for head in (b"", b"GET / HTTP/1.1\r\n", request + request + b"GET"):
        with raw(port, head) as slow:
            while slow.recv(1000):
                pass  # until the server ends it: the socket's own time-out would raise
    server.close()


LARGE = 64 << 20


@contextlib.contextmanager
def large_answer(
    monkeypatch: pytest.MonkeyPatch, limits: ConnectionLimits
) -> Iterator[tuple[socket.socket, HttpServer, list[bool]]]:
    """A client that has asked for more than buffers take, its server, and whether that has begun to answer."""
    asked: list[bool] = []

    class Large(View):
        def metrics(self, *, each_partition: bool = True, form: str = TEXT) -> str:
            asked.append(True)
            return "x" * LARGE

    monkeypatch.setattr(serve, "bounded_protocol", lambda: bounded_protocol(limits))
    server = coordinator_server(Large(), bind("127.0.0.1", 0), TOKENS)
    server.start()
    port = int(server.url.rsplit(":", 1)[1])
    head = (
        f"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: {GOOD['authorization']}\r\n\r\n"
    )
    with raw(port, head.encode()) as slow:
        yield slow, server, asked
    server.close()


def test_who_takes_an_answer_slowly_has_longer_than_for_the_head_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with large_answer(monkeypatch, ConnectionLimits(head_s=0.1, unread_s=60)) as (slow, server, asked):
        taken = len(slow.recv(1000))
        assert asked
        for _ in range(3):  # each of them lasts as long as the deadline of a head
            with raw(int(server.url.rsplit(":", 1)[1]), b"GET") as silent:
                assert not silent.recv(1)
        while taken < LARGE and (piece := slow.recv(1 << 20)):
            taken += len(piece)
    assert taken >= LARGE


def test_who_takes_nothing_of_an_answer_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit no idle connection would be left to make room, and no heartbeat would come in."""
    with large_answer(monkeypatch, ConnectionLimits(unread_s=0.1)) as (slow, server, asked):
        connections = server._server.server_state.connections
        eventually(lambda: asked, "the server answers")
        eventually(lambda: not connections, "the server lets it go")
        taken = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := slow.recv(1 << 20):
                taken += len(piece)
        assert taken < LARGE


def test_an_answers_body_does_not_wait_until_its_head_has_been_acknowledged() -> None:
    """Linux acknowledges after 40 ms when nothing else is to be sent: each directive came as much later."""
    with bind("127.0.0.1", 0) as bound:
        bound.listen()
        with raw(bound.getsockname()[1], b"GET"):
            accepted, _ = bound.accept()
            with accepted:
                assert accepted.proto == socket.IPPROTO_TCP  # asyncio sets TCP_NODELAY for these


class Holding(View):
    """Holds every answer until it is given."""

    def __init__(self) -> None:
        self.held: list[Future[Directive]] = []

    def next_directive(self, container_id: str, heartbeat: Heartbeat) -> Future[Directive]:
        self.held.append(Future())
        return self.held[-1]


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[tuple[Holding, Callable[[], Directive]]]:
    """A server, and a heartbeat to it that knows the directive."""
    (tmp_path / "token").write_text(TOKEN)
    view = Holding()
    server = coordinator_server(view, bind("127.0.0.1", 0), TOKENS)
    server.start()
    with closing(JobCoordinatorClient(server.url, tmp_path / "token")) as client:
        yield view, lambda: client.heartbeat("0", Heartbeat(7, known=KNOWN))
    server.close()


def test_a_heartbeat_is_answered_as_soon_as_there_is_another_directive(
    holding: tuple[Holding, Callable[[], Directive]],
) -> None:
    view, send = holding
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send)
        eventually(lambda: view.held)
        view.held[0].set_result(Directive(Command.PAUSE, 2))
        assert answer.result(60) == Directive(Command.PAUSE, 2)


def test_a_heartbeat_is_answered_in_time_though_nothing_changes(
    holding: tuple[Holding, Callable[[], Directive]],
) -> None:
    view, send = holding
    assert send() == KNOWN
    assert view.held[0].cancelled()


def test_a_fenced_container_learns_it_from_the_answer_that_was_held(
    holding: tuple[Holding, Callable[[], Directive]],
) -> None:
    view, send = holding
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send)
        eventually(lambda: view.held)
        view.held[0].set_exception(Fenced("container 0", epoch=7, seen=8))
        with pytest.raises(Fenced):
            answer.result(60)


def test_answers_are_held_for_so_many_containers_that_connections_are_left_for_others(
    holding: tuple[Holding, Callable[[], Directive]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection whose answer is held cannot make room (`connections`): beyond the limit it is given at once."""
    monkeypatch.setattr(server_app, "_HELD_AT_MOST", 2)
    view, send = holding
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(send) for _ in range(2)]
        eventually(lambda: len(view.held) == 2)
        assert send() == Directive(Command.RUN, 1)
        assert len(view.held) == 2
        assert [answer.result(60) for answer in answers] == [KNOWN] * 2
