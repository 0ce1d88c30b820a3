"""Spans of what a process does, for receivers of OpenTelemetry's.

They are made and sent by a thread of their own, from a bounded buffer: a receiver that hangs or refuses costs spans,
which are counted, and never a batch.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grete import __version__
from grete.config.settings import Settings
from grete.diagnostics.background_writer import BackgroundWriter
from grete.diagnostics.streams import redactor_of
from grete.errors import StreamError
from grete.extras import require
from grete.model.ids import JobId
from grete.wire.metric_values import Count, Metrics
from grete.wire.traces import TraceContext, TracedBatch

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_GROUP = "traces"
_LIMIT = 2_048
"""Spans held at most, as OpenTelemetry's own processor holds."""
_TIMEOUT_S = 5.0
_CLOSE_S = 2.0
"""A process ends so much later at most, for the sake of its last spans."""

Attributes = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class FinishedSpan:
    """A span that is over, times by the clock on the wall. An `error` says why what it spans has failed."""

    name: str
    context: TraceContext
    began_ms: float
    ended_ms: float
    attributes: Attributes
    parent: TraceContext | None = None
    links: Sequence[TraceContext] = ()
    error: str = ""


class Tracer:
    """Takes spans from any thread, and never waits. Without a receiver it takes none."""

    def __init__(
        self, writer: BackgroundWriter[FinishedSpan] | None = None, hide: Callable[[str], str] = str
    ) -> None:
        """`hide` masks secrets in texts."""
        self._writer = writer
        self._hide = hide

    @classmethod
    def of(cls, settings: Settings, job: JobId, process: str) -> Tracer:
        """One for a process of the job, by its name.

        Raises:
            MissingExtra: the extra `otel` is not installed.
            ConfigError: a setting is wrong.
        """
        traces = settings.traces
        if traces.endpoint is None:
            return cls()
        require("otel")
        url, headers = traces.url, traces.headers
        writer: BackgroundWriter[FinishedSpan] = BackgroundWriter(
            lambda: _Receiver(url, headers, job, process), name="grete traces", limit=_LIMIT
        )
        return cls(writer, redactor_of(settings.raw).everything)

    @property
    def is_on(self) -> bool:
        """Whether there is a receiver."""
        return self._writer is not None

    @property
    def metrics(self) -> Metrics:
        """How many spans were sent, and how many were lost."""
        if self._writer is None:
            return {}
        counts = {"spans-sent": self._writer.written, "spans-lost": self._writer.dropped}
        return {_GROUP: {name: Count(value, is_set=True) for name, value in counts.items()}}

    def span(
        self,
        name: str,
        began_ms: float,
        ended_ms: float,
        attributes: Attributes,
        *,
        context: TraceContext | None = None,
        parent: TraceContext | None = None,
        links: Sequence[TraceContext] = (),
        error: str = "",
    ) -> TraceContext:
        """Take a span that is over; returns how those below it name it, which is `context` where `begin` gave one."""
        if context is None:
            context = self.begin(parent)
        if self._writer is not None and context.is_sampled:
            said = {
                key: self._hide(value) if isinstance(value, str) else value
                for key, value in attributes.items()
            }
            failed = self._hide(error) if error else ""
            self._writer.offer(FinishedSpan(name, context, began_ms, ended_ms, said, parent, links, failed))
        return context

    def begin(self, parent: TraceContext | None = None, trace_id: int | None = None) -> TraceContext:
        """How those below a span name it before it is over. Without a parent it begins a trace."""
        if parent is not None:
            trace_id = parent.trace_id
        elif trace_id is None:
            trace_id = random.getrandbits(128) or 1
        return TraceContext(trace_id, random.getrandbits(64) or 1, parent is None or parent.is_sampled)

    def batches(self, traced: Iterable[TracedBatch]) -> None:
        """Take the span of each batch, with that of its commit, and links to the traces of its records."""
        for batch in traced:
            links = [link for text in batch.links if (link := TraceContext.parse(text)) is not None]
            said = {"grete.batch.id": batch.batch_id, "grete.batch.records": batch.records}
            whole = self.begin(trace_id=int(batch.trace_id, 16))
            self.span("batch", batch.began_ms, batch.ended_ms, said, context=whole, links=links)
            began_ms = batch.ended_ms - 1000 * batch.commit_s
            self.span("commit", max(batch.began_ms, began_ms), batch.ended_ms, said, parent=whole)

    def close(self) -> None:
        """Send what is left, for a moment, and end."""
        if self._writer is not None:
            self._writer.close(_CLOSE_S)


class _Receiver:
    """Sends spans by OTLP over HTTP. OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_CERTIFICATE`, ...) hold."""

    def __init__(self, url: str, headers: Mapping[str, str], job: JobId, process: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        # what cannot be sent is said once, and counted: the exporter would say it of each second of an outage
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(endpoint=url, headers=headers, timeout=_TIMEOUT_S)
        self._url = url
        self._success = SpanExportResult.SUCCESS
        self._resource = Resource.create(
            {
                "service.name": job.shown,
                "service.instance.id": process,
                "grete.version": __version__,
            }
        )
        self._scope = InstrumentationScope("grete", __version__)

    def write(self, records: Sequence[FinishedSpan]) -> None:
        """Send them.

        Raises:
            StreamError: they were not taken.
        """
        for first in range(0, len(records), _LIMIT):
            made = [self._made(span) for span in records[first : first + _LIMIT]]
            if self._exporter.export(made) is not self._success:
                raise StreamError(f"{self._url} takes no spans")

    def _made(self, span: FinishedSpan) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Link
        from opentelemetry.trace.status import Status, StatusCode

        status = Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET)
        return ReadableSpan(
            span.name,
            context=_context(span.context),
            parent=None if span.parent is None else _context(span.parent),
            resource=self._resource,
            attributes=dict(span.attributes),
            links=[Link(_context(link)) for link in span.links],
            status=status,
            start_time=round(span.began_ms * 1e6),
            end_time=round(max(span.began_ms, span.ended_ms) * 1e6),
            instrumentation_scope=self._scope,
        )

    def close(self) -> None:
        """End a request that hangs, and its connections."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


def _context(of: TraceContext) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(of.trace_id, of.span_id, is_remote=False, trace_flags=TraceFlags(int(of.is_sampled)))
