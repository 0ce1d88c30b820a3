"""A container of the simulated world: everything of the real one but Spark's engine, HTTP and threads.

Real are: the assignment's document, the answers to its heartbeats, the fence, starting offsets, the plan of
what to read, tasks with their stores on disk, and the commit (`simulator.query`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from grete.container.assignment import Assignment, parse_assignment
from grete.container.control import Control
from grete.container.control import Ended as QueryEnded
from grete.container.lifecycle import ContainerLifecycle, Fetch, Locate, Step, WaitAt, WaitForAnswer, Work
from grete.container.process_state import ProcessState
from grete.environment import COORDINATOR_URL
from grete.errors import ConfigError, CoordinatorUnavailable, Fenced, GreteError
from grete.launch.base import ContainerStart
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import read_state
from grete.metadata.locality import LocalityManager
from grete.model.ending import ExitCode
from grete.wire.container_protocol import Command, Directive, Heartbeat, decode, document
from grete_workbench.simulator.application import UNFIT
from grete_workbench.simulator.conduct import incarnation_of
from grete_workbench.simulator.query import QueryRun
from grete_workbench.simulator.scheduler import Call, Ended, Process, Script, Server, Sleep
from grete_workbench.simulator.stores import ProcessLog, ProcessSystem

if TYPE_CHECKING:
    from grete_workbench.simulator.world import World

_STOPPED = ExitCode.STOPPED
_HEARTBEAT_S = 3.0
_ORPHAN_S = 50.0
_TRIES = 20
_WAIT_S = 0.5
_SHARES = 2
"""What Spark has room for, until it has lost executors."""


class ContainerProgram:
    """One incarnation of a container."""

    def __init__(
        self,
        world: World,
        start: ContainerStart,
        host: str,
        *,
        begin: Callable[[str], Process] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """`begin` makes its process, where that is a thread of another one, which ends it by `stop`."""
        self.world = world
        self.id = start.container_id
        self.epoch = self.fence_epoch = start.epoch
        self.host = host
        self.incarnation = incarnation_of(self.id, self.epoch)
        self.home = Path(world.directory) / host
        self._url = start.environment[COORDINATOR_URL]
        self.process: Process = (begin or world.process)(self.incarnation)
        self.log = ProcessLog(world.stream_log, world, self.process)
        self.system = ProcessSystem(world.system, world, self.process)
        self.control = Control(threading.Event() if stop is None else stop)
        self._stream = CoordinatorStream(self.log, self.process.clock, source="SamzaContainer")
        self._heartbeat = Heartbeat(self.epoch)
        self._answered_s = self.process.clock.monotonic_s()
        self.course = ContainerLifecycle(self.id, self.epoch, self.control, self._report)
        self._is_assigned = False
        self.kept = ProcessState()
        self.slots_at_most = _SHARES
        self.query: QueryRun | None = None
        self.process.on_end.append(self._release)
        self.process.spawn(self._main(), 0.1)
        self.process.spawn(self._heartbeats(), _HEARTBEAT_S / 2)

    def _release(self) -> None:
        if self.query is not None:
            self.query.close()

    # --- the thread that runs queries ---

    def _main(self) -> Script:
        steps = self.course.steps()
        step = next(steps)
        while True:
            try:
                answer = yield from self._take(step)
            except GreteError as error:
                step = steps.throw(error)
                continue
            yield Sleep()
            try:
                step = steps.send(answer)
            except StopIteration as end:
                yield self._send()
                raise Ended(_STOPPED if end.value is QueryEnded.INTERRUPTED else ExitCode.OK) from None

    def _take(self, step: Step) -> Any:
        match step:
            case Fetch():
                return (yield from self._fetch())
            case Locate():
                LocalityManager(self._stream).write_locality(self.id, self.host)
            case Work(assignment):
                return (yield from self._process(assignment))
            case WaitForAnswer(timeout_s) | WaitAt(_, timeout_s):
                yield Sleep(max(timeout_s, _WAIT_S))
        return None

    def _fetch(self) -> Any:
        """The assignment. The client of a container that begins tries for a while."""
        for _ in range(1 if self._is_assigned else _TRIES):
            try:
                answer = yield self._call({"what": "container", "id": self.id})
            except CoordinatorUnavailable:
                answer = None
            if answer is not None:
                assignment = parse_assignment(orjson.loads(answer), Path.cwd())
                self.fence_epoch, self._is_assigned = assignment.fence.epoch, True
                return assignment
            yield Sleep(1.0)
        raise CoordinatorUnavailable("no coordinator answers")

    def _process(self, assignment: Assignment) -> Any:
        """Run an epoch until it is interrupted or drained.

        Raises:
            ConfigError: it is told that this cannot be.
        """
        if assignment.settings.raw.get(UNFIT) == self.id:
            raise ConfigError(f"{UNFIT}: container {self.id} does not get to work")
        if assignment.warms_up:
            while not self.control.is_set():
                yield Sleep(_WAIT_S)
            return QueryEnded.INTERRUPTED
        self._report(state="running")
        self.query = QueryRun(self, assignment)
        try:
            return (yield from self.query.run())
        finally:
            self.query.close()

    # --- the heartbeat's thread ---

    def _heartbeats(self) -> Script:
        unanswered = 0
        while True:
            try:
                answer = yield self._send()
            except Fenced:
                raise Ended(ExitCode.FENCED, "a newer incarnation has taken over") from None
            except CoordinatorUnavailable:
                answer = None
            now_s = self.process.clock.monotonic_s()
            if answer is None:
                unanswered += 1
                if unanswered >= 2:
                    self._find_coordinator()
                if now_s - self._answered_s > _ORPHAN_S:
                    self.control.on_directive(Directive(Command.STOP, 0))
            else:
                unanswered, self._answered_s = 0, now_s
                self.control.on_directive(decode(answer, Directive))
            yield Sleep(_HEARTBEAT_S)

    def _report(self, **changed: Any) -> None:
        self._heartbeat = msgspec.structs.replace(self._heartbeat, **changed)

    def _send(self) -> Call:
        body = orjson.dumps(document(self._heartbeat))
        return self._call({"what": "heartbeat", "id": self.id, "body": body})

    def _call(self, request: dict[str, Any]) -> Call:
        return Call(self._server, request)

    def _server(self) -> Server | None:
        return self.world.server(self._url)

    def _find_coordinator(self) -> None:
        state = read_state(self._stream)
        if state is not None and state.url:
            self._url = state.url
