"""An HTTP server whose answers are written byte by byte by the test: cut off, slow, or no HTTP at all."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CERTIFICATE = Path(__file__).with_name("loopback.pem")
"""Of 127.0.0.1, with its key; signed by itself."""
Answer = Callable[["Request"], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Request:
    """The first line of a request, and its credentials."""

    method: str
    path: str
    authorization: str = ""


@dataclass(slots=True)
class RawServer:
    """Where it listens, what it was asked, and how it answers from now on."""

    url: str
    answer: Answer
    asked: list[Request] = field(default_factory=list)


def reply(status: int, body: bytes, *headers: str, length: int | None = None) -> list[bytes]:
    """A whole answer in one piece, whose length may be a lie."""
    stated = len(body) if length is None else length
    lines = (f"HTTP/1.1 {status} it", f"Content-Length: {stated}", "Connection: close", *headers, "", "")
    return ["\r\n".join(lines).encode() + body]


def document(value: Any, status: int = 200) -> list[bytes]:
    """A JSON document."""
    return reply(status, json.dumps(value).encode(), "Content-Type: application/json")


@contextmanager
def raw_server(*, tls: bool = False, asks_certificate: bool = False) -> Iterator[RawServer]:
    """A server on loopback, which answers 500 until it is told how; it may ask clients for that certificate."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            method, path, *_ = [*self.rfile.readline(65536).decode("latin-1").split(), "", ""]
            length, authorization = 0, ""
            while (line := self.rfile.readline(65536).strip()) != b"":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
                if name.lower() == b"authorization":
                    authorization = value.strip().decode("latin-1")
            self.rfile.read(length)
            made.asked.append(Request(method, path, authorization))
            with suppress(OSError):  # the client has had enough
                for piece in made.answer(made.asked[-1]):
                    self.wfile.write(piece)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, *_: Any) -> None:
            """Say nothing of clients that go."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            if asks_certificate:
                context.load_verify_locations(CERTIFICATE)
                context.verify_mode = ssl.CERT_REQUIRED
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https" if tls else "http"
        made = RawServer(f"{scheme}://127.0.0.1:{server.server_address[1]}", lambda _: reply(500, b"not yet"))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
