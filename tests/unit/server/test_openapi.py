"""The OpenAPI document against what a coordinator answers, both ways: neither says more than the other."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.unit.server.asking import headers, path_of, route_of

from grete.server.openapi import SCHEMAS
from grete.wire.container_protocol import Heartbeat, document

REQUEST = {"what": "restart", "deadline_s": 5, "reason": "a test"}
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
        elif not schema:
            pass  # anything
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


def served_paths(client: TestClient) -> dict[str, Any]:
    """The paths of the document as it is served."""
    found: dict[str, Any] = client.get("/api/v1/openapi.json", headers=headers("/")).json()["paths"]
    return found


def test_every_answer_is_what_the_document_says_and_says_all_that_the_document_does(
    client: TestClient,
) -> None:
    heartbeat = document(Heartbeat(client.epoch))  # type: ignore[attr-defined]
    bodies = {"/api/v1/containers/{id}/heartbeat": heartbeat}
    comparison, promised, seen = Comparison(), set[str](), set[str]()
    for path, methods in served_paths(client).items():
        for method, operation in methods.items():
            body = bodies.get(path, REQUEST) if method == "post" else None
            answer = client.request(method, path_of(path), headers=headers(path), json=body)
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
        ("GET", "/api/v1/stores/none?key=ann", {}, None, 404),
        ("GET", "/api/v1/stores/counts?limit=0", {}, None, 400),
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
    named = route_of(path)
    responses = served_paths(client)[named][method.lower()]["responses"]
    [content] = responses[str(status)]["content"].values()
    Comparison().check(answer.json(), content["schema"], path)
