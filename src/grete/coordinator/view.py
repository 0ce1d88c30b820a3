"""A running coordinator as the HTTP server and the progress display show it."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from grete.channel.certificate import ends_at
from grete.checkpoint.lag import JobLag, active_tasks
from grete.clock import Clock, SystemClock
from grete.config.redact import redact
from grete.coordinator.container_service import ContainerService
from grete.coordinator.health import JobHealth, standing
from grete.coordinator.lag import RecentLag, job_lag
from grete.coordinator.metadata_manager import MetadataMetrics
from grete.coordinator.metrics import MetricFacts, in_few_series, job_metrics
from grete.coordinator.monitors.watch import Monitors
from grete.coordinator.public_address import certificate_of
from grete.coordinator.renewal import Renewal, RenewalFigures
from grete.coordinator.request_writer import RequestWriter
from grete.environment import grete_home
from grete.errors import GreteError, MissingExtra
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.metadata.quarantine import SHOWN
from grete.model.ids import JobId
from grete.model.job import JobModel
from grete.wire import job_model_json
from grete.wire.container_protocol import (
    document,
)
from grete.wire.coordinator_api import HistoryRow, Job
from grete.wire.prometheus_text import TEXT, encode

_log = logging.getLogger("grete.coordinator")
_CLOCK_WAS_SET_S = 2.0


class View:
    """Implements `server.app.CoordinatorView`. Thread-safe: the model is immutable, the rest guards itself."""

    def __init__(
        self,
        job: JobId,
        stream: CoordinatorStream,
        metrics: MetadataMetrics,
        run_id: str,
        epoch: int,
        clock: Clock | None = None,
    ) -> None:
        self._job = job
        self._encoded: tuple[JobModel, bytes] | None = None
        self._stream = stream
        self._metrics = metrics
        self._run_id = run_id
        self._epoch = epoch
        self._clock = SystemClock() if clock is None else clock
        self._wall_ahead_s = self._clock.wall_ms() / 1000 - self._clock.monotonic_s()
        self._home = grete_home()
        self._lag = RecentLag(self._measure_lag, self._clock)
        self.monitors: Monitors | None = None
        self.renewal: Renewal | None = None
        self.problem = ""
        self.sizing = ""
        self.containers = ContainerService(job, stream, run_id, self._clock)
        self.requests = RequestWriter(stream, epoch, self.containers)

    def job_model_document(self) -> bytes:
        """See CoordinatorView. Secrets are masked in the configuration it carries."""
        _, model = self.containers.serving()
        if self._encoded is None or self._encoded[0] is not model:
            shown = JobModel(redact(model.config), model.containers, model.max_changelog_partitions)
            self._encoded = (model, job_model_json.encode(shown))  # 10,000 tasks take 30 ms, for every reader
        return self._encoded[1]

    def standing(self) -> JobHealth:
        """How the job stands."""
        if self.containers.loop is None:
            return JobHealth()
        return standing(self.containers.loop.state, self.containers.container_facts(), self._clock_time)

    def _clock_time(self, at_s: float) -> str:
        """When a time of the monotonic clock is; the same words whenever it is asked, unless the clock was set."""
        ahead_s = self._clock.wall_ms() / 1000 - self._clock.monotonic_s()
        if abs(ahead_s - self._wall_ahead_s) > _CLOCK_WAS_SET_S:
            self._wall_ahead_s = ahead_s
        return f"{datetime.fromtimestamp(at_s + self._wall_ahead_s, UTC):%H:%M:%S} UTC"

    def job(self) -> Job:
        """See CoordinatorView."""
        stands = self.standing()
        state = self.containers.loop.state if self.containers.loop is not None else None
        return Job(
            job=self._job,
            state="starting" if state is None else state.phase.value,
            run_id=self._run_id,
            epoch=self._epoch,
            standing=stands.word,
            message=stands.message,
            problem=self.problem,
            sizing=self.sizing,
            metrics={name: getattr(self._metrics, name) for name in MetadataMetrics.__slots__},
            containers=self._containers(),
            quarantined=[str(one) for one in self._stream.quarantined[:SHOWN]],
            quarantined_count=self._stream.quarantined_count(),
            monitor_problems={} if self.monitors is None else dict(self.monitors.problems),
        )

    def _containers(self) -> dict[str, dict[str, Any]]:
        """The last heartbeat of each, and what its engine says of a pipeline; of one that was given up or stopped,
        with the state that was decided.
        """
        reported = {
            id_: {**document(one.heartbeat), **one.figures} for id_, one in self.containers.progress().items()
        }
        resting = {
            str(id_): {**reported.get(id_, {}), "state": why}
            for id_, why in self.containers.resting().items()
        }
        return {**reported, **resting}

    def not_ready(self) -> str:
        """See CoordinatorView."""
        if not self.containers.is_ready():
            return "the coordinator has only just started"
        return ", ".join(f"container {id_} {why}" for id_, why in self.containers.resting().items())

    def config(self) -> dict[str, str]:
        """See CoordinatorView."""
        return redact(self._stream.config())

    def history(self) -> list[dict[str, Any]]:
        """See CoordinatorView."""
        return [
            {**document(HistoryRow(row.number, row.timestamp_ms, row.event)), **row.details}
            for row in History(self._stream).rows()
        ]

    def checkpoints(self) -> dict[str, dict[str, str]]:
        """See CoordinatorView."""
        commits = self.containers.commits()
        return {
            task: {str(s): o for s, o in sorted(c.offsets.items())} for task, c in sorted(commits.items())
        }

    def lag(self) -> dict[str, Any]:
        """See CoordinatorView."""
        return self.measured_lag().document()

    def measured_lag(self) -> JobLag:
        """How far the job is behind, measured a moment ago at most.

        Raises:
            GreteError: a system does not answer.
        """
        return self._lag.get()

    def _measure_lag(self) -> JobLag:
        if self.monitors is not None:
            return self.monitors.measure_lag()
        settings, tasks = self._stream.settings(), active_tasks(self.containers.serving()[1])
        return job_lag(self._job, settings, tasks, self._home, self._clock)

    def _known_lag(self) -> JobLag | None:
        try:
            return self._lag.get()
        except GreteError as error:
            _log.warning("the lag cannot be measured: %s", error)  # the other metrics can
            return None

    def _disks(self) -> dict[str, tuple[int, int]]:
        """Of the home, and of the job's own folder, which may be elsewhere; what is not there is left out."""
        places = {"home": self._home}
        if self.containers.is_ready():
            places["job"] = self.containers.serving()[0].job.state_directory(self._job, self._home)
        found = {}
        for name, path in places.items():
            with suppress(OSError):
                usage = shutil.disk_usage(path)
                found[name] = usage.free, usage.total
        return found

    def _certificate_s(self) -> float | None:
        if not self.containers.is_ready():
            return None
        settings = self.containers.serving()[0]
        if not settings.coordinator.is_public:
            return None
        folder = settings.job.state_directory(self._job, self._home)
        try:
            end = ends_at(certificate_of(settings.coordinator, folder).certificate)
        except (OSError, ValueError, MissingExtra):  # the server goes on with the one before, and says so
            return None
        return end.timestamp() - self._clock.wall_ms() / 1000

    def metrics(self, *, each_partition: bool = True, form: str = TEXT) -> str:
        """See CoordinatorView."""
        rows = History(self._stream).rows()
        facts = MetricFacts(
            job=self._job,
            metadata=self._metrics,
            epoch=self._epoch,
            state=self.containers.loop.state if self.containers.loop is not None else None,
            container_count=self.containers.count,
            progress=self.containers.progress(),
            now_s=self._clock.monotonic_s(),
            lag=self._known_lag(),
            quarantined=self._stream.quarantined_count(),
            monitors=self.monitors,
            lease=RenewalFigures() if self.renewal is None else self.renewal.figures,
            events=[row.event for row in rows],
            exits=[row.details.get("meaning", "") for row in rows if row.event == "container-exited"],
            disks=self._disks(),
            certificate_s=self._certificate_s(),
            processors=0 if self.containers.loop is None else len(self.containers.loop.room),
        )
        families = job_metrics(facts)
        return encode(families if each_partition else in_few_series(families), form)
