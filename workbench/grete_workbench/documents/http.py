"""`python -m grete_workbench.documents.http` prints docs/http.md from the routes and the OpenAPI document."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

from grete.server.app import CoordinatorView, build_app
from grete.server.openapi import document as openapi_document
from grete.server.rights import Tokens

_HEAD = """\
# HTTP API

<!-- Made by `python -m grete_workbench.documents.http`; change src/grete/server/openapi.py, not this file. -->

What a job's coordinator serves while the job runs. It is the document of `/api/v1/openapi.json`, for reading;
[observing.md](observing.md#http) says where the server is, and what it refuses in any case.

A request carries `Authorization: Bearer TOKEN`. The tokens are files in the job's folder: `http-metrics-token`
has the metrics and nothing else, `http-token` reads, `http-write-token` asks for changes, and the containers' own
is for them alone. Every token has the metrics, and every other one reads.

## Routes

| request | token | answer |
|---|---|---|
"""
_TOKENS = {
    "metrics": "`http-metrics-token`",
    "token": "`http-token`",
    "write": "`http-write-token`",
    "container": "the containers'",
}
_DOCUMENTS = """\
## Documents

What is sent and answered, as JSON. An answer has every field that is *required*; a request may leave out those with a
default.
"""
_EVERYWHERE = ("401", "403", "411", "413", "415", "421", "503")
"""Refusals that depend on the request's form or on the moment, not on the route."""
_OF_REQUIREMENTS = re.compile(r" \(S\d-\d+\)")
"""Numbers of requirements, which say nothing to a reader of the page."""
_OF_64_BITS = 2**63 - 1


class _Unasked:
    """Stands where a coordinator is asked; the routes alone are looked at."""

    def __getattr__(self, name: str) -> Any:
        return self


def document() -> str:
    """The whole text, ending in a line break."""
    app = build_app(cast(CoordinatorView, _Unasked()), tokens=Tokens("read"), hosts=frozenset())
    found = openapi_document(app.routes)
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    ]
    rows = [
        f"| `{request}` | {_token(operation)} | {_summary(operation)} |" for request, operation in operations
    ]
    parts = [
        _HEAD + "\n".join(rows),
        "## Answers",
        _answers(operations),
        _everywhere(operations),
        _DOCUMENTS,
    ]
    for name, schema in sorted(found["components"]["schemas"].items()):
        parts += _schema(name, schema)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _token(operation: Mapping[str, Any]) -> str:
    needed = [name for one in operation["security"] for name in one]
    return _TOKENS[needed[0]] if needed else "none"


def _summary(operation: Mapping[str, Any]) -> str:
    sent = _content(operation.get("requestBody", {}))
    answer = _content(operation["responses"]["200"])
    words = operation["summary"]
    if sent:
        words += f"; sends {sent}"
    return f"{words}; answered by {answer}" if answer else words


def _content(holder: Mapping[str, Any]) -> str:
    schema = holder.get("content", {}).get("application/json", {}).get("schema")
    return _type(schema) if schema else ""


def _answers(operations: list[tuple[str, Mapping[str, Any]]]) -> str:
    rows = [
        f"| `{request}` | {status} | {answer['description']} |"
        for request, operation in operations
        for status, answer in operation["responses"].items()
        if status != "200" and (status not in _EVERYWHERE or "application/json" not in answer["content"])
    ]
    return "\n".join(["Besides 200:", "", "| request | status | why |", "|---|---|---|", *rows])


def _everywhere(operations: list[tuple[str, Mapping[str, Any]]]) -> str:
    why = {
        status: answer["description"].partition(":")[0]
        for _, operation in operations
        for status, answer in operation["responses"].items()
        if status in _EVERYWHERE and "application/json" in answer["content"]
    }
    rows = [f"| {status} | {why[status]} |" for status in sorted(why)]
    return "\n".join(["On every route that can have it:", "", "| status | why |", "|---|---|", *rows])


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if described := schema.get("description"):
        yield _sentence(_OF_REQUIREMENTS.sub("", inspect.cleandoc(described)))
    if fields := schema.get("properties"):
        required = schema.get("required", ())
        rows = [
            f"| `{field}` | {_type(one)} | {_default(one, is_required=field in required)} |"
            for field, one in fields.items()
        ]
        yield "\n".join(["| field | type | default |", "|---|---|---|", *rows])
    elif (
        "enum" in schema or "additionalProperties" in schema or schema.get("type") == "array" or not described
    ):
        yield _sentence(_type(schema))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _default(schema: Mapping[str, Any], *, is_required: bool) -> str:
    if is_required:
        return "required"
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words, with a link to the document that it is."""
    if name := schema.get("$ref", "").removeprefix("#/components/schemas/"):
        document, *below = name.split("/")
        words = f"[{document}](#{document.lower()})"
        return f"`{below[-1]}` of {words}" if below else words
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    if schema.get("type") == "object":
        inside = schema.get("additionalProperties")
        return f"object of {_type(inside)}" if isinstance(inside, dict) else "object"
    return f"{schema.get('type', 'any value')}{_limits(schema)}"


def _limits(schema: Mapping[str, Any]) -> str:
    """Limits that are ours; those of a 64 bit integer go without saying."""
    words = []
    if schema.get("maximum", _OF_64_BITS) < _OF_64_BITS:
        words.append(f"from {schema['minimum']} to {schema['maximum']}")
    if "maxLength" in schema:
        words.append(f"of {schema['maxLength']} characters at most")
    return "".join(f" {word}" for word in words)


if __name__ == "__main__":
    sys.stdout.write(document())
