"""Where a processor runs (Samza's ProcessorLocality)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessorLocality:
    """A processor's host, and the two JMX URLs that Samza keeps beside it; None where a writer left it out."""

    id: str | None
    host: str | None
    jmx_url: str | None = ""
    jmx_tunneling_url: str | None = ""
