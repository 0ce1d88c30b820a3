"""Requests that the OpenAPI document allows, and ones that it does not, made from the document itself."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient
from tests.unit.server.asking import headers

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BODIES = {"json": "json", "data": "content", "params": "params"}
EXAMPLES = 20
"""Of each operation that takes something, of allowed and of wrong requests."""


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_is_answered_otherwise_than_the_document_says(
    client: TestClient, mode: GenerationMode
) -> None:
    document: dict[str, Any] = client.get("/api/v1/openapi.json", headers=headers("/")).json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.generation.update(modes=[mode])
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        has_input = bool(operation.path_parameters or operation.body)
        if mode.is_positive or has_input:  # else there is nothing that could be wrong
            tried += _try(client, operation, mode, EXAMPLES if has_input else 1)
    assert tried > 5 * EXAMPLES / 2


def _try(client: TestClient, operation: Any, mode: GenerationMode, examples: int) -> int:
    tried = 0

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        nonlocal tried
        tried += 1
        case.headers.update(headers(operation.path))
        said = case.as_transport_kwargs(base_url="http://127.0.0.1")
        body = {name: said[key] for key, name in BODIES.items() if said.get(key) is not None}
        answer = client.request(said["method"], said["url"], headers=dict(said["headers"]), **body)
        case.validate_response(answer, checks=CHECKS)

    ask()
    return tried
