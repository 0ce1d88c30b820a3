"""One incarnation of a job's coordinator: from the election to the end of the job, or of its leadership."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from grete.assembly.failure import failure
from grete.assembly.stop_signals import StopSignals
from grete.assembly.submission import RunOptions, Submission
from grete.clock import SystemClock
from grete.config.choices import HttpAuthentication, LauncherChoice
from grete.config.settings import Settings
from grete.config.settings.coordinator import CoordinatorSettings
from grete.coordination.base import Leadership
from grete.coordinator.coordinated import CoordinatedJob, Surroundings
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.metadata_manager import JobCoordinatorMetadataManager
from grete.coordinator.plan import Plan, Planner
from grete.coordinator.renewal import Renewal
from grete.coordinator.state import Phase, State
from grete.coordinator.view import View
from grete.diagnostics.observe import observed
from grete.diagnostics.streams import JOB_COORDINATOR
from grete.environment import grete_home
from grete.errors import GreteError, LeadershipLost
from grete.failpoints import failpoint
from grete.keyed_log.base import Fence
from grete.launch.base import Launcher
from grete.launch.process import ProcessLauncher
from grete.launch.thread import ThreadLauncher
from grete.metadata.change_authors import changed_since_the_last_start, described
from grete.metadata.history import History, unchanged_attempts
from grete.metadata.job_state import JobState, read_state, write_state
from grete.model.fence import job_scope
from grete.model.ids import JobId
from grete.server.serve import HttpServer, TokenFiles, bind, bind_beside, write_tokens

_log = logging.getLogger("grete.coordinator")
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
        signals: StopSignals,
        on_view: Callable[[View], None] | None,
        after: Leadership | None = None,
        first_epoch: int | None = None,
    ) -> None:
        self._options = options
        self._stack = stack
        self._signals = signals
        self._on_view = on_view
        self._after = after
        self._first_epoch = first_epoch
        self._home = grete_home()
        self._clock = SystemClock()
        self._submission = Submission(options, self._home, self._clock, stack)
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
        leadership = self.led = submission.campaign(self._after)
        self._stack.callback(self._let_go, leadership)
        self._keep(leadership)
        self._stream = submission.stream  # read once: a million records take ten seconds on Kafka
        self._stream.write_under(Fence(job_scope(job), leadership.epoch))
        ended = self._has_ended()
        if ended is not None:
            return ended
        planner = Planner(job, self._home, self._stream, self._clock, self._stack)
        asked = submission.asked(self._stream)
        self._bound = self._bind(asked.coordinator)
        submission.old_names.note_new()
        settings, run_id = submission.write_config(self._stream, asked, planner.check)
        self.can_be_followed = settings.job.launcher is not LauncherChoice.THREAD
        self._observer = self._stack.enter_context(observed(settings, job, JOB_COORDINATOR, self._home))
        failpoint("coordinator.bootstrapped")
        submission.old_names.take(settings, planner.commit_system(settings))
        plan = planner.plan(settings)
        metadata = self._check_metadata(plan, run_id)
        return self._coordinate(planner, plan, metadata, leadership, run_id)

    def _bind(self, settings: CoordinatorSettings) -> socket.socket:
        """Take the address that the configuration asks for, before anything of it is written (fault 36)."""
        host, port = settings.http_host, settings.http_port
        holder = self._submission.succeeded
        bound = bind(host, port) if holder is None else bind_beside(host, port, holder)
        self._stack.callback(bound.close)
        return bound

    def _keep(self, leadership: Leadership) -> None:
        """Renew it from now on."""
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

    def _let_go(self, leadership: Leadership) -> None:
        """We have ended, however that was: the next one has not to wait for a whole TTL."""
        try:
            self._submission.coordination.release(leadership)
        except GreteError as error:
            _log.info("the leadership was not released and expires by itself: %s", error)

    def _has_ended(self) -> int | None:
        """The result of the incarnation before, if it ended the job and could not return it (fault 52).

        Raises:
            LeadershipLost: another coordinator has led the job since: what became of it is not ours to change.
        """
        state = read_state(self._stream)
        if self._after is None or state is None or state.epoch < self._after.epoch:
            return None
        if state.epoch > self._after.epoch:
            self.led = None
            raise LeadershipLost(f"epoch {self._after.epoch} of {self._after.scope} was taken over")
        if state.state == Phase.RUNNING.value:
            return None
        if state.state == Phase.FAILED.value:
            raise failure(state.message or "a container was given up", History(self._stream).rows())
        return 0

    # --- coordinate ---

    def _check_metadata(self, plan: Plan, run_id: str) -> JobCoordinatorMetadataManager:
        cluster_type = "YARN" if "CONTAINER_ID" in os.environ else "NON_YARN"
        manager = JobCoordinatorMetadataManager(self._stream, cluster_type)
        new, previous = manager.generate(plan.model, plan.config, _environment(run_id)), manager.read()
        changed = manager.check_for_changes(new, previous)
        metrics = manager.metrics
        event = "attempt"
        if changed:
            event = "deployment" if metrics.newDeployment else "change"
            manager.write(new)
        why = described(self._stream, changed_since_the_last_start(self._stream))
        if self._options.reason:
            why["reason"] = self._options.reason
        history = History(self._stream)
        history.append(
            event,
            run_id=run_id,
            epoch_id=new.epoch_id,
            config_id=new.config_id,
            job_model_id=new.job_model_id,
            **why,
        )
        metrics.applicationAttemptCount = unchanged_attempts(history.rows())
        failpoint("coordinator.metadata-written")
        return manager

    def _coordinate(
        self,
        planner: Planner,
        plan: Plan,
        metadata: JobCoordinatorMetadataManager,
        leadership: Leadership,
        run_id: str,
    ) -> int:
        settings = plan.settings
        state_dir = settings.job.state_directory(self.job, self._home)
        files = TokenFiles.of(state_dir)
        tokens = write_tokens(
            files, needs_read=settings.coordinator.http_authentication is HttpAuthentication.TOKEN
        )
        view = View(self.job, self._stream, metadata.metrics, run_id, leadership.epoch)
        view.until_drained = self._options.until_drained
        view.checkpoint_log = planner.commit_system(settings).checkpoint_log
        server = HttpServer(view, self._bound, tokens)
        server.start()
        self._stack.callback(server.close)
        failpoint("coordinator.serving")

        def show(problem: str) -> None:
            stands, epoch, url = view.standing(), leadership.epoch, server.url
            message = "; ".join(filter(None, (problem, stands.message)))
            tokens = str(files.container), str(files.read)
            running = JobState("running", run_id, epoch, url, tokens[0], message, tokens[1], stands.word)
            write_state(self._stream, running)

        job = CoordinatedJob(
            self.job,
            self._stream,
            planner,
            view,
            Surroundings(self._home, server.url, files.container),
            leadership.epoch,
            self._clock,
            on_change=lambda changed, why: self._note_change(changed, metadata, run_id, why),
            on_problem=show,
            post=lambda event: loop.post(event),
            first_epoch=self._first_epoch,
        )
        self._stack.callback(job.close)
        first = job.begin(plan)
        launcher = self._launcher(settings, state_dir)
        loop = CoordinatorLoop(
            renewal=self._renewal,
            launcher=launcher,
            stream=self._stream,
            clock=self._clock,
            state=State(settings.coordinator.retry_policy),
            job=job,
        )
        view.loop = loop
        loop.on_record = self._observer.event
        if self._on_view is not None:
            self._on_view(view)
        self._stop_on_signals(loop, settings.coordinator.shutdown_s)
        show("")
        try:
            final = loop.run(first)
        except BaseException:
            launcher.abandon()  # whatever has ended us: containers go on, and the next coordinator adopts them
            raise
        launcher.close()
        return self._finish(final, run_id, leadership, server.url)

    def _note_change(
        self, plan: Plan, metadata: JobCoordinatorMetadataManager, run_id: str, why: Mapping[str, str]
    ) -> None:
        """A running job has another model or configuration: say so, as for a new attempt (S0-20)."""
        new, previous = metadata.generate(plan.model, plan.config, _environment(run_id)), metadata.read()
        if new != previous:
            metadata.check_for_changes(new, previous)
            metadata.write(new)
        ids = {"config_id": new.config_id, "job_model_id": new.job_model_id}
        History(self._stream).append("reconfigured", run_id=run_id, **ids, **why)

    def _launcher(self, settings: Settings, state_dir: Path) -> Launcher:
        if settings.job.launcher is LauncherChoice.THREAD:
            from grete.spark.container import run_container

            if settings.task.java_options is not None:
                _log.warning(
                    "task.opts has no effect with job.launcher=thread: there is no process to give it to"
                )
            return ThreadLauncher(run_container)
        return ProcessLauncher(list(self._options.container_command), state_dir / "logs")

    def _stop_on_signals(self, loop: CoordinatorLoop, deadline_s: float) -> None:
        """The first SIGTERM or SIGINT stops at a batch boundary, the second kills."""
        loop.signalled = lambda: self._signals.requests(deadline_s)
        self._signals.listen()

    def _finish(self, final: State, run_id: str, leadership: Leadership, url: str) -> int:
        """Write the terminal state under our epoch; the leadership is released after that, not before (fault 52)."""
        failpoint("coordinator.finishing")
        write_state(
            self._stream, JobState(final.phase.value, run_id, leadership.epoch, url, "", final.message)
        )
        History(self._stream, urgent=True).append(final.phase.value, message=final.message)
        failpoint("coordinator.finished")
        if final.phase is Phase.FAILED:
            message = final.message or "a container was given up"
            if self.can_be_followed:  # containers are processes, with logs of their own
                settings = Settings.of(self._stream.config())
                message += f". Logs: {settings.job.state_directory(self.job, self._home) / 'logs'}"
            raise failure(message, History(self._stream).rows())
        return 0


def _environment(run_id: str) -> dict[str, str]:
    """The variables that name the deployment: outside YARN the run id, unless they are set otherwise (S0-31)."""
    return {"SAMZA_EPOCH_ID": run_id, **os.environ}
