"""A receiver of spans has an address that can be used, before a job is started with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config.key_tables.traces import ENDPOINT
from grete.config.settings.traces import TraceSettings
from grete.errors import ConfigError


def trace_problems(config: Mapping[str, str]) -> Iterator[str]:
    """What keeps spans from their receiver, whatever it does."""
    if ENDPOINT.name in config:
        try:
            _ = TraceSettings(config).url
        except ConfigError as error:
            yield str(error)
