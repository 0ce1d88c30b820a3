"""Keys of traces: where spans go."""

from __future__ import annotations

from grete.config.key import TEXT, ChangeClass, Key, bounded

_CONTAINER = ChangeClass.RESTART_CONTAINER

ENDPOINT = Key(
    "job.traces.endpoint",
    TEXT,
    None,
    _CONTAINER,
    "A receiver of OpenTelemetry's spans by OTLP over HTTP, as `http://collector:4318`; `/v1/traces` is added where "
    "no path is named. Without it nothing is traced.",
)
HEADERS = Key(
    "job.traces.headers",
    TEXT,
    None,
    _CONTAINER,
    "Headers for the receiver, as `name=value` separated by commas; written `${env:NAME}` or `${file:PATH}`.",
    is_secret=True,
)
PERCENT = Key(
    "job.traces.percent",
    bounded("a percentage", 0, 100),
    "100",
    _CONTAINER,
    "So many batches of a hundred are traced. What an operator does, and what the coordinator does, always is.",
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
