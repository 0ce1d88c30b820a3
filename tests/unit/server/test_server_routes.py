"""Every route by every right and in every form of its path, over a socket: only what the table of rights says."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.server.asking import Stores, path_of
from tests.unit.server.test_server_access import (
    CONTAINER_TOKEN,
    HOST,
    METRICS_TOKEN,
    TOKEN,
    WRITE_TOKEN,
    View,
    app,
)

from grete.server.rights import Tokens
from grete.server.routes import GuardedRoute
from grete.server.serve import bind, coordinator_server
from grete.wire.container_protocol import Directive, Heartbeat

TABLE = {
    "/": "GET read",
    "/api/v1/job-model": "GET read",
    "/api/v1/containers/0": "GET read",
    "/api/v1/containers/0/heartbeat": "POST container",
    "/api/v1/containers/0/request": "POST write",
    "/api/v1/job": "GET read",
    "/api/v1/job/stop": "POST write",
    "/api/v1/job/drain": "POST write",
    "/api/v1/job/step-down": "POST write",
    "/api/v1/config": "GET read",
    "/api/v1/history": "GET read",
    "/api/v1/checkpoints": "GET read",
    "/api/v1/lag": "GET read",
    "/api/v1/stores/counts": "GET read",
    "/api/v1/openapi.json": "GET read",
    "/metrics": "GET metrics",
    "/healthz": "GET open",
    "/readyz": "GET read",
}
"""The method of each path, and the right that it needs."""
TOKENS = {
    **{"none": "", "bad": "x", "metrics": METRICS_TOKEN, "read": TOKEN},
    **{"write": WRITE_TOKEN, "container": CONTAINER_TOKEN},
}
GIVES = {
    "none": {"open"},
    "bad": {"open"},
    "metrics": {"open", "metrics"},
    "read": {"open", "metrics", "read"},
    "write": {"open", "metrics", "read", "write"},
    "container": {"open", "metrics", "read", "container"},
}
SAME: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "encoded letters": lambda path: "".join(f"%{ord(c):02x}" if c.isalnum() else c for c in path),
    "a query": "{}?/healthz".format,
}
"""The same path, written otherwise."""
OTHER: dict[str, Callable[[str], str]] = {
    **{
        f"{code} at the end": f"{{}}{code}".format
        for code in ("%0A", "%0D", "%00", "%0d%0a", "%7F", "%C2%85")
    },
    **{f"{code} inside": f"{{0[0]}}{code}{{0}}".format for code in ("%0A", "%0D", "%00")},
    "an encoded slash": lambda path: "%2f".join(path.rsplit("/", 1)),
    "encoded slashes": lambda path: path.replace("/", "%2F"),
    "two slashes": "/{}".format,
    "two slashes inside": lambda path: "//".join(path.rsplit("/", 1)),
    "a slash at the end": "{}/".format,
    "an encoded slash at the end": "{}%2F".format,
    "a dot": "/.{}".format,
    "a dot at the end": "{}/.".format,
    "two dots": "/x/..{}".format,
    "encoded dots": "/x/%2e%2e{}".format,
    "two dots at the end": "{}/x/..".format,
    "another case": lambda path: path.upper() if path != "/" else "/A",
    "a parameter": "/;x{}".format,
    "a fragment": "/#x{}".format,
    "a backslash": lambda path: path.replace("/", "\\"),
    "an absolute URI": "http://127.0.0.1{}".format,
    "no slash": lambda path: path.removeprefix("/") or "*",
}
"""Other paths, which no route has."""
BODY = b'{"epoch":7,"what":"stop"}'
"""A heartbeat and a request: fields that a reader does not know are ignored."""


class Asked(View):
    """Remembers what was asked of the job and by its containers."""

    def __init__(self) -> None:
        self.changed: list[str] = []

    def write(self, what: str, container: str | None, deadline_s: float, reason: str) -> dict[str, Any]:
        self.changed.append(what)
        return super().write(what, container, deadline_s, reason)

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        self.changed.append("heartbeat")
        return super().heartbeat(container_id, heartbeat)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Asked, Callable[..., int]]]:
    """A coordinator, and a request to it: the status that it is answered with."""
    view = Asked()
    server = coordinator_server(
        view,
        bind("127.0.0.1", 0),
        Tokens(TOKEN, WRITE_TOKEN, CONTAINER_TOKEN, METRICS_TOKEN),
        stores=Stores(),
    )
    server.start()

    def ask(method: str, target: str, right: str, version: str = "1.1") -> int:
        lines = [f"{method} {target} HTTP/{version}", f"host: {HOST['host']}", "connection: close"]
        if TOKENS[right]:
            lines.append(f"authorization: Bearer {TOKENS[right]}")
        body = BODY if method == "POST" else b""
        if body:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        with socket.create_connection(server.address, timeout=30) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(answer.split(b" ", 2)[1])

    yield view, ask
    server.close()


def test_the_table_has_every_route_and_no_other() -> None:
    routes = [route for route in app().routes if isinstance(route, GuardedRoute)]
    assert len(routes) == len(app().routes)
    made = {path_of(r.path): f"{r.method} {r.needs or 'open'}" for r in routes}
    assert made == TABLE


@pytest.mark.parametrize("right", TOKENS)
@pytest.mark.parametrize("path", TABLE)
def test_a_route_answers_who_has_its_right_and_only_by_its_own_path(
    served: tuple[Asked, Callable[..., int]], path: str, right: str
) -> None:
    view, ask = served
    method, needs = TABLE[path].split()
    expected = 200 if needs in GIVES[right] else 401
    view.changed.clear()
    found = {form: ask(method, write(path), right) for form, write in SAME.items()}
    found["HTTP/1.0"] = ask(method, path, right, "1.0")
    assert found == dict.fromkeys(found, expected)
    assert len(view.changed) == (len(found) if method == "POST" and expected == 200 else 0)
    view.changed.clear()
    others = {form: ask(method, write(path), right) for form, write in OTHER.items()}
    others |= {f"{form}, HTTP/1.0": ask(method, OTHER[form](path), right, "1.0") for form in list(OTHER)[:3]}
    assert others == dict.fromkeys(others, 404)
    assert ask("HEAD", path, right) == (expected if method == "GET" else 405)
    wrong = [each for each in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE") if each != method]
    assert {each: ask(each, path, right) for each in wrong} == dict.fromkeys(wrong, 405)
    assert {each: ask(each, f"{path}%0A", right) for each in wrong} == dict.fromkeys(wrong, 404)
    assert view.changed == []


@pytest.mark.parametrize("right", TOKENS)
@pytest.mark.parametrize("target", ["*", "/nowhere", "/api/v1", "/api/v2/job", "/api/v1/job/nothing"])
def test_a_path_of_no_route_is_not_found_whoever_asks(
    served: tuple[Asked, Callable[..., int]], target: str, right: str
) -> None:
    _, ask = served
    assert {ask(method, target, right) for method in ("GET", "POST", "OPTIONS", "HEAD")} == {404}
