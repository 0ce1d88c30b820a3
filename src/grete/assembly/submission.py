"""Submitting a job: configuration loaded, stream and election opened, leadership won, configuration written."""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from grete.assembly.job_names import OldNames, refuse_shared_changelogs
from grete.clock import Clock
from grete.config.derived import canonical_keys, dev_overrides
from grete.config.load import load
from grete.config.rewriters import apply_rewriters
from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.coordination.base import Coordination, Leadership
from grete.coordination.factory import open_coordination
from grete.coordination.lead import lead
from grete.coordinator.attempt import is_further_attempt
from grete.coordinator.coordinator import RequestedRun
from grete.errors import ConfigError, GreteError, HeldByOther, JobError, LogNotFound
from grete.failpoints import failpoint
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.launch.base import Launcher
from grete.launch.factory import LaunchContext
from grete.metadata.config_history import SUBMITS, startable_settings, taken_back
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.metadata.job_index import register, shared_stream, where_submitted
from grete.metadata.job_state import recorded_epoch
from grete.model.fence import container_scopes, job_scope, leadership_of
from grete.model.ids import JobId
from grete.operations.job_handle import no_such_job
from grete.spark.session.versions import check_installed
from grete.systems.factory import open_system

_log = logging.getLogger("grete.coordinator")
_NAMED = 10
_SPARK_CONTAINER = "grete.spark.container"
WITHOUT_SPARK = (sys.executable, "-P", "-m", "grete.container.without_spark")
"""The command of containers that run tasks in their own process, for `RunOptions.container_command`."""


OpenLauncher = Callable[[LaunchContext, Coordination, Leadership], Launcher]
"""The launcher of one incarnation of a coordinator, over the job's own coordination."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `grete run`. Unless it `is_submit`, the configuration is the coordinator stream's."""

    config_paths: Sequence[str] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    """A configuration to submit that is in no file."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    job: JobId | None = None
    until_drained: bool = False
    take_over: bool = False
    stands_by: bool = False
    """While another coordinator leads, wait, and go on with what the stream holds then."""
    reason: str = ""
    dev: bool = False
    container_command: Sequence[str] = (sys.executable, "-P", "-m", _SPARK_CONTAINER)
    open_launcher: OpenLauncher | None = None
    """Where containers run that `job.launcher` does not start."""
    reached_at: str = ""
    """This machine's address, at which containers on others reach the coordinator; empty where there are none."""
    place: Mapping[str, str] | None = None
    """Of an attempt of a deployment, which its environment names: settings that follow from where this process is.

    The first attempt submits the configuration. Later ones go on with the stream's and these, and a job that was
    stopped or has finished is not begun again.
    """

    @property
    def is_submit(self) -> bool:
        """Whether there is a configuration to submit."""
        return bool(self.config_paths or self.config)

    @property
    def runs_spark(self) -> bool:
        """Whether containers are Spark's."""
        return _SPARK_CONTAINER in self.container_command


def submitted_settings(options: RunOptions, home: Path, clock: Clock) -> Settings:
    """The settings that `grete run` would submit: loaded, rewritten, validated, by today's names of keys.

    Raises:
        ConfigError: it is wrong; every problem at once.
    """

    def list_streams(system: str, settings: Settings) -> Sequence[str]:
        """The streams of a system, for rewriters that choose inputs by pattern."""
        with closing(open_system(settings, system, home, clock)) as opened:
            return opened.streams()

    loaded = load(options.config_paths, {**options.config, **options.overrides}) | dict(options.place or {})
    if options.dev:
        loaded |= dev_overrides(loaded)
    config = apply_rewriters(loaded, list_streams=list_streams)
    for warning in validate(config):
        _log.warning("%s", warning)
    return Settings.of(canonical_keys(config))


class Submission:
    """A submit by `grete run`. Everything opened is closed with `stack`; methods are called once, in order."""

    def __init__(self, options: RunOptions, home: Path, clock: Clock, stack: ExitStack) -> None:
        self._options = options
        self._home = home
        self._clock = clock
        self._stack = stack
        self.succeeded: str | None = None
        """The coordinator that was taken over, if it is known."""
        self.waited_for: int | None = None
        """The epoch of the coordinator that this one goes on for: the last that led while it stood by."""

    def open(self) -> None:
        """Load what is to be submitted, and open the job's stream and its election.

        Raises:
            ConfigError: the configuration is wrong.
            JobError: there is no such job, or its stream is another job's.
        """
        self._submitted = self._submitted_settings()
        self.job = self._named_job()
        self._open()

    def _submitted_settings(self) -> Settings | None:
        """The settings to submit, None to go on with the stream's."""
        if not self._options.is_submit:
            return None
        settings = submitted_settings(self._options, self._home, self._clock)
        failpoint("submit.config-loaded")
        return settings

    def _named_job(self) -> JobId:
        if self._submitted is not None:
            return self._submitted.job.id
        if self._options.job is None:
            raise ConfigError("name the job: --config FILE to submit one, --job NAME to run one again")
        return self._options.job

    def _open(self) -> None:
        submitted = self._submitted
        if submitted is not None and self._options.runs_spark:
            check_installed(submitted)
        place = submitted or where_submitted(self.job, self._home)
        try:
            self.log = open_coordinator_log(
                place, stream_name(self.job), self._home, self._clock, must_exist=submitted is None
            )
        except LogNotFound as error:
            raise self._not_there() from error
        self._stack.callback(self.log.close)
        self.stream = CoordinatorStream(self.log, self._clock, source=SUBMITS)
        found = self.stream.settings()
        owner = ConfigInForce(self.stream).owner(self.job)
        if submitted is not None:
            if not found.raw:
                self._refuse_moved(submitted)
            self._claim(submitted, owner)
        elif not found.raw:
            raise self._not_there()
        elif owner != self.job:
            raise no_such_job(self.job, self._home, owner)
        settings = self.settings = submitted or found
        if self._options.runs_spark:
            check_installed(settings)
        refuse_shared_changelogs(self.job, settings, self._home, self._clock)
        # a silent leader may follow either configuration
        self.ttl_s = max(one.coordinator.lease_ttl_s for one in (settings, found) if one.raw)
        self.coordination = open_coordination(settings, self._home, self._clock, ttl_s=self.ttl_s)
        self._stack.callback(self.coordination.close)
        self.old_names = OldNames(self.job, self.stream, self._home)
        self.old_names.check(self.coordination)

    def _refuse_moved(self, asked: Settings) -> None:
        """A coordinator stream that knows nothing of the job must not take the place of one that does.

        Checkpoints, changelogs and tasks would be compared with nothing, and the other one may still be led.
        """
        before = where_submitted(self.job, self._home)
        if before.raw == asked.coordinator.for_containers:
            return
        try:
            log = open_coordinator_log(
                before, stream_name(self.job), self._home, self._clock, must_exist=True
            )
        except LogNotFound:
            return
        with closing(log):
            known = CoordinatorStream(log, self._clock, source=SUBMITS).settings()
        if known.coordinator.for_containers == asked.coordinator.for_containers:
            return  # it is this one, and another process has just submitted the same
        if set(known.task.all_inputs) & set(asked.task.all_inputs):
            raise JobError(
                f"job {self.job.shown} was submitted with its coordinator stream elsewhere (in system "
                f"{known.coordinator.system!r}), and would start over in another one, without what it knows of "
                f"tasks, state and history. Set job.coordinator.system and the keys of its system back; or delete it "
                f"first (grete job delete --job {self.job.shown}), or give the job a new job.id"
            )

    def _claim(self, settings: Settings, owner: JobId) -> None:
        if owner != self.job:
            raise shared_stream(self.job, owner)
        register(settings, self.job, self._home)

    def _not_there(self) -> JobError:
        return JobError(f"{no_such_job(self.job, self._home)}; a new one is submitted with --config FILE")

    def campaign(self, after: Leadership | None) -> Leadership:
        """Lead; `after` is the leadership of an earlier incarnation of this process.

        Raises:
            HeldByOther: another coordinator does.
        """
        if after is not None:
            self.let_go(after)  # the campaign has not to wait until it would be over
        if self._options.take_over:
            holder = self.coordination.holder(job_scope(self.job))
            self.succeeded = None if holder is None else str(holder)
        try:
            return self.elected(patiently=True)
        except HeldByOther as error:
            raise HeldByOther(f"job {self.job.shown}", error.holder) from error

    def let_go(self, leadership: Leadership) -> None:
        """Release it, as far as the service answers: the next one has not to wait for a whole TTL."""
        try:
            self.coordination.release(leadership)
        except GreteError as error:
            _log.info("the leadership was not released and expires by itself: %s", error)

    def elected(self, *, patiently: bool) -> Leadership:
        """Lead under an epoch that the stream has not seen, also when the election has lost its memory (rule 1).

        See `lead`.

        Raises:
            HeldByOther: another coordinator leads.
        """
        return lead(
            self.coordination,
            self.log,
            job_scope(self.job),
            self._clock,
            epoch_floor=self._epoch_floor(),
            take_over=self._options.take_over,
            patiently=patiently,
        )

    def asked(self) -> RequestedRun:
        """The configuration that the job is to run with: what is submitted, or the last valid one of the stream.

        Raises:
            ConfigError: the stream has no valid one, or `--set` would change what is not submitted.
        """
        new_run = uuid.uuid4().hex
        if self._submitted is not None:
            keys = taken_back(self.stream, self._submitted.raw)
            if keys:
                _log.warning(
                    "changed since the last submit, and go back to what is submitted: %s (`grete config history` "
                    "shows who changed them)",
                    ", ".join(keys[:_NAMED]),
                )
            return RequestedRun(self._submitted, new_run, True, self._options.reason)
        if self._options.overrides and self.waited_for is None:
            raise ConfigError(
                "--set goes with --config; use `grete config set` to change a job's configuration"
            )
        settings = startable_settings(self.stream)
        return RequestedRun(settings, self.stream.run_id() or new_run, False, self._options.reason)

    def goes_on(self) -> None:
        """What was submitted long ago does not take the place of what the stream holds by now."""
        if self.waited_for is None and not self.is_further_attempt:
            return
        if known := self.stream.config():
            place = self._options.place or {}
            self._submitted = None if self.waited_for is not None else Settings.of({**known, **place})

    @property
    def is_further_attempt(self) -> bool:
        """Whether another process has begun this deployment before."""
        return self._options.place is not None and is_further_attempt(self.stream, os.environ)

    def _epoch_floor(self) -> int:
        """The highest epoch of the stream and the containers' fences: the election's file may be an older copy."""
        floor = recorded_epoch(self.stream)
        settings, name = self.settings, self.settings.task.commit_system
        if not settings.system(name).is_embedded:
            return floor  # brokers are not put back to an older state like a file
        with closing(open_system(settings, name, self._home, self._clock)) as system:
            return max(floor, leadership_of(system.highest_epoch(container_scopes(self.job))))
