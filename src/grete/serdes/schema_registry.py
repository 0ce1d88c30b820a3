"""A client of schema registries that speak Confluent's REST interface, version 1."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import orjson

from grete.errors import GreteError, LoginRefused, StreamUnreachable, WireError
from grete.http_answers import HTTPError, PoolManager, connections, whole_answer

_TIMEOUT_S = 10.0
_AVRO = "AVRO"
_TYPE = "application/vnd.schemaregistry.v1+json"


class SchemaNotFound(GreteError):
    """The registry has no such schema or subject."""


class SchemaRegistry:
    """Asks one registry. Its connections belong to the process that first asks; each request has ten seconds."""

    def __init__(self, url: str, login: tuple[str, str] | None = None, ca_file: str | None = None) -> None:
        self.url = url
        self._login = login
        self._ca_file = ca_file
        self._client: PoolManager | None = None

    def schema(self, number: int) -> Any:
        """The schema of a number, as JSON.

        Raises:
            SchemaNotFound: the registry knows none.
            StreamUnreachable: it does not answer.
            LoginRefused: it does not let us in.
            WireError: it is no Avro schema, or one with references, which cannot be read here.
        """
        return self._avro(self._ask("GET", f"/schemas/ids/{number}", f"schema {number}"))

    def newest(self, subject: str) -> tuple[int, Any]:
        """Number and schema of the newest version of a subject.

        Raises:
            As `schema`.
        """
        found = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/latest", f"subject {subject!r}")
        return self._number(found), self._avro(found)

    def number_of(self, subject: str, schema: str) -> int:
        """The number under which a subject has this schema.

        Raises:
            As `schema`.
        """
        what = f"this schema under subject {subject!r}"
        return self._number(self._ask("POST", f"/subjects/{_quoted(subject)}", what, {"schema": schema}))

    def register(self, subject: str, schema: str) -> int:
        """Add a schema to a subject, unless it is there; its number.

        Raises:
            As `schema`; WireError as well where it does not fit the subject's other versions.
        """
        path, what = f"/subjects/{_quoted(subject)}/versions", f"subject {subject!r}"
        return self._number(self._ask("POST", path, what, {"schema": schema}))

    def _ask(self, method: str, path: str, what: str, body: Any = None) -> Mapping[str, Any]:
        try:
            response = whole_answer(
                self._connected(),
                method,
                f"{self.url}{path}",
                _TIMEOUT_S,
                document=body,
                headers=self._headers(),
            )
        except HTTPError as error:
            raise StreamUnreachable(f"the schema registry {self.url} does not answer: {error!r}") from error
        if response.status in (401, 403):
            raise LoginRefused(
                f"the schema registry {self.url} does not let us in ({response.status}): look at "
                f"serializers.registry.NAME.basic.auth.user.info"
            )
        if response.status == 404:
            raise SchemaNotFound(f"the schema registry {self.url} does not have {what}")
        if response.status >= 500 or response.status == 429:
            raise StreamUnreachable(f"the schema registry {self.url} answers {response.status} for {what}")
        try:
            found = orjson.loads(response.content)
        except orjson.JSONDecodeError as error:
            raise WireError(
                f"{self.url} answers {response.text[:100]!r}: that is no schema registry"
            ) from error
        if response.status != 200 or not isinstance(found, dict):
            raise WireError(
                f"the schema registry {self.url} refuses {what}: {response.status} {response.text[:500]}"
            )
        return found

    def _connected(self) -> PoolManager:
        if self._client is None:
            self._client = connections(ssl.create_default_context(cafile=self._ca_file))
        return self._client

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if self._login is not None:
            headers["Authorization"] = f"Basic {base64.b64encode(':'.join(self._login).encode()).decode()}"
        return headers

    def _number(self, found: Mapping[str, Any]) -> int:
        number = found.get("id")
        if not isinstance(number, int):
            raise WireError(f"the schema registry {self.url} gives no number: {str(found)[:200]}")
        return number

    def _avro(self, found: Mapping[str, Any]) -> Any:
        kind = found.get("schemaType", _AVRO)
        if kind != _AVRO or found.get("references"):
            what = "references to other schemas" if kind == _AVRO else f"the type {kind}"
            raise WireError(f"a schema of the registry {self.url} has {what}, which cannot be read here")
        try:
            return orjson.loads(found.get("schema") or "")
        except orjson.JSONDecodeError as error:
            raise WireError(
                f"the schema registry {self.url} gives no Avro schema: {str(found)[:200]}"
            ) from error


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
