"""One run of OpenLineage for a job: what it reads and writes, and how far its commits are.

The receiver is the one that `spark.openlineage.transport.*` names, as OpenLineage's listener has it: one
configuration for both. Events are sent by a thread of their own, so that a receiver that does not answer delays
nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from grete import __version__
from grete.config.secrets import resolve_secrets
from grete.config.settings import Settings
from grete.diagnostics.background_writer import BackgroundWriter
from grete.diagnostics.streams import redactor_of
from grete.extras import require
from grete.model.ids import JobId

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

_log = logging.getLogger("grete.coordinator")
_PRODUCER = f"grete {__version__}"
_LIMIT = 100
_PROPERTIES = "properties."
"""Of a Kafka client, whose names have dots."""
_CLOSE_S = 5.0
_LONGEST_MESSAGE = 2_000


class Dataset(NamedTuple):
    """A stream or table by OpenLineage's naming, so that other programs' events mean the same one."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class LineageEvent:
    """What an event says. `kind` is START, RUNNING, COMPLETE or FAIL; of inputs the offset that is read next, by
    partition; `message` is why the run has failed.
    """

    kind: str
    inputs: Mapping[Dataset, Mapping[str, str]] = field(default_factory=dict)
    outputs: Sequence[Dataset] = ()
    message: str = ""


class LineageReporter:
    """Sends the events of one run of the job. Never waits, but for the last one at its end."""

    def __init__(
        self,
        transport: Mapping[str, Any],
        namespace: str,
        job: JobId,
        run_id: str,
        hide: Callable[[str], str],
    ) -> None:
        """`transport` is what OpenLineage's client is configured with; `hide` masks secrets in texts.

        Raises:
            MissingExtra: the extra `lineage` is not installed.
        """
        require("lineage")
        run = _uuid(run_id)
        self._hide = hide
        self._writer: BackgroundWriter[tuple[str, LineageEvent]] = BackgroundWriter(
            lambda: _Client(transport, namespace, job, run), name="grete lineage", limit=_LIMIT
        )

    def send(self, report: LineageEvent) -> None:
        """Send an event, sooner or later."""
        self._writer.offer(
            (
                datetime.now(UTC).isoformat(timespec="milliseconds"),
                replace(report, message=self._hide(report.message)),
            )
        )

    def close(self) -> None:
        """Send what is left, for a moment, and end."""
        if not self._writer.close(_CLOSE_S):
            _log.warning("OpenLineage may lack the last event of this job's run: no answer in %g s", _CLOSE_S)


def reporter_of(settings: Settings, job: JobId, run_id: str) -> LineageReporter | None:
    """That of a job whose configuration names a receiver of lineage.

    Raises:
        MissingExtra: see LineageReporter.
        ConfigError: a reference cannot be resolved.
    """
    spark = settings.spark
    receiver = spark.lineage_receiver
    if not receiver:
        return None
    hide = redactor_of(settings.raw).everything
    return LineageReporter(client_transport(receiver), spark.lineage_namespace, job, run_id, hide)


def client_transport(receiver: Mapping[str, str]) -> dict[str, Any]:
    """A receiver in the words of OpenLineage's Java client, which its listener has, in those of Python's.

    Raises:
        ConfigError: a reference cannot be resolved.
    """
    made: dict[str, Any] = {}
    for key, text in sorted(receiver.items()):
        place = made
        *above, last = key.split(".") if not key.startswith(_PROPERTIES) else key.split(".", 1)
        for part in above:
            place = place.setdefault(part, {})
        place[last] = resolve_secrets(text).strip()
    if "timeoutInMillis" in made:
        made["timeout"] = float(made.pop("timeoutInMillis")) / 1000
    if "location" in made:
        made |= {"log_file_path": made.pop("location"), "append": True}
    if "topicName" in made:
        made |= {"topic": made.pop("topicName"), "config": made.pop("properties", {})}
    return made


def _uuid(run_id: str) -> str:
    """A run's number as OpenLineage has it; the same for the coordinators that follow one another in it."""
    try:
        return str(uuid.UUID(hex=run_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, run_id))


class _Client:
    """OpenLineage's own client. Used by one thread."""

    def __init__(self, transport: Mapping[str, Any], namespace: str, job: JobId, run_id: str) -> None:
        from openlineage.client import OpenLineageClient

        self._client = OpenLineageClient(config={"transport": dict(transport)})
        self._namespace = namespace
        self._job = job
        self._run_id = run_id

    def write(self, records: Sequence[tuple[str, LineageEvent]]) -> None:
        """Send them."""
        for at, report in records:
            self._client.emit(self._event(at, report))

    def _event(self, at: str, report: LineageEvent) -> RunEvent:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import DatasetFacet, error_message_run, job_type_job

        facets: dict[str, Any] = {}
        if report.message:
            said = report.message[:_LONGEST_MESSAGE]
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=said, programmingLanguage="python"
            )
        kind = job_type_job.JobTypeJobFacet(processingType="STREAMING", integration="GRETE", jobType="JOB")
        inputs = []
        for (namespace, name), offsets in report.inputs.items():
            offset_facet: Any = DatasetFacet().with_additional_properties(nextOffsets=dict(offsets))
            known = {"grete_offsets": offset_facet} if offsets else {}
            inputs.append(InputDataset(namespace, name, facets=known))
        return RunEvent(
            eventTime=at,
            producer=_PRODUCER,
            eventType=RunState[report.kind],
            run=Run(self._run_id, facets),
            job=Job(self._namespace, self._job.shown, {"jobType": kind}),
            inputs=inputs,
            outputs=[OutputDataset(*one) for one in report.outputs],
        )

    def close(self) -> None:
        """Let its connections go."""
        self._client.close()
