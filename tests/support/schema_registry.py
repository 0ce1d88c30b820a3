"""A schema registry of the tests' own, over HTTP: what Confluent's REST interface does with Avro schemas, in memory.

Numbers are of the whole registry and grow; one schema has one number; a subject has versions. With a login it answers
401 to all others.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class RegistryServer(ThreadingHTTPServer):
    """The server, and what it has. `asked` are the requests that it answered."""

    daemon_threads = True

    def __init__(self, login: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.login = login
        self.schemas: list[Any] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, subject: str, schema: Any) -> int:
        """The schema's number, new or known."""
        with self.lock:
            if schema not in self.schemas:
                self.schemas.append(schema)
            number = self.schemas.index(schema) + 1
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_GET(self) -> None:
        match self._path():
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.server.schemas):
                self._answer(200, {"schema": json.dumps(self.server.schemas[int(number) - 1])})
            case ["subjects", subject, "versions", "latest"] if self.server.subjects.get(subject):
                newest = self.server.subjects[subject][-1]
                schema = json.dumps(self.server.schemas[newest - 1])
                self._answer(200, {"subject": subject, "id": newest, "version": 1, "schema": schema})
            case _:
                self._answer(404, {"error_code": 40401, "message": "not found"})

    def do_POST(self) -> None:
        schema = json.loads(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"])
        match self._path():
            case ["subjects", subject, "versions"]:
                self._answer(200, {"id": self.server.add(subject, schema)})
            case ["subjects", subject] if schema in [
                self.server.schemas[number - 1] for number in self.server.subjects.get(subject, [])
            ]:
                self._answer(200, {"subject": subject, "id": self.server.schemas.index(schema) + 1})
            case _:
                self._answer(404, {"error_code": 40403, "message": "Schema not found"})

    def _path(self) -> list[str]:
        self.server.asked.append(f"{self.command} {self.path}")
        return [unquote(part) for part in self.path.strip("/").split("/")]

    def _answer(self, code: int, document: Any) -> None:
        login = self.server.login
        if login is not None:
            wanted = f"Basic {base64.b64encode(login.encode()).decode()}"
            code, document = (code, document) if self.headers["Authorization"] == wanted else (401, {})
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


@contextmanager
def schema_registry(login: str | None = None) -> Iterator[RegistryServer]:
    """A registry that is empty, for as long as the block lasts."""
    with RegistryServer(login) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
