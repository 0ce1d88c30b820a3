"""The coordinator's HTTP API (Starlette): Samza's job model at `/`, everything else under `/api/v1`.

`_table` says which route needs which right, `guard` decides who gets in, `openapi` describes the routes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import msgspec
import orjson
from msgspec import UNSET
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from grete.config.redact import redact
from grete.errors import ConfigError, CoordinatorUnavailable, Fenced, GreteError, JobError, WireError
from grete.server import openapi
from grete.server.connections import MOST
from grete.server.guard import RIGHT, Guard
from grete.server.guard import error as _error
from grete.server.rights import Right, Tokens
from grete.server.routes import Below, Endpoint, GuardedRoute
from grete.wire import coordinator_api as api
from grete.wire.container_protocol import (
    HELD_AT_REST_S,
    AssignmentMessage,
    Directive,
    Heartbeat,
    decode,
    document,
)
from grete.wire.coordinator_api import ContainerRequest, Job, JobRequest, Requested
from grete.wire.prometheus_text import TEXT, content_type

_MOST_ROWS = 1_000
"""Of a store in one answer."""
_HELD_AT_MOST = MOST // 2
"""Answers that are held at a time: their connections cannot make room for others (`connections`)."""


class ServedContainers(Protocol):
    """What containers are given. Called from several threads at once."""

    def assignment(self, container_id: str) -> AssignmentMessage | None:
        """A container's assignment, with its secrets; None when there is no such container."""

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        """Record a heartbeat; returns the container's directive. Raises Fenced for a stale epoch."""

    def next_directive(self, container_id: str, heartbeat: Heartbeat) -> Future[Directive]:
        """As `heartbeat`; the directive is there, or Fenced, as soon as it is not `known` to the container.

        The container's next heartbeat ends the wait too.
        """


class RequestTarget(Protocol):
    """Where requests to a running job go."""

    def write(self, what: str, container: str | None, deadline_s: float, reason: str) -> Requested:
        """Ask for `stop`, `drain`, `step-down` of the job, or `stop`, `start`, `restart` of a container, by stream.

        Raises:
            WireError: there is no such thing to ask for, or no such container.
        """


class StoreQueries(Protocol):
    """Answers questions to the stores of a job's tasks. Called from several threads at once."""

    def read(
        self, store: str, *, key: str | None, prefix: str, task: str | None, limit: int
    ) -> api.StoreAnswer:
        """The entries of a key, else those whose keys begin so.

        Raises:
            ConfigError, JobError: there is no such store or task.
            WireError: keys of this store have no order as text.
        """


class CoordinatorView(Protocol):
    """What people and their programs are shown. Called from several threads at once."""

    @property
    def containers(self) -> ServedContainers:
        """For the job's containers."""

    @property
    def requests(self) -> RequestTarget:
        """For who asks something of the job."""

    def job_model_document(self) -> bytes:
        """Samza's job model JSON."""

    def job(self) -> Job:
        """State, epoch, run id, metrics, containers."""

    def config(self) -> dict[str, str]:
        """The configuration, redacted."""

    def history(self) -> list[dict[str, Any]]:
        """Rows of history."""

    def checkpoints(self) -> dict[str, dict[str, str]]:
        """Last processed offsets by task and SSP, read now."""

    def lag(self) -> dict[str, Any]:
        """`JobLag.document()`, measured a moment ago at most."""

    def metrics(self, *, each_partition: bool = True, form: str = TEXT) -> str:
        """The text for Prometheus, in a form of `prometheus_text`."""

    def not_ready(self) -> str:
        """Why the job is not at work as it should be; empty when it is."""


def _json(document: Any) -> Response:
    try:
        body = orjson.dumps(document, default=msgspec.to_builtins)
    except TypeError:  # a lone surrogate, which Java's JSON may hold: escape it
        body = json.dumps(document, default=msgspec.to_builtins).encode()
    return Response(body, media_type="application/json")


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _cached(request: Request, body: bytes, tag: str) -> Response:
    """The body with an ETag; 304 when the client has it."""
    if _has(request.headers.getlist("if-none-match"), tag):
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type="application/json", headers={"etag": tag})


def _has(conditions: list[str], tag: str) -> bool:
    """Whether `If-None-Match` names the tag: compared weakly, and `*` is any (RFC 9110, 13.1.2)."""
    named = [one.strip().removeprefix("W/") for line in conditions for one in line.split(",")]
    return tag in named or "*" in named


class _Routes:
    def __init__(self, view: CoordinatorView, stores: StoreQueries | None) -> None:
        self._view = view
        self._stores = stores
        self._tagged = (b"", _tag(b""))  # the job model last served; large, and mostly the same
        self._held = 0

    async def job_model(self, request: Request) -> Response:
        body = await run_in_threadpool(self._view.job_model_document)
        if self._tagged[0] is not body:
            self._tagged = (body, _tag(body))
        return _cached(request, *self._tagged)

    async def container(self, request: Request) -> Response:
        assignment = await run_in_threadpool(self._view.containers.assignment, request.path_params["id"])
        if assignment is None:
            return _error(404, f"the job has no container {request.path_params['id']!r}")
        if request.scope[RIGHT] is not Right.CONTAINER:
            assignment = msgspec.structs.replace(assignment, config=redact(assignment.config))
        body = orjson.dumps(document(assignment))
        return _cached(request, body, _tag(body))

    async def heartbeat(self, request: Request) -> Response:
        try:
            heartbeat = decode(await request.body(), Heartbeat)
            directive = await self._directive(request.path_params["id"], heartbeat)
        except WireError as error:
            return _error(400, str(error))
        except Fenced as error:
            return JSONResponse(document(api.FencedResponse(str(error), error.seen)), status_code=409)
        return _json(directive)

    async def _directive(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        """The answer, held until the container's directive is not `known` to it. No thread waits meanwhile."""
        if heartbeat.known is UNSET or self._held >= _HELD_AT_MOST:
            return await run_in_threadpool(self._view.containers.heartbeat, container_id, heartbeat)
        self._held += 1
        hold_s = min(heartbeat.hold_s, HELD_AT_REST_S)
        try:
            directive = await run_in_threadpool(self._view.containers.next_directive, container_id, heartbeat)
            return await asyncio.wait_for(asyncio.wrap_future(directive), hold_s)
        except TimeoutError:
            return heartbeat.known
        finally:
            self._held -= 1

    def request(self, what: str) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                asked = decode(await request.body(), JobRequest)
                return await self._request(what, None, asked)
            except WireError as error:
                return _error(400, str(error))

        return endpoint

    async def container_request(self, request: Request) -> Response:
        try:
            asked = decode(await request.body(), ContainerRequest)
            return await self._request(asked.what, request.path_params["id"], asked)
        except WireError as error:
            return _error(400, str(error))

    async def _request(self, what: str, container: str | None, asked: JobRequest) -> Response:
        ask = self._view.requests.write
        return _json(await run_in_threadpool(ask, what, container, asked.deadline_s, asked.reason))

    def answer(self, read: Callable[[], Any]) -> Endpoint:
        async def endpoint(_: Request) -> Response:
            return _json(await run_in_threadpool(read))

        return endpoint

    async def metrics(self, request: Request) -> Response:
        asked = request.query_params.get("partitions", "true")
        if asked not in ("true", "false"):
            return _error(400, f"partitions={asked!r} is neither true nor false")
        form = content_type(request.headers.get("accept", ""))
        text = await run_in_threadpool(self._view.metrics, each_partition=asked == "true", form=form)
        return Response(text, headers={"content-type": form, "vary": "accept"})

    async def store(self, request: Request) -> Response:
        asked, name = request.query_params, request.path_params["store"]
        limit = asked.get("limit", "100")
        if not (limit.isascii() and limit.isdigit() and 0 < int(limit) <= _MOST_ROWS):
            return _error(400, f"limit={limit!r} is not a number from 1 to {_MOST_ROWS}")
        if self._stores is None:
            return _error(503, "no stores are served here")
        key, prefix, task = asked.get("key"), asked.get("prefix", ""), asked.get("task")
        try:
            read = partial(self._stores.read, name, key=key, prefix=prefix, task=task, limit=int(limit))
            return _json(await run_in_threadpool(read))
        except WireError as error:
            return _error(400, str(error))
        except (ConfigError, JobError) as error:
            return _error(404, str(error))

    async def openapi(self, request: Request) -> Response:
        return _json(openapi.document(request.app.routes))

    async def healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, _: Request) -> Response:
        why = await run_in_threadpool(self._view.not_ready)
        return PlainTextResponse(f"not ready: {why}\n" if why else "ready\n", status_code=503 if why else 200)


async def _on_unavailable(_: Request, error: Exception) -> Response:
    return _error(503, str(error))


async def _on_error(_: Request, error: Exception) -> Response:
    return _error(503 if isinstance(error, CoordinatorUnavailable) else 500, str(error))


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail, error.headers)


def build_app(
    view: CoordinatorView,
    *,
    tokens: Tokens,
    hosts: frozenset[str],
    pages: ASGIApp | None = None,
    stores: StoreQueries | None = None,
) -> Starlette:
    """The application; `pages` are what is below `/ui`, `stores` those of the job's tasks."""
    app = Starlette(
        routes=[*_table(view, stores, tokens), *([] if pages is None else [Below("/ui", pages)])],
        exception_handlers={
            CoordinatorUnavailable: _on_unavailable,
            GreteError: _on_error,
            HTTPException: _on_http_error,
        },
    )
    app.router.redirect_slashes = False  # a path with one more is another path
    app.add_middleware(Guard, hosts=hosts)
    return app


def _table(view: CoordinatorView, stores: StoreQueries | None, tokens: Tokens) -> list[GuardedRoute]:
    """Every route, with the right that it needs."""
    routes = _Routes(view, stores)
    containers = "/api/v1/containers/{id}"
    table: list[tuple[str, str, Endpoint, Right | None]] = [
        ("GET", "/", routes.job_model, Right.READ),
        ("GET", "/api/v1/job-model", routes.job_model, Right.READ),
        ("GET", containers, routes.container, Right.READ),
        ("POST", f"{containers}/heartbeat", routes.heartbeat, Right.CONTAINER),
        ("POST", f"{containers}/request", routes.container_request, Right.WRITE),
        ("GET", "/api/v1/job", routes.answer(view.job), Right.READ),
        ("POST", "/api/v1/job/stop", routes.request("stop"), Right.WRITE),
        ("POST", "/api/v1/job/drain", routes.request("drain"), Right.WRITE),
        ("POST", "/api/v1/job/step-down", routes.request("step-down"), Right.WRITE),
        ("GET", "/api/v1/config", routes.answer(view.config), Right.READ),
        ("GET", "/api/v1/history", routes.answer(view.history), Right.READ),
        ("GET", "/api/v1/checkpoints", routes.answer(view.checkpoints), Right.READ),
        ("GET", "/api/v1/lag", routes.answer(view.lag), Right.READ),
        ("GET", "/api/v1/stores/{store}", routes.store, Right.READ),
        ("GET", "/api/v1/openapi.json", routes.openapi, Right.READ),
        ("GET", "/metrics", routes.metrics, Right.METRICS),
        ("GET", "/healthz", routes.healthz, None),
        ("GET", "/readyz", routes.readyz, Right.READ),
    ]
    return [
        GuardedRoute(method, path, endpoint, needs=needs, tokens=tokens)
        for method, path, endpoint, needs in table
    ]
