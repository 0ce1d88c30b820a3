"""The OpenAPI document of the coordinator's HTTP API. A test compares it with the routes."""

from __future__ import annotations

from typing import Any

from grete import __version__

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "format": "int64"}
_AMOUNT = {"type": "number"}
_MAYBE_NUMBER = {"type": ["integer", "null"], "format": "int64"}
_NUMBERS = {"type": "object", "additionalProperties": _NUMBER}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}


def _object(required: str = "", /, **properties: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"type": "object", "properties": properties}
    return document | {"required": required.split()} if required else document


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_SSP = _object("system stream partition", system=_TEXT, stream=_TEXT, partition=_NUMBER)
_JOB_ID = _object("name id", name=_TEXT, id=_TEXT)
_CONTAINER_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": _TEXT,
    "description": "the container",
}
_ETAG = {"ETag": {"schema": _TEXT, "description": "for If-None-Match, which answers 304"}}

SCHEMAS: dict[str, Any] = {
    "Message": _object("message", message=_TEXT),
    "Fenced": _object("message epoch", message=_TEXT, epoch=_NUMBER),
    "JobModel": {"type": "object", "description": "Samza's job model as its ObjectMapper writes it"},
    "Assignment": _object(
        "job container_id epoch run_id config tasks",
        job=_JOB_ID,
        container_id=_TEXT,
        epoch=_NUMBER,
        serial=_NUMBER,
        until_drained={"type": "boolean"},
        run_id=_TEXT,
        config=_TEXTS,
        tasks=_list(
            _object(
                "name ssps changelog_partition", name=_TEXT, ssps=_list(_SSP), changelog_partition=_NUMBER
            )
        ),
    ),
    "Heartbeat": _object(
        "epoch",
        epoch=_NUMBER,
        state=_TEXT,
        batch_id=_NUMBER,
        records=_NUMBER,
        message=_TEXT,
        commits=_NUMBER,
        dead_letters=_NUMBER,
        commit_seconds=_AMOUNT,
        last_commit_seconds=_AMOUNT,
    ),
    "HeartbeatAnswer": _object(
        "action number", action={"type": "string", "enum": ["run", "pause", "stop"]}, number=_NUMBER
    ),
    "Request": _object(deadline_s={"type": "number"}, reason=_TEXT),
    "ContainerRequest": _object(
        "what",
        what={"type": "string", "enum": ["stop", "start", "restart"]},
        deadline_s={"type": "number"},
        reason=_TEXT,
    ),
    "Requested": _object("requested", requested=_TEXT, container=_TEXT, id=_TEXT),
    "Job": _object(
        "job state run_id epoch metrics containers quarantined monitor_problems",
        job=_JOB_ID,
        state=_TEXT,
        run_id=_TEXT,
        epoch=_NUMBER,
        metrics=_NUMBERS,
        containers={"type": "object", "additionalProperties": {"type": "object"}},
        quarantined=_list(_TEXT),
        monitor_problems=_TEXTS,
    ),
    "Config": _TEXTS,
    "OpenApi": {"type": "object"},
    "History": _list(_object("number timestamp_ms event", number=_NUMBER, timestamp_ms=_NUMBER, event=_TEXT)),
    "Checkpoints": {
        "type": "object",
        "description": "last processed offsets by task and system.stream.partition",
        "additionalProperties": _TEXTS,
    },
    "Lag": _object(
        "total tasks partitions missing",
        total=_MAYBE_NUMBER,
        tasks=_NUMBERS,
        partitions=_list(
            _object(
                "task system stream partition checkpointed upcoming lag",
                task={"type": ["string", "null"]},
                system=_TEXT,
                stream=_TEXT,
                partition=_NUMBER,
                checkpointed={"type": ["string", "null"]},
                upcoming=_TEXT,
                lag=_MAYBE_NUMBER,
            )
        ),
        missing=_list(_TEXT),
    ),
}


def _schema(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _refused(status: int, why: str) -> dict[str, Any]:
    return {str(status): {"description": why, "content": _schema("Fenced" if status == 409 else "Message")}}


_STRANGER = {**_refused(403, "an Origin of another site"), **_refused(421, "a Host that is not served here")}
_NO_TOKEN = _refused(401, "no token, or a wrong one")


def _get(summary: str, schema: str, **more: Any) -> dict[str, Any]:
    answer = {"description": summary, "content": _schema(schema), **more.pop("answer", {})}
    responses = {"200": answer, **more.pop("responses", {}), **_NO_TOKEN, **_STRANGER}
    return {"get": {"summary": summary, "responses": responses, **more}}


def _text(summary: str, **more: Any) -> dict[str, Any]:
    answer = {"description": summary, "content": {"text/plain": {"schema": _TEXT}}}
    return {
        "get": {
            "summary": summary,
            "responses": {"200": answer, **more.pop("responses"), **_STRANGER},
            **more,
        }
    }


def _ask(summary: str, schema: str, **more: Any) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "security": [{"write": []}],
            "requestBody": {"required": True, "content": _schema(schema)},
            "responses": {
                "200": {"description": "it is in the coordinator stream", "content": _schema("Requested")},
                **_refused(400, "not such a request"),
                **_refused(401, "not the write token"),
                **_refused(411, "no Content-Length"),
                **_refused(413, "more than 1 MiB"),
                **_refused(415, "not JSON"),
                **_STRANGER,
            },
            **more,
        }
    }


_UNCHANGED = {"304": {"description": "the client has it already"}}
_UNKNOWN = _refused(404, "the job has no such container")

PATHS: dict[str, Any] = {
    "/": _get("Samza's job model", "JobModel", answer={"headers": _ETAG}, responses=_UNCHANGED),
    "/api/v1/job-model": _get("The same", "JobModel", answer={"headers": _ETAG}, responses=_UNCHANGED),
    "/api/v1/containers/{id}": _get(
        "What a container has to do",
        "Assignment",
        parameters=[_CONTAINER_ID],
        answer={"headers": _ETAG},
        responses={**_UNCHANGED, **_UNKNOWN},
    ),
    "/api/v1/containers/{id}/heartbeat": {
        "post": {
            "summary": "A container says that it lives and how far it is",
            "security": [{"container": []}],
            "parameters": [_CONTAINER_ID],
            "requestBody": {"required": True, "content": _schema("Heartbeat")},
            "responses": {
                "200": {"description": "what it is asked to do", "content": _schema("HeartbeatAnswer")},
                **_refused(400, "not a heartbeat"),
                **_NO_TOKEN,
                **_refused(409, "a newer incarnation of the container is known: this one must end"),
                **_refused(411, "no Content-Length"),
                **_refused(413, "more than 1 MiB"),
                **_refused(415, "not JSON"),
                **_STRANGER,
            },
        }
    },
    "/api/v1/containers/{id}/request": _ask(
        "Stop, start or restart one container", "ContainerRequest", parameters=[_CONTAINER_ID]
    ),
    "/api/v1/job/stop": _ask("Stop the job at a batch boundary", "Request"),
    "/api/v1/job/drain": _ask("Consume what is there, and end the job", "Request"),
    "/api/v1/job": _get("State, epoch, run, metrics, containers", "Job"),
    "/api/v1/config": _get("The configuration, secrets masked", "Config"),
    "/api/v1/history": _get("What happened", "History"),
    "/api/v1/checkpoints": _get("Last processed offsets", "Checkpoints"),
    "/api/v1/lag": _get("Messages not processed yet, by task, by partition, in all", "Lag"),
    "/api/v1/openapi.json": _get("This document", "OpenApi"),
    "/metrics": _text("Metrics for Prometheus", responses=_NO_TOKEN),
    "/healthz": _text("Whether the process lives; needs no token", responses={}, security=[]),
    "/readyz": _text(
        "Whether containers can be served",
        responses={
            **_NO_TOKEN,
            "503": {"description": "not ready", "content": {"text/plain": {"schema": _TEXT}}},
        },
    ),
}


def document() -> dict[str, Any]:
    """The whole document, OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "grete job coordinator", "version": __version__},
        "security": [{"token": []}],
        "paths": PATHS,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
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
