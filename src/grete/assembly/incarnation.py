"""One incarnation of a job's coordinator: from the election to the end of the job, or of its leadership."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from typing import Any

from grete.assembly.coordinator_traces import CoordinatorTraces
from grete.assembly.inbox import Inbox
from grete.assembly.lineage_run import LineageRun
from grete.assembly.stand_by import lead_when_free
from grete.assembly.stop_signals import Requests
from grete.assembly.submission import RunOptions, Submission
from grete.channel.address import ChannelAddress
from grete.channel.keyed_relay import KeyedRelay, listen_at
from grete.clock import SystemClock
from grete.config.choices import HttpAuthentication
from grete.config.settings import Settings
from grete.coordination.base import Leadership
from grete.coordinator.attempt import Address, Surroundings
from grete.coordinator.coordinator import (
    Begin,
    Coordinator,
    RequestedRun,
    Serve,
    Served,
    Step,
    WaitForEvents,
)
from grete.coordinator.events import Event, Tick
from grete.coordinator.figure_recorder import FigureRecorder
from grete.coordinator.monitors.watch import Monitors
from grete.coordinator.plan import Planner
from grete.coordinator.public_address import PublicAddress
from grete.coordinator.renewal import Renewal
from grete.coordinator.state import Phase
from grete.coordinator.view import View
from grete.diagnostics.observe import observed
from grete.diagnostics.open_lineage import reporter_of
from grete.diagnostics.streams import JOB_COORDINATOR
from grete.diagnostics.traces import Tracer
from grete.environment import grete_home
from grete.errors import ConfigError, GreteError, JobError, LeadershipLost, ProcessingError
from grete.failpoints import failpoint
from grete.keyed_log.base import Fence
from grete.launch.factory import LaunchContext, open_launcher
from grete.metadata.history import History
from grete.metadata.job_state import JobState, read_state
from grete.model.ending import ContainerEnd
from grete.model.fence import job_scope
from grete.model.ids import ContainerId, JobId
from grete.operations.job_stores import JobStores
from grete.pages.job_pages import JobPages
from grete.server.public import PublicServer, ServerTls, certificate_files
from grete.server.rights import RenewedToken, TokenFiles, Tokens
from grete.server.serve import HttpServer, bind, bind_beside, coordinator_server, write_tokens
from grete.text_logs import log_as

_log = logging.getLogger("grete.coordinator")
_WAITS_S = (0.1, 0.25)
"""The stream is looked at so often: the longer nothing comes, the less often. A container that ends wakes at once."""
_LONGEST_WAIT_S = 1.0
"""Where the stream tells that something was appended."""
_DONE = (Phase.FINISHED.value, Phase.STOPPED.value)
_ERRORS: dict[str, type[GreteError]] = {
    str(error.exit_code): error for error in (ConfigError, ProcessingError)
}
_LOOP_PATIENCE_S = 120.0
"""A model of 100,000 tasks takes some ten seconds to calculate and write; a loop that takes this long hangs."""


class Incarnation:
    """Submits, campaigns, coordinates. Everything opened is closed with `stack`; used once.

    `after` is the leadership of an earlier incarnation of this process, which has ended without knowing why, and
    `first_epoch` that of the first of them: what was asked of any of them is asked of this one.
    """

    def __init__(
        self,
        options: RunOptions,
        stack: ExitStack,
        signals: Requests,
        on_view: Callable[[View], None] | None,
        after: Leadership | None = None,
        first_epoch: int | None = None,
        *,
        has_stepped_down: bool = False,
    ) -> None:
        self._options = options
        self._stack = stack
        self._signals = signals
        self._on_view = on_view
        self._after = after
        self._first_epoch = first_epoch
        self._has_stepped_down = has_stepped_down
        self._home = grete_home()
        self._inbox = Inbox()
        signals.on_request = self._inbox.wake
        self._wait_s = _WAITS_S[0]
        self._clock = SystemClock()
        self._submission = Submission(options, self._home, self._clock, stack)
        self._public: PublicServer | None = None
        self._view: View | None = None
        self._lineage: LineageRun | None = None
        self._began_ms = self._clock.wall_ms()
        self.led: Leadership | None = None
        self.can_be_followed = False
        """Whether containers outlive us and the stream holds all that another incarnation needs."""

    @property
    def job(self) -> JobId:
        """The job; known once it was opened."""
        return self._submission.job

    def execute(self) -> int:
        """Until the job ends; see `grete.assembly.run.run_job`."""
        submission = self._submission
        submission.open()
        job = submission.job
        log_as(job=job.shown)
        leadership = self._lead()
        if leadership is None:
            return 0
        self.led = leadership
        self._stack.callback(submission.let_go, leadership)
        self._keep(leadership)
        self._stream = submission.stream  # read once: a million records take ten seconds on Kafka
        self._appended = self._stream.log.signal()
        if self._appended is not None:
            self._stack.callback(self._appended.close)
        self._stream.write_under(Fence(job_scope(job), leadership.epoch))
        ended = self._has_ended()
        if ended is None:
            submission.goes_on()
            asked = submission.asked()
            self._bound = self._bind(asked.settings)
            self._traces = self._open_traces(asked, leadership.epoch)
            self._asked = asked
            submission.old_names.note_new()
            self._planner = Planner(job, self._home, self._stream, self._clock, self._stack)
            ended = self._take_steps(self._coordinator(asked).steps())
            if self._lineage is not None:
                has_failed = ended.state == Phase.FAILED.value
                self._lineage.close("FAIL" if has_failed else "COMPLETE", ended.message if has_failed else "")
        return self._result(ended)

    def _lead(self) -> Leadership | None:
        """None when this process was asked to end while it stood by."""
        if not self._options.stands_by:
            return self._submission.campaign(self._after)
        self._signals.listen()
        leadership = lead_when_free(
            self._submission,
            self._clock,
            self._after,
            self._signals.wait,
            has_stepped_down=self._has_stepped_down,
        )
        self._first_epoch = self._submission.waited_for
        return leadership

    def _coordinator(self, asked: RequestedRun) -> Coordinator:
        return Coordinator(
            self.job,
            asked,
            self._stream,
            self._planner,
            self._renewal,
            self._clock,
            Surroundings(
                self._home, os.environ, self._inbox.post, Monitors.start, lambda: self._traces.beginning
            ),
            until_drained=self._options.until_drained,
            first_epoch=self._first_epoch,
        )

    def _take_steps(self, steps: Generator[Step, Any, JobState]) -> JobState:
        with closing(steps):
            try:
                step = next(steps)
                while True:
                    step = steps.send(self._take(step))
            except StopIteration as end:
                ended: JobState = end.value
                return ended

    def _take(self, step: Step) -> Served | list[Event] | None:
        match step:
            case Begin(settings):
                self._begin(settings)
            case Serve(settings, view):
                return self._serve(settings, view)
            case WaitForEvents():
                return self._arrived()
        return None

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        folder = settings.job.state_directory(self.job, self._home)
        command = self._options.container_command
        context = LaunchContext(settings, command, _run_here, folder / "logs", self._last_words)
        opened = self._options.open_launcher
        if opened is None or self.led is None:
            self._launcher = open_launcher(context)
        else:
            self._launcher = opened(context, self._submission.coordination, self.led)
        self.can_be_followed = self._launcher.outlives_coordinator
        self._observer = self._stack.enter_context(observed(settings, self.job, JOB_COORDINATOR, self._home))
        self._submission.old_names.take(settings, self._planner.commit_system(settings))

    def _last_words(self, container: ContainerId, epoch: int) -> ContainerEnd | None:
        """Nobody has said anything to a coordinator that does not serve yet."""
        return None if self._view is None else self._view.containers.last_words(container, epoch)

    def _serve(self, settings: Settings, view: View) -> Served:
        self._view = view
        files = TokenFiles.of(settings.job.state_directory(self.job, self._home))
        needs_read = settings.coordinator.http_authentication is HttpAuthentication.TOKEN
        tokens = write_tokens(files, needs_read=needs_read, metrics=self._metrics_token)
        pages = JobPages(self.job, tokens, self._bound.getsockname()[1])
        public = self._public
        names = public.address.hosts if public is not None else frozenset[str]()
        stores = JobStores(self.job)
        self._stack.callback(stores.close)
        server = coordinator_server(view, self._bound, tokens, pages, names=names, stores=stores)
        server.start()
        self._stack.callback(server.close)
        if public is not None:
            public.start(server.address)
            self._stack.callback(public.close)
        self._stack.callback(pages.close)
        self._stack.callback(view.containers.stop_holding)  # the server ends when it has answered
        self._report_lineage(view)
        figures = FigureRecorder(view, settings.job.state_directory(self.job, self._home))
        figures.start()
        self._stack.callback(figures.close)
        if self._on_view is not None:
            self._on_view(view)
        self._signals.listen()
        address = Address(server.url, files.container, files.read, self._relayed(server, tokens))
        return Served(address, self._launcher, self._observer.event, self._traces.changed)

    def _open_traces(self, asked: RequestedRun, epoch: int) -> CoordinatorTraces:
        """The coordinator's spans; what they need is looked for before anything of the run is written."""
        tracer = Tracer.of(asked.settings, self.job, JOB_COORDINATOR)
        self._stack.callback(tracer.close)
        began_ms = self._began_ms if asked.is_submitted else self._led_ms
        return CoordinatorTraces(tracer, asked, epoch, self._clock, began_ms)

    def _report_lineage(self, view: View) -> None:
        """To OpenLineage, where the configuration names a receiver; a job does not stand still for it."""
        try:
            reporter = reporter_of(self._asked.settings, self.job, self._asked.run_id)
        except GreteError as error:
            _log.warning("OpenLineage has no run of this job: %s", error)
            return
        if reporter is not None:
            self._lineage = LineageRun(reporter, view, self._home, is_new=self._asked.is_submitted)
            self._lineage.start()
            self._stack.callback(self._lineage.close)

    def _relayed(self, server: HttpServer, tokens: Tokens) -> ChannelAddress | None:
        """How containers on other machines reach the server from now on."""
        host = self._options.reached_at
        if not host or tokens.container is None:
            return None
        relay = KeyedRelay(listen_at(host), host, tokens.container, server.address)
        relay.start()
        self._stack.callback(relay.close)
        return relay.channel

    def _arrived(self) -> list[Event]:
        """The signals that have come, and an event; at once when a container ends that can be waited for.

        The first SIGTERM or SIGINT stops at a batch boundary, the second kills.
        """
        appended = None if self._appended is None else self._appended.descriptor()
        told_by = () if appended is None else (appended,)
        event = self._inbox.get(self._wait_s, (*self._launcher.descriptors(), *told_by))
        if self._appended is not None:
            self._appended.drain()
        signalled = list(self._signals.requests(self._settings.coordinator.shutdown_s))  # which have woken us
        is_busy = signalled or not isinstance(event, Tick)
        longest_s = _WAITS_S[1] if appended is None else _LONGEST_WAIT_S
        self._wait_s = _WAITS_S[0] if is_busy else min(1.2 * self._wait_s, longest_s)
        return [*signalled, event]

    def _bind(self, settings: Settings) -> socket.socket:
        """Take the addresses that the configuration asks for, before anything of it is written (fault 36)."""
        coordinator = settings.coordinator
        self._metrics_token = (
            None
            if coordinator.http_metrics_token is None
            else RenewedToken(lambda: coordinator.http_metrics_token, self._clock)
        )
        address = PublicAddress.of(coordinator)
        if address is None:
            return self._bound_at(coordinator.http_host, coordinator.http_port)
        folder = settings.job.state_directory(self.job, self._home)
        tls = ServerTls(certificate_files(coordinator, address.names, folder))
        self._public = PublicServer(address, self._bound_at(address.host, address.port), tls)
        return self._bound_at("127.0.0.1", 0)

    def _bound_at(self, host: str, port: int) -> socket.socket:
        holder = self._submission.succeeded
        bound = bind(host, port) if holder is None else bind_beside(host, port, holder)
        self._stack.callback(bound.close)
        return bound

    def _keep(self, leadership: Leadership) -> None:
        """Renew it from now on."""
        self._led_ms = self._clock.wall_ms()
        ttl_s = self._submission.ttl_s
        self._renewal = Renewal(
            self._submission.coordination,
            leadership,
            self._clock,
            every_s=ttl_s / 3,
            patience_s=max(_LOOP_PATIENCE_S, 4 * ttl_s),
        )
        self._renewal.start()
        self._stack.callback(self._renewal.close)
        failpoint("submit.elected")

    def _has_ended(self) -> JobState | None:
        """The end of the incarnation before, if it ended the job and could not return it (fault 52).

        Of one that has stood by: the end of the coordinator that it has waited for. Of a further attempt of a
        deployment: that the job was stopped, or has finished; a manager starts the process again nevertheless.

        Raises:
            LeadershipLost: another coordinator has led the job since: what became of it is not ours to change.
        """
        state = read_state(self._stream)
        if state is not None and state.state in _DONE and self._submission.is_further_attempt:
            return state
        before = self._epoch_before()
        if before is None or state is None or state.epoch < before:
            return None
        if self._options.stands_by:
            self._first_epoch = state.epoch  # one may have begun between two looks
        elif state.epoch > before:
            self.led = None
            raise LeadershipLost(f"epoch {before} of {job_scope(self.job)} was taken over")
        return state if state.is_terminal else None

    def _epoch_before(self) -> int | None:
        """The epoch of the incarnation that this one goes on for, of this process or of the one it has waited for."""
        if self._options.stands_by:
            return self._submission.waited_for
        return None if self._after is None else self._after.epoch

    def _result(self, ended: JobState) -> int:
        """0, or the error of the container that failed the job, and so its exit code.

        A code that says something of that container alone (it was killed, it was fenced) is 1, a failed job.
        """
        if ended.state != Phase.FAILED.value:
            return 0
        message = ended.message or "a container was given up"
        # of processes: pods and processors have their logs elsewhere
        if self.can_be_followed and self._options.open_launcher is None:
            settings = self._stream.settings()
            message += f". Logs: {settings.job.state_directory(self.job, self._home) / 'logs'}"
        # nothing is recorded of a container after the one that failed the job
        rows = History(self._stream).rows()
        codes = [row.details.get("exit_code", "") for row in rows if row.event == "container-exited"]
        raise _ERRORS.get(codes[-1] if codes else "", JobError)(message)


def _run_here(environment: Mapping[str, str], stop: threading.Event) -> int:
    from grete.spark.container import (
        run_container,  # Spark, which only a container in this process needs here
    )

    return run_container(environment, stop)
