"""Access control by Host, Origin, token and size, before anything else reads a request. Pure ASGI.

There are three rights, and a token for each: dashboards read, operators write, containers say how they are. The
tokens of operators and containers read as well; only that of containers sends heartbeats. A route carries the right
that it needs (`routes`), so what the router matches is what is guarded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from grete.server.rights import Right, Tokens

MAX_BODY = 1024 * 1024
RIGHT = "grete.right"
"""Where a request's scope has the right that its token gives."""
_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rb"https?://([^/@?#]+)")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_WITH_BODY = ("POST", "PUT", "PATCH")

Headers = dict[bytes, list[bytes]]


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Every refusal is an object with `message`; 401 names the scheme, as RFC 9110 wants it."""
    content = {"message": message.encode("utf-8", "backslashreplace").decode()}
    given = {"www-authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(content, status_code=status, headers={**given, **(headers or {})})


class Guard:
    """Refuses strangers on any method and path, with 403 or 421; WebSockets are refused altogether.

    A stranger names a Host that is not served (DNS rebinding) or two of them, or an Origin of another site.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().encode() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await (self._refusal(_headers(scope)) or self._app)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, headers: Headers) -> Response | None:
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or not self._is_served(hosts[0]):
            return error(421, f"host {b', '.join(hosts).decode('latin-1')!r} is not served here")
        for origin in headers.get(b"origin", []):
            match = _ORIGIN.fullmatch(origin)
            if match is None or not self._is_served(match[1]):
                return error(403, f"origin {origin.decode('latin-1')!r} may not call this server")
        return None

    def _is_served(self, host: bytes) -> bool:
        match = _HOST.fullmatch(host)
        return match is not None and match[1].lower() in self._hosts


class RouteGuard:
    """Refuses what has not the right that its route needs, with 401, and a body that is none, with 411, 413 or 415.

    `needs` is None for a route that is open to all. A body has a length of 1 MiB at most, and is JSON.
    """

    def __init__(self, app: ASGIApp, needs: Right | None, tokens: Tokens) -> None:
        self._app = app
        self._needs = needs
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with the right that its token gives in its scope, or refuse it."""
        headers = _headers(scope)
        right = scope[RIGHT] = self._tokens.right(_bearer(headers))
        missing = None if self._needs is None else self._tokens.refusal(self._needs, right)
        refusal = _body(scope, headers) if missing is None else error(401, missing)
        await (refusal or self._app)(scope, receive, send)


def _headers(scope: Scope) -> Headers:
    headers: Headers = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    return headers


def _bearer(headers: Headers) -> bytes:
    """The token that is given; empty without one, or with two."""
    given = headers.get(b"authorization", [])
    scheme, _, credentials = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return credentials.strip() if scheme.lower() == b"bearer" else b""


def _body(scope: Scope, headers: Headers) -> Response | None:
    if scope["method"] not in _WITH_BODY:
        return None
    if b"transfer-encoding" in headers:  # by which the server would read on, whatever the length says
        return error(411, "a Content-Length is needed, and no Transfer-Encoding")
    lengths = headers.get(b"content-length", [])
    if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        return error(411, "a Content-Length is needed")
    if int(lengths[0]) > MAX_BODY:
        return error(413, f"a body has at most {MAX_BODY} bytes")
    kinds = headers.get(b"content-type", [b""])
    if len(kinds) != 1 or kinds[0].split(b";")[0].strip().lower() != b"application/json":
        return error(415, "send application/json")
    return None
