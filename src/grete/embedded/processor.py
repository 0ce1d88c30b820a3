"""`StreamProcessor`: a library object with which an ordinary Python program takes part in a job (Samza's class)."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from types import TracebackType

from grete.assembly.open_files import raise_open_files_limit
from grete.assembly.submission import RunOptions, submitted_settings
from grete.channel.keyed_relay import check_relay
from grete.clock import SystemClock
from grete.config.choices import LauncherChoice
from grete.config.key_tables.job import LAUNCHER, PROCESSOR_ADDRESS
from grete.config.settings import Settings
from grete.container.main_loop import OnState
from grete.coordination.base import Coordination, Leadership
from grete.coordination.factory import open_coordination
from grete.coordination.membership import Membership
from grete.embedded.agent import Agent, RunContainer
from grete.embedded.application import Application, named
from grete.embedded.launcher import ProcessorsLauncher
from grete.embedded.leading import Leading
from grete.embedded.place import ProcessorPlace
from grete.environment import HOME, grete_home
from grete.errors import IllegalStateError, ProcessorFailed
from grete.launch.base import Launcher
from grete.launch.factory import LaunchContext
from grete.model.ending import ContainerEnd
from grete.model.fence import processors_scope
from grete.spark.session.versions import check_installed

_log = logging.getLogger("grete.processor")
_LOOKS_IN_TTL = 60
_LOOK_S = (0.05, 0.25)
"""Between two looks at the cells: a sixtieth of the lease, within these."""


class ProcessorState(StrEnum):
    """Where a processor is in its life, in Samza's words."""

    NEW = "NEW"
    STARTED = "STARTED"
    """It is a member of the job, and has no tasks yet: it waits for them, or is one more than there are tasks."""
    IN_REBALANCE = "IN_REBALANCE"
    """It gets other tasks, or has none any more."""
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"


class ProcessorListener:
    """Callbacks in a processor's life (Samza's ProcessorLifecycleListener). Each does nothing unless overridden.

    They are called one at a time. An exception of `before_start` is raised by `start`, that of another one is logged.
    """

    def before_start(self) -> None:
        """The processor is about to join the job. Called by `start`, in its thread."""

    def after_start(self) -> None:
        """It processes for the first time."""

    def after_stop(self) -> None:
        """It has ended without an error, and left the job."""

    def after_failure(self, error: BaseException) -> None:
        """It has ended with an error, and left the job; called instead of `after_stop`."""


_OF_CONTAINER = {
    "starting": ProcessorState.IN_REBALANCE,
    "paused": ProcessorState.IN_REBALANCE,
    "idle": ProcessorState.IN_REBALANCE,
    "running": ProcessorState.RUNNING,
    "waiting": ProcessorState.RUNNING,
}


def look_every_s(coordination: Coordination, ttl_s: float) -> float:
    """Seconds between two looks of a processor at its orders: fewer where the service has a price for each."""
    if coordination.LOOKS_IN_TTL < Coordination.LOOKS_IN_TTL:
        return ttl_s / coordination.LOOKS_IN_TTL
    return min(max(ttl_s / _LOOKS_IN_TTL, _LOOK_S[0]), _LOOK_S[1])


class StreamProcessor:
    """Takes part in a job from within this process, beside any number of processors in others.

        with StreamProcessor(config, WordCount) as processor:
            processor.wait()

    The processors divide the job's tasks among them, and one of them leads. Each may join, leave and die at any time:
    the others divide the tasks anew once that has settled (`job.debounce.time.ms`). Every record is processed once,
    as in any job: a task's owner commits and ends before another one begins, and one that is paused or cut off can
    commit nothing any more. A container that fails ends its processor, and its tasks go to the others.

    All run on one machine, with one `GRETE_HOME`, unless each has a `processor.address` at which the others reach it;
    one that is elsewhere is refused. No signal handler, log handler or
    working folder of the process is changed. The last processor that stops ends the job; an operator's `grete stop`
    ends all of them.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        application: Application | None = None,
        *,
        listener: ProcessorListener | None = None,
        processor_id: str | None = None,
        run_container: RunContainer | None = None,
    ) -> None:
        """`application` is named by `config` where it is None. `processor_id` (`processor.id`) tells processors
        apart, and is a random one by default. `run_container` is for tests: that of
        `grete.container.without_spark`.

        Raises:
            ConfigError: the application is no class that other processes can load.
        """
        given = Settings.of(config).job
        path = named(application, given)
        self._config = {**config, **path, LAUNCHER.name: LauncherChoice.PROCESSORS.value}
        self.id = processor_id or given.processor_id or uuid.uuid4().hex[:12]
        self._listener = ProcessorListener() if listener is None else listener
        self._run_container = run_container
        self._lock = threading.RLock()
        self._state = ProcessorState.NEW
        self._has_run = False
        self._stopped = threading.Event()
        self._stack = ExitStack()
        self._failure: BaseException | None = None
        self._leave_spark: Callable[[], None] = lambda: None

    @property
    def state(self) -> ProcessorState:
        """Where it is now."""
        return self._state

    def start(self) -> None:
        """Join the job, which is submitted when it does not run; returns once this processor is a member.

        This process may have as many files open afterwards as its hard limit says.

        Raises:
            IllegalStateError: it was started before.
            ConfigError: the configuration is wrong; every problem at once, and nothing was written. Or
                `processor.address` is no address of this machine.
            MissingExtra: Spark, or what its Python side needs, is not installed; nothing was written.
            IdTaken: a living processor has this id.
            MembersElsewhere: the job's processors are on another machine, or have another GRETE_HOME, and not all
                of them have an address.
            CoordinationUnreachable: the service that elects leaders does not answer.
        """
        with self._lock:
            if self._state is not ProcessorState.NEW:
                raise IllegalStateError(
                    f"processor {self.id} is {self._state}: start() is called once; make another StreamProcessor"
                )
            settings, options = self._options()
            raise_open_files_limit()
            self._listener.before_start()
            with ExitStack() as opened:
                self._open(settings, options, opened)
                self._agent.join()
                self._stack = opened.pop_all()
            self._state = ProcessorState.STARTED
        self._leading.start()
        threading.Thread(target=self._live, name=f"processor-{self.id}", daemon=True).start()

    def stop(self) -> None:
        """End at a batch boundary, commit, and leave the job; returns at once, see `wait`. Any thread may call it.

        Again, or after the end, it does nothing.

        Raises:
            IllegalStateError: it was not started.
        """
        with self._lock:
            if self._state is ProcessorState.NEW:
                raise IllegalStateError(f"processor {self.id} was not started: call start() first")
            if self._state in (ProcessorState.STOPPING, ProcessorState.STOPPED):
                return
            self._state = ProcessorState.STOPPING
        self._agent.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, however it comes; False when the time is over before.

        Raises:
            IllegalStateError: it was not started.
            GreteError: the error that it has ended with.
        """
        if self._state is ProcessorState.NEW:
            raise IllegalStateError(f"processor {self.id} was not started: call start() first")
        if not self._stopped.wait(timeout_s):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def __enter__(self) -> StreamProcessor:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for the end; the processor's own error is raised where no other one is on its way."""
        self.stop()
        self._stopped.wait()
        if error is None:
            self.wait()

    # --- parts ---

    def _options(self) -> tuple[Settings, RunOptions]:
        """The settings as they are submitted, and so that it is checked before anything is written.

        Raises:
            ConfigError: every problem at once.
        """
        asked = RunOptions(config=self._config, stands_by=True, open_launcher=self._open_launcher)
        if self._run_container is not None:
            asked = replace(asked, container_command=())
        settings = submitted_settings(asked, grete_home(), SystemClock())
        if asked.runs_spark:
            check_installed(settings)
        self._address = settings.job.processor_address or ""  # this processor's, and not the job's
        config = {key: value for key, value in settings.raw.items() if key != PROCESSOR_ADDRESS.name}
        return settings, replace(asked, config=config, reached_at=self._address)

    def _open(self, settings: Settings, options: RunOptions, opened: ExitStack) -> None:
        clock, self._ttl_s = SystemClock(), settings.coordinator.lease_ttl_s
        self._job = settings.job.id
        coordination = open_coordination(settings, grete_home(), clock, ttl_s=self._ttl_s)
        opened.callback(coordination.close)
        cells, home = coordination.cells(processors_scope(self._job)), grete_home()
        if self._address:
            check_relay(self._address)
        self._agent = Agent(
            self.id,
            cells,
            clock,
            self._run_here,
            self._on_container,
            ttl_s=self._ttl_s,
            every_s=look_every_s(coordination, self._ttl_s),
            place=ProcessorPlace.here(home, self._address),
        )
        self._leading = Leading(options, self._agent.stop)

    def _run_here(
        self, environment: Mapping[str, str], stop: threading.Event, on_state: OnState
    ) -> ContainerEnd:
        """Run a container that a leader has ordered, which may be on another machine and have another home."""
        run = self._run_container or self._run_with_spark
        return run({**environment, HOME: str(grete_home())}, stop, on_state)

    def _run_with_spark(
        self, environment: Mapping[str, str], stop: threading.Event, on_state: OnState
    ) -> ContainerEnd:
        """Spark is imported by a processor alone that has tasks. It is as before when the last one has ended."""
        from grete.spark.container import run_container

        with suppress(ModuleNotFoundError):  # without pyspark, of which the container has words
            from grete.spark.session.beside_a_program import leave, take_part

            take_part(self)
            self._leave_spark = partial(leave, self)
        return run_container(environment, stop, on_state)

    def _open_launcher(
        self, context: LaunchContext, coordination: Coordination, leadership: Leadership
    ) -> Launcher:
        clock, cells = SystemClock(), coordination.cells(processors_scope(self._job))
        members = Membership(cells, clock, ttl_s=context.settings.coordinator.lease_ttl_s)
        every_s = look_every_s(coordination, self._ttl_s)
        return ProcessorsLauncher(cells, members, clock, leadership=leadership.epoch, every_s=every_s)

    # --- its life ---

    def _live(self) -> None:
        """From the membership to the end."""
        failure: BaseException | None = None
        with self._stack:
            try:
                self._agent.run()
            except Exception as error:  # noqa: BLE001 - a thread begins here; its end must be the processor's
                failure = error
            with self._lock:
                self._state = ProcessorState.STOPPING
            if self._leading.is_alive:
                if self._agent.is_last:
                    self._leading.requests.stop_job()
                else:
                    self._leading.requests.leave()
            self._leading.join()
        if self._agent.failure is not None:
            failure = ProcessorFailed(self.id, str(self._agent.failure))
        try:
            self._agent.await_container()
            self._leave_spark()
        finally:
            self._end(failure or self._leading.error)

    def _end(self, failure: BaseException | None) -> None:
        self._failure = failure
        with self._lock:
            self._state = ProcessorState.STOPPED
        if failure is None:
            self._call("after_stop")
        else:
            _log.error("processor %s has ended: %s", self.id, failure)
            self._call("after_failure", failure)
        self._stopped.set()

    def _on_container(self, reported: str) -> None:
        """Called from the container's thread, and from the agent's when there is none any more."""
        state = _OF_CONTAINER.get(reported)
        is_first = False
        with self._lock:
            if state is None or self._state in (ProcessorState.STOPPING, ProcessorState.STOPPED):
                return
            self._state = state
            if state is ProcessorState.RUNNING and not self._has_run:
                self._has_run = is_first = True
        if is_first:
            self._call("after_start")

    def _call(self, name: str, *arguments: BaseException) -> None:
        try:
            getattr(self._listener, name)(*arguments)
        except Exception:  # noqa: BLE001 - the user's own code; the processor goes on to its end
            _log.exception("the listener's %s of processor %s failed", name, self.id)
