"""Sends the container's heartbeats to its coordinator, and passes on the directives that answer them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from grete.errors import CoordinatorUnavailable, Fenced, GreteError
from grete.wire.container_protocol import Directive, Heartbeat
from grete.wire.metric_values import ReportedMetrics

_log = logging.getLogger(__name__)
_INTERVAL_S = 0.5
_METRICS_EVERY_S = 5.0
"""Scrapes are seconds apart, and those of a hundred tasks are 50 KB."""
_LOOK_AFTER = 2
"""Heartbeats without an answer before a new coordinator is looked for."""


class CoordinatorClient(Protocol):
    """The coordinator's HTTP client as a container needs it."""

    def get(self, path: str) -> Any:
        """The JSON document at `path`. Raises CoordinatorUnavailable."""

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        """Send one; returns the answer.

        Raises:
            Fenced: the coordinator knows a newer incarnation of this container.
            CoordinatorUnavailable: it did not answer, or not as a coordinator does.
        """


@dataclass(frozen=True, slots=True)
class Reactions:
    """Reactions to the answers. Called from the heartbeat's thread.

    `find_coordinator` raises an error that may pass when the coordinator stream does not answer.
    """

    on_directive: Callable[[Directive], None]
    on_fenced: Callable[[], None]
    on_orphaned: Callable[[], None]
    find_coordinator: Callable[[], CoordinatorClient | None]


class HeartbeatSender:
    """Sends two heartbeats a second from a thread of its own until closed.

    Processing goes on while the coordinator does not answer: the commit's fence, not this thread, decides who may
    write. After `orphan_s` without an answer from any coordinator (negative: never) the container is an orphan. While
    the coordinator stream does not answer, no coordinator can lead either, and that time does not count.
    """

    def __init__(
        self,
        client: CoordinatorClient,
        container_id: str,
        epoch: int,
        reactions: Reactions,
        *,
        now_s: Callable[[], float] = time.monotonic,
        metrics: Callable[[], ReportedMetrics] | None = None,
    ) -> None:
        """`metrics` are sent with the first heartbeat, one every few seconds, and the last."""
        self.client = client
        self._container_id = container_id
        self._reactions = reactions
        self._now_s = now_s
        self.orphan_s = -1.0
        self._answered_s = now_s()
        self._unanswered = 0
        self._heartbeat = Heartbeat(epoch)
        self._metrics = metrics
        self._metrics_sent_s = float("-inf")
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def heartbeat(self) -> Heartbeat:
        """The report that is sent next."""
        return self._heartbeat

    def report(self, **changed: Any) -> None:
        """Change fields of the report. Called by one thread at a time."""
        self._heartbeat = msgspec.structs.replace(self._heartbeat, **changed)

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            try:
                self.send()
            except Exception:  # noqa: BLE001 - a thread begins here: without it the container could not be ended
                _log.exception("a heartbeat failed")
                self._end_if_orphaned()

    def send(self) -> None:
        """One heartbeat, and what follows from its answer."""
        try:
            directive = self.client.heartbeat(self._container_id, self._next())
        except Fenced as error:
            _log.error("%s", error)
            self._reactions.on_fenced()
            return
        except CoordinatorUnavailable as error:
            _log.debug("no answer to a heartbeat: %s", error)
            self._without_answer()
            return
        self._answered_s, self._unanswered = self._now_s(), 0
        self._reactions.on_directive(directive)

    def _next(self) -> Heartbeat:
        now_s = self._now_s()
        is_due = self._closed.is_set() or now_s - self._metrics_sent_s >= _METRICS_EVERY_S
        if self._metrics is None or not is_due:
            return self._heartbeat
        self._metrics_sent_s = now_s
        return msgspec.structs.replace(self._heartbeat, metrics=self._metrics())

    def _without_answer(self) -> None:
        self._unanswered += 1
        if self._closed.is_set():
            return
        if self._unanswered >= _LOOK_AFTER:
            try:
                found = self._reactions.find_coordinator()
            except GreteError as error:
                level = logging.WARNING if self._unanswered == _LOOK_AFTER else logging.DEBUG
                _log.log(level, "the address of the coordinator cannot be looked up yet: %s", error)
                if error.may_pass:
                    self._answered_s = self._now_s()
                found = None
            if found is not None:
                self.client, self._unanswered = found, 0
                self._metrics_sent_s = float("-inf")
                return
        self._end_if_orphaned()

    def _end_if_orphaned(self) -> None:
        if 0 <= self.orphan_s < self._now_s() - self._answered_s:
            _log.warning("no coordinator for %.0f s", self.orphan_s)
            self._reactions.on_orphaned()

    def close(self) -> None:
        """Send the last state and end the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self.send()
