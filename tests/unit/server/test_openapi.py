"""The OpenAPI document against what a coordinator answers, both ways: neither says more than the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.unit.coordinator.test_loop import JOB, ZERO, Coordinator

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.config.settings import Settings
from grete.coordinator.job_model import Remembered, calculate
from grete.metadata.history import History
from grete.metadata.input_streams import input_records
from grete.metadata.startpoint_state import state_entry
from grete.metadata.startpoints import startpoint_entry, startpoint_key
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StartpointKind, StateChoice, StateRequest
from grete.server.app import build_app
from grete.server.openapi import SCHEMAS
from grete.server.rights import Tokens
from grete.systems.base import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.wire.container_protocol import Heartbeat, document

TOKENS = Tokens("r3ad", "wr1te", "c0ntainer")
REQUEST = {"what": "restart", "deadline_s": 5, "reason": "a test"}
CONFIG = {
    "job.name": "orders",
    "task.inputs": "local.in",
    "systems.local.samza.factory": "local",
    "db.password": "hunter2hunter2",
}
TASK, SSP = TaskName("Partition 0"), SystemStreamPartition("local", "in", 0)
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


class Comparison:
    """Compares values with schemas, and collects the fields that were met, as `Schema.field`."""

    def __init__(self) -> None:
        self.met: set[str] = set()

    def check(self, value: Any, schema: dict[str, Any], name: str) -> None:
        if "$ref" in schema:
            path = schema["$ref"].removeprefix("#/components/schemas/").split("/")
            found: Any = SCHEMAS
            for part in path:
                found = found[part]
            self.check(value, found, path[0] if len(path) == 1 else name)
        elif "anyOf" in schema:
            types = [one for one in schema["anyOf"] if isinstance(value, TYPES[one["type"]])]
            assert len(types) == 1, (name, value)
            self.check(value, types[0], name)
        elif "enum" in schema:
            assert value in schema["enum"], (name, value)
        else:
            assert isinstance(value, TYPES[schema["type"]]), (name, value)
            if isinstance(value, list):
                for one in value:
                    self.check(one, schema["items"], f"{name}[]")
            elif isinstance(value, dict):
                self._fields(value, schema, name)

    def _fields(self, value: dict[str, Any], schema: dict[str, Any], name: str) -> None:
        fields = schema.get("properties", {})
        others = schema.get("additionalProperties", not fields)  # nothing is said: it may hold anything
        assert set(schema.get("required", ())) <= set(value), (name, value)
        for key, one in value.items():
            if key in fields:
                self.met.add(f"{name}.{key}")
                self.check(one, fields[key], f"{name}.{key}")
            else:
                assert others, f"{name} does not say {key}"
                if isinstance(others, dict):
                    self.check(one, others, f"{name}.*")


def documented(schema: dict[str, Any], name: str, met: set[str], seen: set[str]) -> None:
    """Every field that an answer of this schema may have."""
    if "$ref" in schema:
        path = schema["$ref"].removeprefix("#/components/schemas/").split("/")
        if len(path) == 1 and path[0] not in seen:
            seen.add(path[0])
            documented(SCHEMAS[path[0]], path[0], met, seen)
        return
    for key, one in schema.get("properties", {}).items():
        met.add(f"{name}.{key}")
        documented(one, f"{name}.{key}", met, seen)
    for inner, suffix in ((schema.get("items"), "[]"), (schema.get("additionalProperties"), ".*")):
        if isinstance(inner, dict):
            documented(inner, name + suffix, met, seen)


@pytest.fixture
def client(home: Path, system: LocalSystem) -> Iterator[TestClient]:
    """A coordinator whose job has all that there is to say: a container that reports, startpoints, lag, a history."""
    system.create_stream(StreamSpec("in", 1))
    system.append("in", [Message(None, b"v", 1, partition=0) for _ in range(3)])
    log = system.checkpoint_log(checkpoint_log_name(JOB))
    log.append(commit_entries({TASK: TaskCommit({SSP: "0"})}, grouper="g"))
    made = Coordinator()
    stream = made.view._stream
    stream.write_config(CONFIG, run_id="run")
    now_ms = made.clock.wall_ms()
    stream.log.append(
        [startpoint_entry(startpoint_key(SSP, None), Startpoint(StartpointKind.OLDEST, now_ms))]
    )
    stream.log.append([state_entry(stream, TASK, StateRequest(StateChoice.RESTORE, now_ms, {"counts": 3}))])
    stream.append([stream.entry(*one) for one in input_records({SSP.system_stream: "uid"})])
    History(stream).append("deployment", reason="a test")
    made.view.containers.checkpoint_log = system.checkpoint_log
    settings = Settings.of(CONFIG)
    made.view.containers.serve(
        settings, calculate(settings, {SystemStream("local", "in"): 1}, Remembered()).model
    )
    made.registry.open()
    made.view.containers.heartbeat(
        ZERO, Heartbeat(made.containers.started[-1].epoch, "running", records=2, commits=1)
    )
    app = build_app(made.view, tokens=TOKENS, hosts=frozenset({"127.0.0.1"}))
    with TestClient(app, raise_server_exceptions=False) as opened:
        opened.epoch = made.containers.started[-1].epoch  # type: ignore[attr-defined]
        yield opened


def served_paths(client: TestClient) -> dict[str, Any]:
    """The paths of the document as it is served."""
    found: dict[str, Any] = client.get("/api/v1/openapi.json", headers=headers("/")).json()["paths"]
    return found


def headers(path: str) -> dict[str, str]:
    """With the token that the route wants."""
    is_write = path.endswith(("/stop", "/drain", "/step-down", "/request"))
    token = TOKENS.write if is_write else TOKENS.container if path.endswith("/heartbeat") else TOKENS.read
    return {"host": "127.0.0.1", "authorization": f"Bearer {token}"}


def test_every_answer_is_what_the_document_says_and_says_all_that_the_document_does(
    client: TestClient,
) -> None:
    heartbeat = document(Heartbeat(client.epoch))  # type: ignore[attr-defined]
    bodies = {"/api/v1/containers/{id}/heartbeat": heartbeat}
    comparison, promised, seen = Comparison(), set[str](), set[str]()
    for path, methods in served_paths(client).items():
        for method, operation in methods.items():
            body = bodies.get(path, REQUEST) if method == "post" else None
            answer = client.request(method, path.replace("{id}", "0"), headers=headers(path), json=body)
            assert answer.status_code == 200, (path, answer.text)
            for kind, content in operation["responses"]["200"]["content"].items():
                assert answer.headers["content-type"].startswith(kind)
                if kind == "application/json":
                    comparison.check(answer.json(), content["schema"], path)
                    documented(content["schema"], path, promised, seen)
    assert promised == comparison.met


@pytest.mark.parametrize(
    ("method", "path", "other", "body", "status"),
    [
        ("GET", "/api/v1/job", {"authorization": ""}, None, 401),
        ("GET", "/api/v1/job", {"origin": "http://evil.example"}, None, 403),
        ("GET", "/api/v1/containers/9", {}, None, 404),
        ("GET", "/api/v1/job", {"host": "evil.example"}, None, 421),
        ("POST", "/api/v1/containers/0/heartbeat", {}, {}, 400),
        ("POST", "/api/v1/containers/0/heartbeat", {}, {"epoch": 1}, 409),
        ("POST", "/api/v1/containers/0/request", {}, {"what": "dance"}, 400),
        ("POST", "/api/v1/containers/9/request", {}, {"what": "stop"}, 400),
        ("POST", "/api/v1/job/stop", {}, {"deadline_s": "soon"}, 400),
        ("POST", "/api/v1/job/drain", {"content-type": "text/plain"}, {}, 415),
    ],
)
def test_every_refusal_is_what_the_document_says(
    client: TestClient, method: str, path: str, other: dict[str, str], body: Any, status: int
) -> None:
    answer = client.request(method, path, headers={**headers(path), **other}, json=body)
    assert answer.status_code == status
    named = path.replace("/9", "/{id}").replace("/0", "/{id}")
    responses = served_paths(client)[named][method.lower()]["responses"]
    [content] = responses[str(status)]["content"].values()
    Comparison().check(answer.json(), content["schema"], path)
