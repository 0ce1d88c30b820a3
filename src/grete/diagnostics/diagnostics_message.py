"""A message of the diagnostics stream: the header and groups of Samza's DiagnosticsStreamMessage, as plain JSON.

Samza 1.8 writes the same document with Jackson's type tags (MetricsSnapshotSerdeV2); its older serde without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grete.wire.metric_values import CONTAINER_GROUP

_MANAGER = "org.apache.samza.diagnostics.DiagnosticsManager"


@dataclass(frozen=True, slots=True)
class Header:
    """The sender of a message, and the start of its process."""

    job_name: str
    job_id: str
    container_name: str
    host: str
    version: str
    epoch_id: str = ""
    reset_time_ms: int = 0

    def document(self, source: str, time_ms: int) -> dict[str, Any]:
        """In Samza's field names; `source` is what of the process the message is about."""
        return {
            "job-name": self.job_name,
            "job-id": self.job_id,
            "container-name": self.container_name,
            "exec-env-container-id": "",
            "samza-epoch-id": self.epoch_id,
            "source": source,
            "version": self.version,
            "samza-version": "",
            "host": self.host,
            "time": time_ms,
            "reset-time": self.reset_time_ms,
        }


@dataclass(frozen=True, slots=True)
class ExceptionEvent:
    """Samza's DiagnosticsExceptionEvent."""

    timestamp_ms: int
    type: str
    message: str
    stack: str
    mdc: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """In Samza's field names."""
        return {
            "timestamp": self.timestamp_ms,
            "exceptionType": self.type,
            "exceptionMessage": self.message,
            "compactExceptionStackTrace": self.stack,
            "mdcMap": dict(self.mdc),
        }


@dataclass(frozen=True, slots=True)
class ProcessorStopEvent:
    """Samza's ProcessorStopEvent; `reason` is ours."""

    processor_id: str
    resource_id: str
    host: str
    exit_status: int
    reason: str = ""

    def document(self) -> dict[str, Any]:
        """In Samza's field names."""
        return {
            "processorId": self.processor_id,
            "resourceId": self.resource_id,
            "host": self.host,
            "exitStatus": self.exit_status,
            "reason": self.reason,
        }


def diagnostics_message(
    header: Header,
    time_ms: int,
    *,
    exceptions: Sequence[ExceptionEvent] = (),
    stops: Sequence[ProcessorStopEvent] = (),
    start: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document. `start` holds what is said once, when a process starts: its configuration and parameters."""
    manager: dict[str, Any] = dict(start or {})
    if stops:
        manager["stopEvents"] = [event.document() for event in stops]
    metrics: dict[str, Any] = {_MANAGER: manager} if manager else {}
    if exceptions:
        metrics[CONTAINER_GROUP] = {"exceptions": [event.document() for event in exceptions]}
    return {"header": header.document(_MANAGER, time_ms), "metrics": metrics}


def with_type_tags(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as Samza's MetricsSnapshotSerdeV2 writes it: what is in its fields has Jackson's type tags."""
    return {name: _tagged(value) for name, value in document.items()}


def _tagged(value: Any) -> Any:
    if isinstance(value, dict):
        return ["java.util.HashMap", {name: _tagged(one) for name, one in value.items()}]
    if isinstance(value, int) and not isinstance(value, bool):
        return ["java.lang.Long", value]
    return value
