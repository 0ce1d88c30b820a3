"""Access control by Host, Origin, token and size, before anything else reads a request. Pure ASGI, deny by default.

There are three rights, and a token for each: dashboards read, operators write, containers say how they are. The
tokens of operators and containers read as well; only that of containers sends heartbeats.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

MAX_BODY = 1024 * 1024
OPEN_PATHS = ("/healthz",)
WRITE_PATHS = re.compile(r"/api/v1/job/(stop|drain|step-down)|/api/v1/containers/[^/]*/request")
CONTAINER_PATHS = re.compile(r"/api/v1/containers/[^/]*/heartbeat")
RIGHT = "grete.right"
"""Where a request's scope has the right that its token gives."""
_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rb"https?://([^/@?#]+)")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_WITH_BODY = ("POST", "PUT", "PATCH")


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Every refusal is an object with `message`; 401 names the scheme, as RFC 9110 wants it."""
    content = {"message": message.encode("utf-8", "backslashreplace").decode()}
    given = {"www-authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(content, status_code=status, headers={**given, **(headers or {})})


class Right(StrEnum):
    """The right that a token gives."""

    READ = "read"
    WRITE = "write"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A token for each right. Without a `read` token reading is free; without another nothing has its right."""

    read: str | None
    write: str | None = None
    container: str | None = None

    def right(self, given: bytes) -> Right | None:
        """The right that a token gives; all are compared, so that the time says nothing."""
        known = ((Right.READ, self.read), (Right.WRITE, self.write), (Right.CONTAINER, self.container))
        rights = [right for right, token in known if token is not None and _is_same(given, token)]
        return rights[-1] if rights else (Right.READ if self.read is None else None)


def _is_same(given: bytes, token: str) -> bool:
    return hmac.compare_digest(given, token.encode())


class Guard:
    """Refuses what is not meant for us, with 400, 401, 403, 411, 413, 415 or 421.

    A Host that is not served (DNS rebinding) or twice there, an Origin of another site, on any method and path; no
    or a wrong bearer token on every path but `/healthz`; a body without a length, larger than 1 MiB, or not JSON.
    WebSockets are refused altogether.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, hosts: Iterable[str]) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = frozenset(host.lower().encode() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await (self._refusal(scope) or self._app)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, scope: Scope) -> Response | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        return self._stranger(headers) or self._without_token(scope, headers) or _body(scope, headers)

    def _stranger(self, headers: dict[bytes, list[bytes]]) -> Response | None:
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

    def _without_token(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> Response | None:
        given = headers.get(b"authorization", [])
        scheme, _, credentials = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        token = credentials.strip() if scheme.lower() == b"bearer" else b""
        right = scope[RIGHT] = self._tokens.right(token)
        if WRITE_PATHS.fullmatch(scope["path"]):
            missing = "the write token is needed, in the file http-write-token"
            return None if right is Right.WRITE else error(401, missing)
        if CONTAINER_PATHS.fullmatch(scope["path"]):
            return (
                None
                if right is Right.CONTAINER
                else error(401, "the token of the job's containers is needed")
            )
        if right is None and scope["path"] not in OPEN_PATHS:
            return error(401, "a bearer token is needed; its file is named by `grete status`")
        return None


def _body(scope: Scope, headers: dict[bytes, list[bytes]]) -> Response | None:
    if scope["method"] not in _WITH_BODY:
        return None
    lengths = headers.get(b"content-length", [])
    if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        return error(411, "a Content-Length is needed")
    if int(lengths[0]) > MAX_BODY:
        return error(413, f"a body has at most {MAX_BODY} bytes")
    kinds = headers.get(b"content-type", [b""])
    if len(kinds) != 1 or kinds[0].split(b";")[0].strip().lower() != b"application/json":
        return error(415, "send application/json")
    return None
