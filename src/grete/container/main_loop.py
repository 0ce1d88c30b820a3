"""Container main loop: fetch the assignment, run it until interrupted (barrier, new one, stop), report the end.

The assignment comes over HTTP (never from the coordinator stream); locality is written to the stream. A coordinator
that dies changes nothing: processing goes on, the fence of each commit decides who may write, and the next
coordinator is found through the coordinator stream.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from grete.clock import SystemClock
from grete.config.paths import absolute_paths, working_folder
from grete.config.settings import Settings
from grete.config.settings.coordinator import is_loopback
from grete.container.assignment import Assignment, parse_assignment
from grete.container.control import Control, Ended
from grete.container.heartbeat import HeartbeatSender, Reactions
from grete.container.lifecycle import ContainerLifecycle, Fetch, Locate, Step, WaitAt, WaitForAnswer, Work
from grete.container.metrics import ContainerMetrics
from grete.container.prefetched_assignment import PrefetchedAssignment
from grete.diagnostics.metrics_reporter import MetricsReporters
from grete.diagnostics.streams import container_name
from grete.diagnostics.traces import Tracer
from grete.environment import HOST_NAME
from grete.errors import ConfigError, GreteError, WireError
from grete.http_client import JobCoordinatorClient
from grete.metadata.access import open_coordinator_stream
from grete.metadata.channels import read_channel
from grete.metadata.job_state import read_state
from grete.metadata.locality import LocalityManager
from grete.model.ending import ContainerEnd, ExitCode, exit_code, failure_of
from grete.model.ids import JobId
from grete.private_files import private_directory
from grete.tasks.commit.base import BatchOutcome
from grete.text_logs import log_as, shortened
from grete.wire.container_protocol import ContainerEnvironment, Directive, ReportedEnd
from grete.wire.metric_values import ReportedMetrics
from grete.wire.traces import TraceContext

_log = logging.getLogger("grete.container")

OnBatch = Callable[[int, BatchOutcome], None]
"""Called after each batch with its id and what it did."""
OnState = Callable[[str], None]
"""Called with the state of each report to the coordinator, from the container's thread."""
RunAssignment = Callable[[Assignment, Control, OnBatch], Ended]
"""Runs one query until it is drained, interrupted, or shut down by a task."""


class ContainerMainLoop:
    """Runs `work` for every assignment, from the first to the end."""

    def __init__(
        self,
        environment: Mapping[str, str],
        stop: threading.Event,
        work: RunAssignment,
        on_state: OnState = lambda state: None,
        on_assigned: Callable[[Assignment], None] = lambda assignment: None,
    ) -> None:
        """`on_assigned` is called with the first assignment, before anything is written or fenced for it."""
        self._work = work
        self._on_assigned = on_assigned
        self._on_state = on_state
        given = ContainerEnvironment.of(environment)
        self._id, self._epoch, self._home = given.container_id, given.epoch, given.home
        self._launched_in = working_folder()  # the coordinator's folder, which the container leaves (`enter`)
        self._coordinator_url = given.coordinator_url
        self._coordinator = Settings.of(absolute_paths(given.coordinator_system(), self._launched_in))
        self._stop = stop
        self._control = Control(stop)
        self._control.on_at_work = self._at_work
        self._starts: tuple[int, str] | None = SystemClock().wall_ms(), given.trace
        self._ahead = PrefetchedAssignment(self._get_assignment)
        self._job: JobId | None = None
        self._folder: Path | None = None
        self._found: tuple[str, int] | None = None
        reactions = Reactions(
            self._on_directive,
            _keep_on if given.is_thread else _end_process,
            self._stop.set,
            self._find_coordinator,
        )
        self._is_reached_by_channel = bool(given.channel)
        client = self._first_client(given)
        self._metrics = ContainerMetrics(self._id, SystemClock())
        self._control.on_progress = self._metrics.add_engine
        self._control.on_outputs = lambda streams: self._report(outputs=streams)
        self._reporters = MetricsReporters(self._metrics.snapshot, since_ms=SystemClock().wall_ms())
        self._tracer: Tracer | None = None
        self._sender = HeartbeatSender(
            client, self._id, self._epoch, reactions, metrics=self._reported_metrics
        )
        self._course = ContainerLifecycle(self._id, self._epoch, self._control, self._report)

    def _first_client(self, given: ContainerEnvironment) -> JobCoordinatorClient:
        if not self._is_reached_by_channel:
            return JobCoordinatorClient(given.coordinator_url, given.token_file)
        with open_coordinator_stream(self._coordinator, self._coordinator.job.id, self._home) as stream:
            return JobCoordinatorClient(given.coordinator_url, None, channel=read_channel(stream))

    def _report(self, **changed: Any) -> None:
        self._sender.report(**changed)
        if "state" in changed:
            self._on_state(changed["state"])

    def _at_work(self) -> None:
        self._report(state="running")
        starts, self._starts = self._starts, None
        if starts is not None and self._tracer is not None:
            self._trace("start", starts[0], parent=TraceContext.parse(starts[1]))

    def _reported_metrics(self) -> ReportedMetrics:
        if self._tracer is not None:
            self._metrics.add_engine(self._tracer.metrics)
        return self._metrics.reported()

    def _on_directive(self, directive: Directive) -> None:
        self._control.on_directive(directive)
        if (serial := self._control.next_serial) is not None and self._job is not None:
            self._ahead.begin(serial)

    def _get_assignment(self) -> Any:
        return self._sender.client.get(f"/api/v1/containers/{self._id}")

    def run(self) -> ContainerEnd:
        """See `grete.spark.container.run_container`."""
        try:
            _refuse_elsewhere(self._coordinator_url)
        except ConfigError as error:
            _log.error("container %s: %s", self._id, error)
            return ContainerEnd(exit_code(error), failure_of(error))
        self._sender.start()
        try:
            end = self._take_all_steps()
            self._report(end=ReportedEnd.of(end))
            return end
        finally:
            self._sender.close()
            self._reporters.close()
            if self._tracer is not None:
                self._tracer.close()

    def _take_all_steps(self) -> ContainerEnd:
        try:
            ended = self._take_steps()
        except GreteError as error:
            _log.error("container %s: %s", self._id, error)
            self._report(state="failed", message=shortened(str(error), 2000))
            return ContainerEnd(exit_code(error, has_worked=self._course.has_committed), failure_of(error))
        return ContainerEnd(ExitCode.STOPPED if ended is Ended.INTERRUPTED else ExitCode.OK)

    def _take_steps(self) -> Ended:
        steps = self._course.steps()
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._take(step)
                except GreteError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            ended: Ended = end.value
            return ended

    def _take(self, step: Step) -> Assignment | Ended | None:
        match step:
            case Fetch():
                return self._fetch()
            case Locate(assignment):
                self._on_assigned(assignment)
                self._write_locality(assignment)
            case Work(assignment):
                self._measure(assignment)
                return self._worked(assignment)
            case WaitForAnswer(timeout_s):
                self._control.pause(timeout_s)
            case WaitAt(barrier, timeout_s):
                self._sender.report_now()
                self._control.wait_at(barrier, timeout_s)
        return None

    def _measure(self, assignment: Assignment) -> None:
        self._metrics.keep({task.name for task in assignment.tasks})
        name = container_name(assignment.container_id)
        self._reporters.start(assignment.settings, assignment.job, name, self._home)
        if self._tracer is None:
            self._tracer = _tracer(assignment.settings, assignment.job, name)

    def _worked(self, assignment: Assignment) -> Ended:
        began_ms = SystemClock().wall_ms()
        try:
            return self._work(assignment, self._control, self._on_batch)
        except GreteError as error:
            self._trace("failure", began_ms, error=shortened(str(error), 2000))
            raise

    def _trace(
        self, name: str, began_ms: int, *, parent: TraceContext | None = None, error: str = ""
    ) -> None:
        assert self._tracer is not None, "it was made before the work"
        said = {"grete.container.epoch": self._epoch}
        self._tracer.span(name, began_ms, SystemClock().wall_ms(), said, parent=parent, error=error)

    def _note_traces(self, outcome: BatchOutcome) -> None:
        assert self._tracer is not None, "it was made before the work"
        self._tracer.batches(outcome.traced)
        if outcome.traced:
            self._report(trace=outcome.traced[-1].trace_id)
        if outcome.rewound_ms is not None:
            self._trace("rewind", outcome.rewound_ms)

    def _on_batch(self, batch_id: int, outcome: BatchOutcome) -> None:
        self._metrics.add(outcome)
        self._note_traces(outcome)
        self._course.on_batch(batch_id, outcome)

    def _fetch(self) -> Assignment:
        document = self._ahead.take(self._control.next_serial) or self._get_assignment()
        assignment = parse_assignment(document, self._launched_in)
        self._job = assignment.job
        log_as(job=assignment.job.shown)
        self._folder = assignment.state_directory(self._home).parent.resolve()
        self._sender.orphan_s = assignment.settings.coordinator.orphan_s
        self._sender.silent_s = assignment.settings.coordinator.container_silent_s
        return assignment

    def _write_locality(self, assignment: Assignment) -> None:
        """Append set-container-host-assignment for this container (S1-18)."""
        with open_coordinator_stream(self._coordinator, assignment.job, self._home) as stream:
            host = os.environ.get(HOST_NAME) or socket.gethostname()
            LocalityManager(stream).write_locality(assignment.container_id, host)

    def _find_coordinator(self) -> JobCoordinatorClient | None:
        """A coordinator that has taken over writes its address into the coordinator stream.

        With job.http.port it may be the address of the one before; its token is another all the same. One whose
        token is not there (it has ended, or begins) is none yet, and is looked for again.
        """
        if self._job is None:
            return None
        try:
            with open_coordinator_stream(self._coordinator, self._job, self._home) as stream:
                state = read_state(stream)
                channel = None if state is None else read_channel(stream, state.epoch)
        except GreteError as error:
            if error.may_pass:
                raise
            _log.warning("the coordinator stream can not be read: %s", error)
            return None
        if state is None or not state.url or (state.url, state.epoch) == self._found:
            return None
        try:
            if self._is_reached_by_channel and channel is not None:
                client = JobCoordinatorClient(state.url, None, channel=channel)
            else:
                client = self._client_at(state.url, Path(state.token_file))
        except (OSError, WireError) as error:
            _log.debug("the coordinator at %.200r can not be asked: %s", state.url, error)
            return None
        _log.info("the coordinator is at %s now", state.url)
        self._found = (state.url, state.epoch)
        return client

    def _client_at(self, url: str, token_file: Path) -> JobCoordinatorClient:
        """A client of the leader that the stream names. Others may write there: it has to be of this machine and job.

        Raises:
            OSError: the token's file cannot be read.
            WireError: the address is none of this machine's, or the file is not in the job's folder.
        """
        try:
            host = urlsplit(url).hostname or ""
        except ValueError as error:
            raise WireError(f"no address: {error}") from error
        if not is_loopback(host):
            raise WireError("it is not on this machine")
        if token_file.resolve().parent != self._folder:
            raise WireError(f"its token is not in {self._folder}")
        return JobCoordinatorClient(url, token_file)


def _tracer(settings: Settings, job: JobId, process: str) -> Tracer:
    """The tracer of the configuration; none where it cannot be had: a job does not stand still for its traces."""
    try:
        return Tracer.of(settings, job, process)
    except GreteError as error:
        _log.warning("nothing of this container is traced: %s", error)
        return Tracer()


def _refuse_elsewhere(coordinator_url: str) -> None:
    """A container has its coordinator's token from a file, and speaks to it by HTTP without TLS.

    Raises:
        ConfigError: the coordinator is on another machine.
    """
    host = urlsplit(coordinator_url).hostname or ""
    if not is_loopback(host):
        raise ConfigError(
            f"the coordinator at {coordinator_url} is on another machine: a container runs on its coordinator's, and "
            f"executors on those of the cluster. Start the coordinator where the container shall run"
        )


def enter(assignment: Assignment, home: Path) -> None:
    """Work in the job's own folder: that of the application's modules, wherever the coordinator was started.

    Without one, or where it is an archive, it is `work` beside the containers' folders.

    Raises:
        ConfigError: the application's folder is not there, or may not be entered.
    """
    named = assignment.settings.job.application_path
    folder = Path(named) if named else None
    if folder is None or folder.is_file():
        folder = assignment.state_directory(home).parent / "work"
        private_directory(folder)
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(f"containers work in the folder of job.application.path: {error}") from error


def _end_process() -> None:
    """The coordinator knows a newer incarnation: end at once, whatever Spark is doing."""
    os._exit(ExitCode.FENCED)


def _keep_on() -> None:
    """The process is the coordinator's own; the fence of its next commit ends the thread."""
