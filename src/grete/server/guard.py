"""Who gets in: Host, Origin, token and size, before anything else looks at a request. Pure ASGI, deny by default."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

MAX_BODY = 1024 * 1024
OPEN_PATHS = ("/healthz",)
WRITE_PATHS = re.compile(r"/api/v1/job/(stop|drain)|/api/v1/containers/[^/]*/request")
"""What changes the job needs a token of its own: containers and dashboards hold the other one."""
_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rb"https?://([^/@?#]+)")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_WITH_BODY = ("POST", "PUT", "PATCH")


def error(status: int, message: str) -> JSONResponse:
    """Every refusal is an object with `message`."""
    return JSONResponse({"message": message.encode("utf-8", "backslashreplace").decode()}, status_code=status)


class Guard:
    """Refuses what is not meant for us, with 400, 401, 403, 411, 413, 415 or 421.

    A Host that is not served (DNS rebinding) or twice there, an Origin of another site, on any method and path; no
    or a wrong bearer token on every path but `/healthz`; a body without a length, larger than 1 MiB, or not JSON.
    WebSockets are refused altogether. `token` None lets everybody read who has the right Host and Origin; what
    changes the job always needs `write_token`, which opens everything else as well.
    """

    def __init__(
        self, app: ASGIApp, token: str | None, hosts: Iterable[str], write_token: str | None = None
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._write_token = None if write_token is None else write_token.encode()
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
        may_write = self._write_token is not None and hmac.compare_digest(token, self._write_token)
        if WRITE_PATHS.fullmatch(scope["path"]):
            return (
                None if may_write else error(401, "the write token is needed, in the file http-write-token")
            )
        if self._token is None or scope["path"] in OPEN_PATHS or may_write:
            return None
        if not hmac.compare_digest(token, self._token):
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
