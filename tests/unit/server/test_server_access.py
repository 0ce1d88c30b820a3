"""Access: every route by every method, with and without token, right and wrong Host and Origin; and fuzz."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from tests.unit.server.asking import Stores, path_of

from grete.errors import CoordinatorUnavailable, Fenced
from grete.model.ids import ContainerId, JobId
from grete.server.app import build_app
from grete.server.openapi import SCHEMAS, document
from grete.server.rights import Right, Tokens
from grete.server.routes import GuardedRoute
from grete.wire.container_protocol import AssignmentMessage, Command, Directive, Heartbeat
from grete.wire.prometheus_text import TEXT

TOKEN = "t0ken"  # noqa: S105 - of this test
HOST = {"host": "127.0.0.1:8080"}
GOOD = {**HOST, "authorization": f"Bearer {TOKEN}"}
WRITE_TOKEN = "wr1te"  # noqa: S105 - of this test
METRICS_TOKEN = "m3trics"  # noqa: S105 - of this test
WRITER = {**HOST, "authorization": f"Bearer {WRITE_TOKEN}"}
CONTAINER_TOKEN = "c0ntainer"  # noqa: S105 - of this test
CONTAINER = {**HOST, "authorization": f"Bearer {CONTAINER_TOKEN}"}
HEARTBEAT = "/api/v1/containers/0/heartbeat"
SECRET = {"shop.password": "hunter2hunter2", "task.inputs": "local.in"}
WRITES = ("/api/v1/job/stop", "/api/v1/job/drain", "/api/v1/job/step-down", "/api/v1/containers/0/request")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
EPOCH = 7
BODY = {"epoch": EPOCH, "what": "stop"}
"""A heartbeat and a request: fields that a reader does not know are ignored."""


class View:
    """A coordinator with container 0 of epoch 7, whose checkpoints hold text that is no text."""

    @property
    def containers(self) -> View:
        return self

    @property
    def requests(self) -> View:
        return self

    def job_model_document(self) -> bytes:
        return b"{}"

    def assignment(self, container_id: str) -> AssignmentMessage | None:
        made = AssignmentMessage(
            job=JobId("job"), container_id=ContainerId("0"), epoch=EPOCH, config=SECRET, tasks=()
        )
        return made if container_id == "0" else None

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        if container_id == "new":
            raise CoordinatorUnavailable("the coordinator has only just started")
        if container_id != "0" or heartbeat.epoch != EPOCH:
            raise Fenced(f"container {container_id}", epoch=heartbeat.epoch, seen=EPOCH)
        return Directive(Command.RUN, 1)

    def write(self, what: str, container: str | None, deadline_s: float, reason: str) -> dict[str, Any]:
        return {"requested": what, "deadline_s": deadline_s}

    def job(self) -> dict[str, Any]:
        return {"state": "running"}

    def config(self) -> dict[str, str]:
        return {}

    def history(self) -> list[dict[str, Any]]:
        return []

    def checkpoints(self) -> dict[str, dict[str, str]]:
        return {"Partition 0": {"local.in.0": "\ud800"}}

    def lag(self) -> dict[str, Any]:
        return {"total": None, "tasks": {}, "partitions": [], "missing": []}

    def metrics(self, *, each_partition: bool = True, form: str = TEXT) -> str:
        return ""

    def not_ready(self) -> str:
        return ""


def app(token: str | None = TOKEN) -> Starlette:
    hosts = frozenset({"127.0.0.1", "localhost", "[::1]"})
    tokens = Tokens(token, WRITE_TOKEN, CONTAINER_TOKEN, METRICS_TOKEN)
    return build_app(View(), tokens=tokens, hosts=hosts, stores=Stores())


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app(), raise_server_exceptions=False) as made:
        yield made


ROUTES = [route for route in app().routes if isinstance(route, Route)]
CELLS = [(path_of(route.path), method) for route in ROUTES for method in METHODS]
CELLS += [(path, method) for path in ("/nowhere", "/api/v1", "/api/v2/job") for method in METHODS]


def allowed(path: str, method: str) -> bool | None:
    """Whether the path has the method; None for a path that does not exist."""
    for route in ROUTES:
        if path_of(route.path) == path:
            return method in (route.methods or ())
    return None


@pytest.mark.parametrize(
    "headers",
    [
        HOST,
        {**HOST, "authorization": "Bearer wrong"},
        {**HOST, "authorization": f"Bearer {TOKEN}x"},
        {**HOST, "authorization": TOKEN},
        {**HOST, "authorization": f"Basic {TOKEN}"},
        {**HOST, "authorization": "Bearer "},
    ],
    ids=["no token", "wrong token", "longer token", "no scheme", "wrong scheme", "empty token"],
)
def test_without_the_token_only_liveness_answers(client: TestClient, headers: dict[str, str]) -> None:
    """What there is not is said to all: it is in the source, and no right is asked that no route has."""
    expected = {True: 401, False: 405, None: 404}
    wrong = [
        (path, method, answer.status_code)
        for path, method in CELLS
        if path != "/healthz"
        if (answer := client.request(method, path, headers=headers)).status_code
        != expected[allowed(path, method)]
    ]
    assert wrong == []
    assert client.get("/healthz", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8080"}, 421),
        ({"host": "127.0.0.1@evil.example"}, 421),
        ({"host": "127.0.0.1:8080:8080"}, 421),
        ({"host": ""}, 421),
        ({**HOST, "origin": "https://evil.example"}, 403),
        ({**HOST, "origin": "null"}, 403),
        ({**HOST, "origin": "http://127.0.0.1:8080@evil.example"}, 403),
    ],
)
@pytest.mark.parametrize("authorization", [{}, {"authorization": f"Bearer {TOKEN}"}], ids=["", "token"])
def test_a_strange_host_or_origin_gets_nothing_even_with_the_token(
    client: TestClient, headers: dict[str, str], status: int, authorization: dict[str, str]
) -> None:
    wrong = [
        (path, method, answer.status_code)
        for path, method in CELLS
        if (answer := client.request(method, path, headers={**headers, **authorization})).status_code
        != status
    ]
    assert wrong == []


def test_with_the_token_every_route_answers_its_own_methods_and_no_other(client: TestClient) -> None:
    for path, method in CELLS:
        has_body = method in ("POST", "PUT", "PATCH")
        headers = WRITER if path in WRITES else CONTAINER if path == HEARTBEAT else GOOD
        answer = client.request(method, path, headers=headers, json=BODY if has_body else None)
        expected = {True: 200, False: 405, None: 404}[allowed(path, method)]
        assert answer.status_code == expected, (path, method)
        if answer.status_code >= 400 and method != "HEAD":
            assert list(answer.json()) == ["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "LocalHost:8080", "[::1]", "[::1]:8080"])
def test_every_way_to_write_our_address_is_served(client: TestClient, host: str) -> None:
    assert client.get("/readyz", headers={**GOOD, "host": host}).status_code == 200
    assert client.get("/readyz", headers={**GOOD, "origin": f"http://{host}"}).status_code == 200


def test_a_header_that_is_there_twice_is_refused(client: TestClient) -> None:
    twice = [("host", "127.0.0.1"), ("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer x")]
    assert client.get("/readyz", headers=twice).status_code == 401
    hosts = [("host", "127.0.0.1"), ("host", "evil.example"), ("authorization", f"Bearer {TOKEN}")]
    assert client.get("/readyz", headers=hosts).status_code == 421


def test_without_a_configured_token_host_and_origin_still_count() -> None:
    with TestClient(app(token=None)) as open_client:
        assert open_client.get("/api/v1/job", headers=HOST).status_code == 200
        assert open_client.get("/api/v1/job", headers={"host": "evil.example"}).status_code == 421
        evil = {**HOST, "origin": "https://evil.example"}
        assert open_client.post("/api/v1/containers/0/heartbeat", headers=evil, json={}).status_code == 403


def test_websockets_are_refused(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api/v1/job", headers=GOOD):
        pass


@pytest.mark.parametrize("length", [None, "-1", "+5", "1e3", "0x5", "", " ", "²", "5, 5", "9" * 30])
def test_a_length_that_is_no_number_is_refused(client: TestClient, length: str | None) -> None:
    headers = [(name.encode(), value.encode()) for name, value in CONTAINER.items()]
    headers.append((b"content-type", b"application/json"))
    if length is None:
        headers.append((b"transfer-encoding", b"chunked"))
    else:
        headers.append((b"content-length", length.encode("latin-1")))
    answer = client.post("/api/v1/containers/0/heartbeat", content=iter([b"{}"]), headers=headers)
    assert answer.status_code == 411


def test_a_length_beside_another_way_to_say_it_is_refused(client: TestClient) -> None:
    """The server would read the chunks, however many there are."""
    headers = [(name.encode(), value.encode()) for name, value in CONTAINER.items()]
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", b"2"),
        (b"Transfer-Encoding", b"chunked"),
    ]
    answer = client.post("/api/v1/containers/0/heartbeat", content=iter([b"{}"]), headers=headers)
    assert (answer.status_code, "no Transfer-Encoding" in answer.text) == (411, True)


def test_text_that_is_no_text_is_escaped(client: TestClient) -> None:
    answer = client.get("/api/v1/checkpoints", headers=GOOD)
    assert answer.content == b'{"Partition 0": {"local.in.0": "\\ud800"}}'


def test_a_coordinator_that_cannot_say_yet_is_temporarily_unavailable(client: TestClient) -> None:
    answer = client.post("/api/v1/containers/new/heartbeat", headers=CONTAINER, json={"epoch": 1})
    assert (answer.status_code, answer.json()) == (503, {"message": "the coordinator has only just started"})


# --- fuzz: whatever is sent, no 5xx (RELIABILITY G20) ---

CASES = 10_000 if os.environ.get("GRETE_NIGHTLY") else 400
FUZZ = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.just("\\ud800"),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXT, children, max_size=4),
    max_leaves=12,
)
HEARTBEATS = st.fixed_dictionaries(
    {},
    optional={
        "epoch": st.just(EPOCH) | JSON,
        "batch_id": st.integers() | JSON,
        "records": st.integers() | JSON,
        "state": JSON,
        "message": JSON,
    },
)


@FUZZ
@given(body=HEARTBEATS)
def test_a_heartbeat_of_any_shape_is_taken_or_refused(client: TestClient, body: dict[str, Any]) -> None:
    headers = {**CONTAINER, "content-type": "application/json"}
    answer = client.post("/api/v1/containers/0/heartbeat", content=json.dumps(body), headers=headers)
    is_right = type(body.get("epoch")) is int and body["epoch"] == EPOCH
    assert answer.status_code in ((200, 400) if is_right else (400, 409))


@FUZZ
@given(body=st.binary(max_size=200))
def test_bytes_that_are_no_heartbeat_are_refused(client: TestClient, body: bytes) -> None:
    headers = {**CONTAINER, "content-type": "application/json"}
    answer = client.post("/api/v1/containers/0/heartbeat", content=body, headers=headers)
    assert answer.status_code in (400, 409)


NAMES = st.sampled_from(
    ["authorization", "content-type", "content-length", "origin", "if-none-match", "accept", "range", "x-y"]
)
VALUES = st.binary(max_size=30).filter(lambda value: not set(value) & set(b"\r\n\0")) | st.sampled_from(
    [f"Bearer {TOKEN}".encode(), b"application/json", b"0", b"http://127.0.0.1", b"*", b'"x"']
)


@FUZZ
@given(
    method=st.sampled_from(METHODS),
    path=st.sampled_from([path for path, _ in CELLS]) | st.text(max_size=30).map(lambda text: f"/{text}"),
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=5),
    host=st.just(b"127.0.0.1") | VALUES,
    body=st.binary(max_size=50),
)
def test_no_request_is_an_internal_error(
    client: TestClient,
    method: str,
    path: str,
    headers: list[tuple[str, bytes]],
    host: bytes,
    body: bytes,
) -> None:
    sent = [(b"host", host), *((name.encode(), value) for name, value in headers)]
    answer = client.request(method, quote(path, errors="replace"), headers=sent, content=body)
    assert answer.status_code < 500


# --- the document ---


DOCUMENT = document(app().routes)
PATHS = DOCUMENT["paths"]


def test_the_openapi_document_has_every_route_and_method_and_no_other() -> None:
    routes = {(route.path, method) for route in ROUTES for method in (route.methods or set()) - {"HEAD"}}
    documented = {(path, method.upper()) for path, methods in PATHS.items() for method in methods}
    assert routes == documented


def test_every_schema_that_is_referred_to_exists_and_is_used() -> None:
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    assert named == set(SCHEMAS)


def test_the_documents_security_is_that_of_the_route() -> None:
    schemes = {
        **{Right.METRICS: "metrics", Right.READ: "token"},
        **{Right.WRITE: "write", Right.CONTAINER: "container"},
    }
    assert schemes.keys() == set(Right)
    assert set(DOCUMENT["components"]["securitySchemes"]) == set(schemes.values())
    for route in app().routes:
        assert isinstance(route, GuardedRoute)
        operation = PATHS[route.path][route.method.lower()]
        assert operation["security"] == ([{schemes[route.needs]: []}] if route.needs else [])
        assert ("401" in operation["responses"]) is (route.needs is not None)


def test_the_document_names_every_parameter_of_a_path() -> None:
    for path, methods in PATHS.items():
        for operation in methods.values():
            of_path = [one for one in operation.get("parameters", []) if one["in"] == "path"]
            named = [parameter["name"] for parameter in of_path]
            assert named == re.findall(r"{(\w+)}", path)


def test_metrics_are_asked_for_with_and_without_partitions_and_with_nothing_else(client: TestClient) -> None:
    asked = {query: client.get(f"/metrics{query}", headers=GOOD) for query in ("", "?partitions=false")}
    assert {answer.status_code for answer in asked.values()} == {200}
    wrong = client.get("/metrics?partitions=none", headers=GOOD)
    assert (wrong.status_code, wrong.json()["message"]) == (
        400,
        "partitions='none' is neither true nor false",
    )


def test_only_a_container_speaks_for_itself(client: TestClient) -> None:
    """A reader of metrics must not be able to report that a container has paused."""
    said = {"epoch": EPOCH, "paused": 3}
    for headers in (HOST, GOOD, WRITER):
        assert client.post(HEARTBEAT, headers=headers, json=said).status_code == 401
    with TestClient(app(token=None)) as readable_by_all:
        assert readable_by_all.post(HEARTBEAT, headers=HOST, json=said).status_code == 401
        assert readable_by_all.post(HEARTBEAT, headers=CONTAINER, json=said).status_code == 200
    assert client.post(HEARTBEAT, headers=CONTAINER, json=said).status_code == 200


def test_only_a_container_gets_its_secrets(client: TestClient) -> None:
    for headers in (GOOD, WRITER):
        answer = client.get("/api/v1/containers/0", headers=headers)
        assert answer.json()["config"] == {**SECRET, "shop.password": "********"}
    with TestClient(app(token=None)) as readable_by_all:
        assert "hunter2" not in readable_by_all.get("/api/v1/containers/0", headers=HOST).text
    assert client.get("/api/v1/containers/0", headers=CONTAINER).json()["config"] == SECRET


def test_a_container_changes_nothing_of_its_job(client: TestClient) -> None:
    for path in WRITES:
        assert client.post(path, headers=CONTAINER, json={"what": "stop"}).status_code == 401


@pytest.mark.parametrize("path", WRITES)
def test_what_changes_the_job_needs_the_write_token_even_of_readers(client: TestClient, path: str) -> None:
    for headers in (HOST, GOOD):
        assert client.post(path, headers=headers, json={"what": "stop"}).status_code == 401
    with TestClient(app(token=None)) as readable_by_all:
        assert readable_by_all.post(path, headers=HOST, json={"what": "stop"}).status_code == 401
    answer = client.post(path, headers=WRITER, json={"what": "stop", "deadline_s": 5})
    assert (answer.status_code, answer.json()["deadline_s"]) == (200, 5)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"deadline_s": "soon"},
        {"deadline_s": -1},
        {"deadline_s": 1e9},
        {"deadline_s": True},
        {"reason": "x" * 1001},
    ],
)
def test_a_request_that_is_none_is_refused_with_a_reason(client: TestClient, body: Any) -> None:
    answer = client.post(WRITES[0], headers=WRITER, json=body)
    assert answer.status_code == 400
    assert answer.json()["message"]
