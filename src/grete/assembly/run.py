"""`grete run`: submit a job and coordinate it in the foreground until it ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grete.assembly.coordinated import CoordinatedJob, Surroundings, retry_policy
from grete.assembly.failure import failure
from grete.assembly.home import grete_home, state_directory
from grete.assembly.job_handle import job_scope, lease_ttl_s
from grete.assembly.plan import Plan, Planner
from grete.assembly.view import View
from grete.clock import SystemClock
from grete.config.current import in_current_words
from grete.config.load import load
from grete.config.rewriters import apply_rewriters
from grete.config.streams import EMBEDDED_SYSTEM, coordinator_system, system_kind
from grete.config.validate import refused_changes, validate
from grete.coordination.base import Leadership, campaign_patiently
from grete.coordination.factory import open_coordination
from grete.coordinator.events import StopRequested
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.metadata_manager import JobCoordinatorMetadataManager
from grete.coordinator.renewal import Renewal
from grete.coordinator.state import Phase, State
from grete.diagnostics.observe import observed
from grete.diagnostics.streams import JOB_COORDINATOR
from grete.errors import ConfigError, Fenced, HeldByOther, JobError, LogNotFound
from grete.failpoints import failpoint
from grete.keyed_log.base import Fence
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.keyed_log.sqlite_coordinator_log import coordinator_file
from grete.launch.base import Launcher
from grete.launch.process import ProcessLauncher
from grete.launch.thread import ThreadLauncher
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.metadata.history import History
from grete.metadata.job_index import claim_name, claim_stream, remember_submitted, where_submitted
from grete.metadata.job_state import JobState, write_state
from grete.model.ids import JobId
from grete.server.serve import HttpServer, bind, write_token
from grete.sqlite_file import open_file
from grete.systems.factory import open_system

_log = logging.getLogger("grete.coordinator")
_LOOP_PATIENCE_S = 120.0
"""A model of 100,000 tasks takes some ten seconds to calculate and write; whoever takes this long hangs."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `grete run` was asked for. Without `config_paths` the configuration is the coordinator stream's."""

    config_paths: Sequence[str] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)
    job: JobId | None = None
    until_drained: bool = False
    take_over: bool = False
    reason: str = ""
    container_command: Sequence[str] = (sys.executable, "-m", "grete.spark.container")


def run_job(options: RunOptions, on_view: Callable[[View], None] | None = None) -> int:
    """Run a job until it ends; returns 0 when it finished or was stopped.

    `on_view` gets the coordinator's view as soon as there is one, to show progress from.

    Raises:
        ConfigError: the configuration is wrong; nothing was written.
        HeldByOther: the job runs already; nothing was written.
        Fenced, LeadershipLost: another coordinator has taken over.
    """
    with ExitStack() as stack:
        return _Run(options, stack, on_view).execute()


class _Run:
    def __init__(self, options: RunOptions, stack: ExitStack, on_view: Callable[[View], None] | None) -> None:
        self._options = options
        self._stack = stack
        self._on_view = on_view
        self._home = grete_home()
        self._clock = SystemClock()

    def execute(self) -> int:
        submitted = self._submitted_config()
        job = self._job(submitted)
        self._open(job, submitted or {})
        leadership = self._campaign()
        self._stream = CoordinatorStream(
            self._log, self._clock, source="job-runner", fence=Fence(job_scope(job), leadership.epoch)
        )
        planner = Planner(job, self._home, self._stream, self._clock, self._stack)
        run_id = self._write_config(submitted, planner)
        config = self._stream.config()
        self._observer = self._stack.enter_context(observed(config, job, JOB_COORDINATOR, self._home))
        failpoint("coordinator.bootstrapped")
        plan = planner.plan(config)
        metadata = self._check_metadata(plan, run_id)
        return self._coordinate(planner, plan, metadata, leadership, run_id)

    # --- submit ---

    def _submitted_config(self) -> dict[str, str] | None:
        """The configuration to submit, None to go on with the stream's."""
        if not self._options.config_paths:
            return None
        config = apply_rewriters(
            load(self._options.config_paths, self._options.overrides), list_streams=self._list_streams
        )
        for warning in validate(config):
            _log.warning("%s", warning)
        failpoint("submit.config-loaded")
        return in_current_words(config)

    def _list_streams(self, system: str, config: Mapping[str, str]) -> Sequence[str]:
        """The streams of a system, for rewriters that choose inputs by pattern."""
        with closing(open_system(config, system, self._home, self._clock)) as opened:
            return opened.streams()

    def _job(self, submitted: Mapping[str, str] | None) -> JobId:
        if submitted is not None:
            return JobId(submitted["job.name"], submitted.get("job.id", "1"))
        if self._options.job is None:
            raise ConfigError("name the job: --config FILE to submit one, --job NAME to run one again")
        return self._options.job

    def _open(self, job: JobId, config: Mapping[str, str]) -> None:
        """Open the job's stream and its election; `config` is what is submitted, empty for a job that was before."""
        self._job_id = job
        place = config or where_submitted(job, self._home)
        try:
            self._log = open_coordinator_log(
                place, stream_name(job), self._home, self._clock, must_exist=not config
            )
        except LogNotFound as error:
            raise self._not_there() from error
        self._stack.callback(self._log.close)
        found = CoordinatorStream(self._log, self._clock, source="job-runner").config()
        if config:
            self._claim(config, found)
        elif not found:
            raise self._not_there()
        settings = config or found
        self._ttl_s = lease_ttl_s(config, found)
        self._coordination = open_coordination(settings, self._home, self._clock, ttl_s=self._ttl_s)
        self._stack.callback(self._coordination.close)

    def _claim(self, config: Mapping[str, str], found: Mapping[str, str]) -> None:
        """Make sure that the stream is no other job's, and that this home finds it again."""
        if system_kind(config, coordinator_system(config)) == EMBEDDED_SYSTEM:
            with closing(open_file(coordinator_file(config, self._home))) as file:
                claim_stream(file, self._job_id)
        claim_name(found, self._job_id)
        remember_submitted(config, self._job_id, self._home)

    def _not_there(self) -> JobError:
        return JobError(f"there is no job {self._job_id.shown} in {self._home}: submit it with --config FILE")

    def _campaign(self) -> Leadership:
        scope = job_scope(self._job_id)
        try:
            leadership = self._elected(scope)
        except HeldByOther as error:
            raise HeldByOther(f"job {self._job_id.shown}", error.holder) from error
        self._renewal = Renewal(
            self._coordination,
            leadership,
            self._clock,
            every_s=self._ttl_s / 3,
            patience_s=max(_LOOP_PATIENCE_S, 4 * self._ttl_s),
        )
        self._renewal.start()
        self._stack.callback(self._renewal.close)
        failpoint("submit.elected")
        return leadership

    def _elected(self, scope: str) -> Leadership:
        """Lead under an epoch that the stream has not seen, also when the election has lost its memory (rule 1)."""
        floor = 0
        while True:
            leadership = campaign_patiently(
                self._coordination,
                scope,
                self._clock,
                take_over=self._options.take_over and not floor,
                epoch_floor=floor,
            )
            try:
                self._log.raise_fence(Fence(scope, leadership.epoch))
            except Fenced as error:
                self._coordination.release(leadership)
                if error.seen <= floor:
                    raise
                floor = error.seen
            else:
                return leadership

    def _write_config(self, submitted: Mapping[str, str] | None, planner: Planner) -> str:
        """Make the submitted configuration the stream's; returns the run id of the configuration in force."""
        old = self._stream.config()
        if submitted is None:
            if self._options.overrides:
                raise ConfigError(
                    "--set goes with --config; use `grete config set` to change a job's configuration"
                )
            validate(old)
            return self._stream.run_id() or uuid.uuid4().hex
        problems = refused_changes(old, submitted)
        if problems:
            raise ConfigError(*problems)
        planner.check(submitted)  # what makes no job model is not written
        run_id = uuid.uuid4().hex
        changes = self._stream.write_config(submitted, run_id=run_id, reason=self._options.reason)
        failpoint("submit.config-written")
        _log.info("configuration written, %d keys changed, run %s", len(changes), run_id)
        return run_id

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
        History(self._stream).append(
            event,
            run_id=run_id,
            epoch_id=new.epoch_id,
            config_id=new.config_id,
            job_model_id=new.job_model_id,
            reason=self._options.reason,
        )
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
        config = plan.config
        state_dir = state_directory(config, self._job_id, self._home)
        bound = bind(config.get("job.http.host", "127.0.0.1"), int(config.get("job.http.port", "0")))
        token_file = state_dir / "http-token"
        needs_token = config.get("job.http.auth", "token") == "token"
        token = write_token(token_file)
        view = View(self._job_id, self._stream, metadata.metrics, run_id, leadership.epoch)
        view.until_drained = self._options.until_drained
        view.checkpoint_log = planner.commit_system(config).checkpoint_log
        server = HttpServer(
            view, bound, token if needs_token else None, write_token(state_dir / "http-write-token")
        )
        server.start()
        self._stack.callback(server.close)
        failpoint("coordinator.serving")

        def show(problem: str) -> None:
            running = JobState("running", run_id, leadership.epoch, server.url, str(token_file), problem)
            write_state(self._stream, running)

        job = CoordinatedJob(
            self._job_id,
            self._stream,
            planner,
            view,
            Surroundings(self._home, server.url, token_file),
            leadership.epoch,
            self._clock,
            on_change=lambda changed: self._note_change(changed, metadata, run_id),
            on_problem=show,
            post=lambda event: loop.post(event),
        )
        self._stack.callback(job.close)
        first = job.begin(plan)
        launcher = self._launcher(config, state_dir)
        loop = CoordinatorLoop(
            renewal=self._renewal,
            launcher=launcher,
            stream=self._stream,
            clock=self._clock,
            state=State(retry_policy(config)),
            job=job,
        )
        view.loop = loop
        loop.on_record = self._observer.event
        if self._on_view is not None:
            self._on_view(view)
        self._stop_on_signals(loop, config)
        show("")
        try:
            final = loop.run(first)
        except BaseException:
            launcher.abandon()  # whatever has ended us: containers go on, and the next coordinator adopts them
            raise
        launcher.close()
        return self._finish(final, run_id, leadership, server.url)

    def _note_change(self, plan: Plan, metadata: JobCoordinatorMetadataManager, run_id: str) -> None:
        """A running job has another model or configuration: say so, as for a new attempt (S0-20)."""
        new, previous = metadata.generate(plan.model, plan.config, _environment(run_id)), metadata.read()
        if new != previous:
            metadata.check_for_changes(new, previous)
            metadata.write(new)
        ids = {"config_id": new.config_id, "job_model_id": new.job_model_id}
        History(self._stream).append("reconfigured", run_id=run_id, **ids)

    def _launcher(self, config: Mapping[str, str], state_dir: Path) -> Launcher:
        if config.get("job.launcher") == "thread":
            from grete.spark.container import run_container

            if "task.opts" in config:
                _log.warning(
                    "task.opts has no effect with job.launcher=thread: there is no process to give it to"
                )
            return ThreadLauncher(run_container)
        return ProcessLauncher(list(self._options.container_command), state_dir / "logs")

    def _stop_on_signals(self, loop: CoordinatorLoop, config: Mapping[str, str]) -> None:
        """The first SIGTERM or SIGINT stops at a batch boundary, the second kills."""
        deadline_s = int(config.get("task.shutdown.ms", "30000")) / 1000
        asked = False

        def on_signal(number: int, _: Any) -> None:
            nonlocal asked
            loop.post(StopRequested(0.0 if asked else deadline_s, signal.Signals(number).name))
            asked = True

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)

    def _finish(self, final: State, run_id: str, leadership: Leadership, url: str) -> int:
        """Write the terminal state under our epoch, then release: never the other way round (fault 52)."""
        failpoint("coordinator.finishing")
        write_state(
            self._stream, JobState(final.phase.value, run_id, leadership.epoch, url, "", final.message)
        )
        History(self._stream).append(final.phase.value, message=final.message)
        failpoint("coordinator.finished")
        self._renewal.close()
        self._coordination.release(leadership)
        if final.phase is Phase.FAILED:
            raise failure(final.message or "a container was given up", History(self._stream).rows())
        return 0


def _environment(run_id: str) -> dict[str, str]:
    """What names the deployment: outside YARN the run id, unless the environment says otherwise (S0-31)."""
    return {"SAMZA_EPOCH_ID": run_id, **os.environ}
