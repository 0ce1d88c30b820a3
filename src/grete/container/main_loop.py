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
from urllib.parse import urlsplit

from grete.config.choices import LostOffsets
from grete.config.settings import Settings
from grete.config.settings.coordinator import is_loopback
from grete.container.assignment import Assignment, parse_assignment
from grete.container.control import Control, Ended
from grete.container.heartbeat import HeartbeatSender, Reactions
from grete.errors import CoordinatorUnavailable, Fenced, GreteError, OffsetsRemoved, WireError
from grete.failpoints import failpoint
from grete.http_client import JobCoordinatorClient
from grete.metadata.access import open_coordinator_stream
from grete.metadata.job_state import read_state
from grete.metadata.locality import LocalityManager
from grete.model.ending import ContainerEnd, ExitCode, exit_code, failure_of
from grete.model.ids import JobId
from grete.tasks.commit.base import BatchOutcome
from grete.wire.container_protocol import ContainerEnvironment

_log = logging.getLogger("grete.container")

_WAIT_S = 0.2
_OUTAGE_PAUSE_S = (0.5, 5.0)
"""Between attempts while a store does not answer, each of which waits for as long as that store's own time-out."""

OnBatch = Callable[[int, BatchOutcome], None]
"""Called after each batch with its id and what it did."""
Work = Callable[[Assignment, Control, OnBatch], Ended]
"""Runs one query until it is drained, interrupted, or shut down by a task."""


class ContainerMainLoop:
    """Runs `work` for every assignment, from the first to the end."""

    def __init__(self, environment: Mapping[str, str], stop: threading.Event, work: Work) -> None:
        self._work = work
        given = ContainerEnvironment.of(environment)
        self._id, self._epoch, self._home = given.container_id, given.epoch, given.home
        self._coordinator_config = given.coordinator_system()
        self._stop = stop
        self._control = Control(stop)
        self._control.on_at_work = lambda: self._sender.report(state="running")
        self._job: JobId | None = None
        self._folder: Path | None = None
        self._found: tuple[str, int] | None = None
        reactions = Reactions(
            self._control.on_directive,
            _keep_on if given.is_thread else _end_process,
            self._stop.set,
            self._find_coordinator,
        )
        client = JobCoordinatorClient(given.coordinator_url, given.token_file)
        self._sender = HeartbeatSender(client, self._id, self._epoch, reactions)
        self._outage_pause_s = _OUTAGE_PAUSE_S[0]
        self._is_outage = False

    def run(self) -> ContainerEnd:
        """See `grete.spark.container.run_container`."""
        self._sender.start()
        try:
            assignment = self._assignment()
            self._write_locality(assignment)
            failpoint("container.locality-written")
            ended = self._process(assignment)
            while ended is Ended.INTERRUPTED and not self._control.is_stopping:
                self._wait_at_barrier()
                if not self._control.is_stopping:
                    ended = self._process(self._assignment())
            self._sender.report(state="stopped" if self._control.is_stopping else "drained")
            return ContainerEnd(ExitCode.STOPPED if ended is Ended.INTERRUPTED else ExitCode.OK)
        except GreteError as error:
            _log.error("container %s: %s", self._id, error)
            self._sender.report(state="failed", message=str(error)[:2000])
            return ContainerEnd(exit_code(error), failure_of(error))
        finally:
            self._sender.close()

    def _write_locality(self, assignment: Assignment) -> None:
        """Append set-container-host-assignment for this container (S1-18)."""
        with open_coordinator_stream(self._coordinator_config, assignment.job, self._home) as stream:
            LocalityManager(stream).write_locality(assignment.container_id, socket.gethostname())

    def _assignment(self) -> Assignment:
        """Fetch the assignment from whichever coordinator answers: one that is gone has a successor."""
        is_told = False
        while True:
            try:
                document = self._sender.client.get(f"/api/v1/containers/{self._id}")
                break
            except CoordinatorUnavailable:
                if self._job is None or self._control.is_stopping:
                    raise
                if not is_told:
                    _log.warning("waiting for a coordinator")
                is_told = True
                self._control.wait(_WAIT_S)
        assignment = parse_assignment(document)
        if assignment.epoch != self._epoch:
            raise Fenced(assignment.fence.scope, epoch=self._epoch, seen=assignment.epoch)
        self._job = assignment.job
        self._folder = assignment.state_directory(self._home).parent.resolve()
        self._sender.orphan_s = Settings.of(assignment.config).coordinator.orphan_s
        self._control.running(assignment.serial)
        self._sender.report(state="starting", serial=assignment.serial, paused=0, message="")
        return assignment

    def _process(self, assignment: Assignment) -> Ended:
        """Work; when a store does not answer, wait and start the work again, however long the outage takes (G15).

        So too when retention has overtaken a task and the job skips that: the next start skips it and reports it.
        Ending the process would cost Spark's start at each attempt, and the container would be given up after some.
        """
        try:
            return self._work(assignment, self._control, self._on_batch)
        except GreteError as error:
            policy = Settings.of(assignment.config).task.lost_offsets
            is_skipped = isinstance(error, OffsetsRemoved) and policy is LostOffsets.SKIP
            if not (error.may_pass or is_skipped):
                raise
            # the first time of an outage, which is over with the next batch: it may last for days
            level = logging.DEBUG if self._is_outage else logging.WARNING
            _log.log(
                level, "container %s waits, and starts its work again until it can go on: %s", self._id, error
            )
            self._is_outage = True
            self._sender.report(state="waiting", message=str(error)[:2000])
            self._control.wait(self._outage_pause_s)
            self._outage_pause_s = min(2 * self._outage_pause_s, _OUTAGE_PAUSE_S[1])
            return Ended.INTERRUPTED

    def _on_batch(self, batch_id: int, outcome: BatchOutcome) -> None:
        before = self._sender.heartbeat
        self._outage_pause_s = _OUTAGE_PAUSE_S[0]
        if self._is_outage:
            _log.warning("container %s goes on", self._id)
            self._is_outage = False
        self._sender.report(
            state="running",
            batch_id=batch_id,
            records=before.records + outcome.records,
            commits=before.commits + 1,
            dead_letters=before.dead_letters + outcome.dead_letters,
            commit_seconds=before.commit_seconds + outcome.commit_s,
            last_commit_seconds=outcome.commit_s,
        )

    def _wait_at_barrier(self) -> None:
        """The query has ended and everything of it is committed: say so, and wait until told to run."""
        while (barrier := self._control.barrier) and not self._control.is_stopping:
            self._sender.report(state="paused", paused=barrier)
            self._sender.send()  # others wait for it
            self._control.wait(_WAIT_S)

    def _find_coordinator(self) -> JobCoordinatorClient | None:
        """A coordinator that has taken over writes its address into the coordinator stream.

        With job.http.port it may be the address of the one before; its token is another all the same. One whose
        token is not there (it has ended, or begins) is none yet, and is looked for again.
        """
        if self._job is None:
            return None
        try:
            with open_coordinator_stream(self._coordinator_config, self._job, self._home) as stream:
                state = read_state(stream)
        except GreteError as error:
            if error.may_pass:
                raise
            _log.warning("the coordinator stream can not be read: %s", error)
            return None
        if state is None or not state.url or (state.url, state.epoch) == self._found:
            return None
        try:
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


def _end_process() -> None:
    """The coordinator knows a newer incarnation: end at once, whatever Spark is doing."""
    os._exit(ExitCode.FENCED)


def _keep_on() -> None:
    """The process is the coordinator's own; the fence of its next commit ends the thread."""
