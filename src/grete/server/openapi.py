"""The OpenAPI document of the coordinator's HTTP API, its schemas made from the classes that are sent and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.routing import BaseRoute

from grete import __version__
from grete.server.rights import Right
from grete.server.routes import GuardedRoute
from grete.wire import coordinator_api as api
from grete.wire.container_protocol import AssignmentMessage, Directive, Heartbeat

_TEXT = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_REF = "#/components/schemas/{name}"
_BODIES = (Heartbeat, api.JobRequest, api.ContainerRequest)
_ANSWERS = (
    AssignmentMessage,
    Directive,
    api.Refusal,
    api.FencedResponse,
    api.Requested,
    api.Job,
    api.HistoryRow,
    api.Lag,
    api.StoreAnswer,
)
_CONTAINER_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": _TEXT,
    "description": "the container",
}
_EACH_PARTITION = {
    "name": "partitions",
    "in": "query",
    "schema": {"type": "string", "enum": ["true", "false"], "default": "true"},
    "description": "false leaves out what is by partition or task",
}
_QUESTION = [
    {"name": "store", "in": "path", "required": True, "schema": _TEXT, "description": "its name"},
    {
        "name": "key",
        "in": "query",
        "schema": _TEXT,
        "description": "the entry of this key alone: text as it is, other keys as JSON",
    },
    {"name": "prefix", "in": "query", "schema": _TEXT, "description": "only keys that begin so"},
    {
        "name": "task",
        "in": "query",
        "schema": _TEXT,
        "description": "only the store of this task; without, one task after the other",
    },
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
        "description": "so many entries at most",
    },
]
_HELD = "what it is commanded to do; held while that is `known` to it, for half a second at most"
_ETAG = {"ETag": {"schema": _TEXT, "description": "for If-None-Match, which answers 304"}}


def _of_answers() -> dict[str, Any]:
    """The schemas of answers: fields with a default, which an older reader or writer may lack, are always there."""
    _, schemas = msgspec.json.schema_components(_ANSWERS, ref_template=_REF)
    for schema in schemas.values():
        fields: dict[str, Any] = schema.get("properties", {})
        schema["required"] = [n for n in fields if n in schema["required"] or "default" in fields[n]]
    # a container that was given up before its first heartbeat has its state alone
    of_heartbeats_alone = ("known", "metrics", "end")  # metrics are in /metrics, ends in the history
    reported = [n for n in Heartbeat.__struct_fields__ if n not in of_heartbeats_alone]
    fields = {n: {"$ref": f"{_REF.format(name='Heartbeat')}/properties/{n}"} for n in reported}
    schemas["Job"]["properties"]["containers"]["additionalProperties"] = _object(fields)
    schemas["HistoryRow"]["additionalProperties"] = True
    return schemas


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


SCHEMAS: dict[str, Any] = {
    **msgspec.json.schema_components(_BODIES, ref_template=_REF)[1],
    **_of_answers(),
    "JobModel": {"type": "object", "description": "Samza's job model as its ObjectMapper writes it"},
    "Config": _TEXTS,
    "OpenApi": {"type": "object"},
    "History": {"type": "array", "items": {"$ref": _REF.format(name="HistoryRow")}},
    "Checkpoints": {
        "type": "object",
        "description": "last processed offsets by task and system.stream.partition",
        "additionalProperties": _TEXTS,
    },
}


def _schema(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _refused(status: int, why: str) -> dict[str, Any]:
    return {
        str(status): {
            "description": why,
            "content": _schema("FencedResponse" if status == 409 else "Refusal"),
        }
    }


_STRANGER = {**_refused(403, "an Origin of another site"), **_refused(421, "a Host that is not served here")}
_NOT_YET = _refused(503, "the coordinator has only just started, or a store does not answer it: ask again")
_SECURITY: dict[Right | None, list[dict[str, Any]]] = {
    None: [],
    Right.METRICS: [{"metrics": []}],
    Right.READ: [{"token": []}],
    Right.WRITE: [{"write": []}],
    Right.CONTAINER: [{"container": []}],
}
"""The scheme of each right, by its name in `securitySchemes`."""


def _get(summary: str, schema: str, **more: Any) -> dict[str, Any]:
    answer = {"description": summary, "content": _schema(schema), **more.pop("answer", {})}
    responses = {"200": answer, **more.pop("responses", {}), **_STRANGER, **_NOT_YET}
    return {"get": {"summary": summary, "responses": responses, **more}}


def _text(summary: str, **more: Any) -> dict[str, Any]:
    answer = {"description": summary, "content": {"text/plain": {"schema": _TEXT}}}
    return {
        "get": {
            "summary": summary,
            "responses": {"200": answer, **more.pop("responses", {}), **_STRANGER},
            **more,
        }
    }


def _ask(summary: str, schema: str, **more: Any) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": _schema(schema)},
            "responses": {
                "200": {"description": "it is in the coordinator stream", "content": _schema("Requested")},
                **_refused(400, "not such a request"),
                **_refused(411, "no Content-Length"),
                **_refused(413, "more than 1 MiB"),
                **_refused(415, "not JSON"),
                **_STRANGER,
                **_NOT_YET,
            },
            **more,
        }
    }


_UNCHANGED = {"304": {"description": "the client has it already"}}
_UNKNOWN = _refused(404, "the job has no such container, or this is no name of one")

_PATHS: dict[str, Any] = {
    "/": _get("Samza's job model", "JobModel", answer={"headers": _ETAG}, responses=_UNCHANGED),
    "/api/v1/job-model": _get("The same", "JobModel", answer={"headers": _ETAG}, responses=_UNCHANGED),
    "/api/v1/containers/{id}": _get(
        "A container's assignment",
        "AssignmentMessage",
        parameters=[_CONTAINER_ID],
        answer={"headers": _ETAG},
        responses=_UNCHANGED,
    ),
    "/api/v1/containers/{id}/heartbeat": {
        "post": {
            "summary": "A container reports that it lives and how far it is",
            "parameters": [_CONTAINER_ID],
            "requestBody": {"required": True, "content": _schema("Heartbeat")},
            "responses": {
                "200": {"description": _HELD, "content": _schema("Directive")},
                **_refused(400, "not a heartbeat"),
                **_refused(409, "a newer incarnation of the container is known: this one must end"),
                **_refused(411, "no Content-Length"),
                **_refused(413, "more than 1 MiB"),
                **_refused(415, "not JSON"),
                **_STRANGER,
                **_NOT_YET,
            },
        }
    },
    "/api/v1/containers/{id}/request": _ask(
        "Stop, start or restart one container", "ContainerRequest", parameters=[_CONTAINER_ID]
    ),
    "/api/v1/job/stop": _ask("Stop the job at a batch boundary", "JobRequest"),
    "/api/v1/job/drain": _ask("Consume what is there, and end the job", "JobRequest"),
    "/api/v1/job/step-down": _ask("Let another coordinator lead, while containers go on", "JobRequest"),
    "/api/v1/job": _get("State, epoch, run, metrics, containers", "Job"),
    "/api/v1/config": _get("The configuration, secrets masked", "Config"),
    "/api/v1/history": _get("The history", "History"),
    "/api/v1/checkpoints": _get("Last processed offsets", "Checkpoints"),
    "/api/v1/lag": _get("Messages not processed yet, by task, by partition, in all", "Lag"),
    "/api/v1/stores/{store}": _get(
        "What a StreamTask's store has at the last commit of each task",
        "StoreAnswer",
        parameters=_QUESTION,
        responses={
            **_refused(400, "no such key or limit, or keys that have no order as text"),
            **_refused(404, "the job has no such store or task"),
        },
    ),
    "/api/v1/openapi.json": _get("This document", "OpenApi"),
    "/metrics": _text(
        "Metrics for Prometheus; OpenMetrics where `Accept` names it",
        parameters=[_EACH_PARTITION],
        responses=_refused(400, "neither true nor false"),
    ),
    "/healthz": _text("Whether the process lives; needs no token"),
    "/readyz": _text(
        "Whether containers can be served",
        responses={"503": {"description": "not ready", "content": {"text/plain": {"schema": _TEXT}}}},
    ),
}


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The whole document, OpenAPI 3.1: each operation with the security that its route has."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "grete job coordinator", "version": __version__},
        "paths": {
            route.path: {route.method.lower(): _operation(route)}
            for route in routes
            if isinstance(route, GuardedRoute)
        },
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "metrics": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "the content of http-metrics-token; every other token does as well",
                },
                "token": {"type": "http", "scheme": "bearer", "description": "the content of http-token"},
                "write": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "the content of http-write-token",
                },
                "container": {"type": "http", "scheme": "bearer", "description": "what containers are given"},
            },
        },
    }


def _operation(route: GuardedRoute) -> dict[str, Any]:
    described: dict[str, Any] = _PATHS[route.path][route.method.lower()]
    refused = {} if route.needs is None else _refused(401, f"not a token that gives the right: {route.needs}")
    unknown = _UNKNOWN if described.get("parameters") else {}
    responses = dict(sorted({**described["responses"], **refused, **unknown}.items()))
    return {**described, "responses": responses, "security": _SECURITY[route.needs]}
