"""A receiver of spans by OTLP over HTTP that a test can break, with OpenTelemetry's own classes of the protocol."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it arrived. `process` is its service.instance.id, and `links` are the traces that it names."""

    service: str
    process: str
    name: str
    trace: str
    id: str
    parent: str
    began_ms: float
    ended_ms: float
    attributes: dict[str, object]
    links: list[str]
    error: str


class OtlpReceiver:
    """Listens while it is entered. What it answers is `status`; without `answers` it hangs."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.authorizations: set[str] = set()
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()
        self.requests = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                receiver.answers.wait(60)
                if receiver.status == 200:
                    receiver.take(self.path, self.headers.get("Authorization", ""), body)
                self.send_response(receiver.status)
                self.send_header("Content-Type", "application/x-protobuf")
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, path: str, authorization: str, body: bytes) -> None:
        """Decode a request."""
        assert path == "/v1/traces", path
        self.authorizations.add(authorization)
        for of_process in ExportTraceServiceRequest.FromString(body).resource_spans:
            who = {one.key: one.value.string_value for one in of_process.resource.attributes}
            for scope in of_process.scope_spans:
                for span in scope.spans:
                    said = {
                        one.key: getattr(one.value, str(one.value.WhichOneof("value")))
                        for one in span.attributes
                    }
                    self.spans.append(
                        ReceivedSpan(
                            who["service.name"],
                            who["service.instance.id"],
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano / 1e6,
                            span.end_time_unix_nano / 1e6,
                            said,
                            [link.trace_id.hex() for link in span.links],
                            span.status.message,
                        )
                    )

    def named(self, name: str) -> list[ReceivedSpan]:
        """The spans of this name that have arrived."""
        return [span for span in list(self.spans) if span.name == name]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
