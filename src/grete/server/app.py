"""The coordinator's HTTP API (Starlette): Samza's job model at `/`, everything else under `/api/v1`.

Deny by default: a bearer token on every route but `/healthz`, a Host allow-list on every method, bodies of at most
1 MiB, JSON only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from grete.errors import Fenced, GreteError, WireError
from grete.wire import strict_json

_MAX_BODY = 1024 * 1024
_OPEN_PATHS = ("/healthz",)


class CoordinatorView(Protocol):
    """What the server asks of the coordinator. Called from several threads at once."""

    def job_model_document(self) -> bytes:
        """Samza's job model JSON."""

    def assignment(self, container_id: str) -> dict[str, Any] | None:
        """A container's assignment, None when there is no such container."""

    def heartbeat(self, container_id: str, body: dict[str, Any]) -> str:
        """Take a heartbeat; returns `continue` or `stop`. Raises Fenced for a stale epoch."""

    def job(self) -> dict[str, Any]:
        """State, epoch, run id, metrics, containers."""

    def config(self) -> dict[str, str]:
        """The configuration, redacted."""

    def history(self) -> list[dict[str, Any]]:
        """Rows of history."""

    def checkpoints(self) -> dict[str, dict[str, str]]:
        """Last processed offsets by task and SSP, read anew."""

    def metrics(self) -> str:
        """Prometheus text."""

    def is_ready(self) -> bool:
        """Whether containers can be served."""


class _Guard(BaseHTTPMiddleware):
    """Host, token and size, before anything else looks at a request."""

    def __init__(self, app: Any, token: str | None, hosts: frozenset[str]) -> None:
        super().__init__(app)
        self._token = token
        self._hosts = hosts

    async def dispatch(
        self, request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        refused = self._refusal(request)
        return refused if refused is not None else await call_next(request)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "").rsplit(":", 1)[0]
        if host not in self._hosts:
            return _error(421, f"host {host!r} is not served here")
        if request.url.path in _OPEN_PATHS or self._token is None:
            return self._size(request)
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return _error(401, "a bearer token is needed; its file is named by `grete status`")
        return self._size(request)

    @staticmethod
    def _size(request: Request) -> Response | None:
        length = request.headers.get("content-length", "0")
        if request.method in ("POST", "PUT", "PATCH"):
            if "content-length" not in request.headers or not length.isdigit():
                return _error(411, "a Content-Length is needed")
            if int(length) > _MAX_BODY:
                return _error(413, f"a body has at most {_MAX_BODY} bytes")
            if request.headers.get("content-type", "").split(";")[0] != "application/json":
                return _error(415, "send application/json")
        return None


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"message": message}, status_code=status)


def _json(document: Any) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")


def _cached(request: Request, body: bytes) -> Response:
    """The body with an ETag; 304 when the client has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type="application/json", headers={"etag": tag})


class _Routes:
    def __init__(self, view: CoordinatorView) -> None:
        self._view = view

    async def job_model(self, request: Request) -> Response:
        return _cached(request, await run_in_threadpool(self._view.job_model_document))

    async def container(self, request: Request) -> Response:
        document = await run_in_threadpool(self._view.assignment, request.path_params["id"])
        if document is None:
            return _error(404, f"the job has no container {request.path_params['id']!r}")
        return _cached(request, orjson.dumps(document))

    async def heartbeat(self, request: Request) -> Response:
        try:
            body = strict_json.loads(await request.body())
            if not isinstance(body, dict) or not isinstance(body.get("epoch"), int):
                return _error(400, "a heartbeat is an object with a whole number `epoch`")
            action = await run_in_threadpool(self._view.heartbeat, request.path_params["id"], body)
        except WireError as error:
            return _error(400, str(error))
        except Fenced as error:
            return JSONResponse({"message": str(error), "epoch": error.seen}, status_code=409)
        return _json({"action": action})

    def document(self, read: Callable[[], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(_: Request) -> Response:
            return _json(await run_in_threadpool(read))

        return endpoint

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(await run_in_threadpool(self._view.metrics))

    async def healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, _: Request) -> Response:
        ready = self._view.is_ready()
        return PlainTextResponse("ready\n" if ready else "not ready\n", status_code=200 if ready else 503)


async def _on_error(_: Request, error: Exception) -> Response:
    return _error(500, str(error))


def build_app(view: CoordinatorView, *, token: str | None, hosts: frozenset[str]) -> Starlette:
    """The application; `token` None serves without one (loopback only, by configuration)."""
    routes = _Routes(view)
    app = Starlette(
        routes=[
            Route("/", routes.job_model),
            Route("/api/v1/job-model", routes.job_model),
            Route("/api/v1/containers/{id}", routes.container),
            Route("/api/v1/containers/{id}/heartbeat", routes.heartbeat, methods=["POST"]),
            Route("/api/v1/job", routes.document(view.job)),
            Route("/api/v1/config", routes.document(view.config)),
            Route("/api/v1/history", routes.document(view.history)),
            Route("/api/v1/checkpoints", routes.document(view.checkpoints)),
            Route("/metrics", routes.metrics),
            Route("/healthz", routes.healthz),
            Route("/readyz", routes.readyz),
        ],
        exception_handlers={GreteError: _on_error},
    )
    app.add_middleware(_Guard, token=token, hosts=hosts)
    return app
