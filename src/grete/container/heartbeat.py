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
from grete.wire.container_protocol import HELD_AT_MOST_S, HELD_AT_REST_S, Directive, Heartbeat
from grete.wire.metric_values import ReportedMetrics

_log = logging.getLogger(__name__)
_METRICS_EVERY_S = 5.0
"""Scrapes are seconds apart, and those of a hundred tasks are 50 KB."""
_RESTS_AFTER_S = 5.0
"""Without anything new to say."""
_SILENT_PARTS = 4
"""As many heartbeats may be lost of a container at rest before it is taken for silent."""
_LOOK_AFTER = 2
"""Heartbeats without an answer before a new coordinator is looked for."""


class CoordinatorClient(Protocol):
    """The coordinator's HTTP client as a container needs it."""

    def get(self, path: str) -> Any:
        """The JSON document at `path`. Raises CoordinatorUnavailable."""

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        """Send one; returns the answer, which the coordinator may hold while the directive is `known`.

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
    """Sends a heartbeat as soon as the one before is answered, from a thread of its own until closed.

    The coordinator holds its answer until there is another directive, for half a second at most, and for two when
    there was nothing new to report for a while: half of what a job at rest took was heartbeats. One that does not
    hold it, since it is an older version or holds too many, gets two heartbeats a second.

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
        self.silent_s = 0.0
        """After how long the coordinator takes the container for silent; 0 and less is never."""
        self._answered_s = now_s()
        self._unanswered = 0
        self._heartbeat = Heartbeat(epoch)
        self._changed_s = now_s()
        self._metrics = metrics
        self._metrics_sent_s = float("-inf")
        self._directive: Directive | None = None
        self._reports = 0
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
        before, self._heartbeat = self._heartbeat, msgspec.structs.replace(self._heartbeat, **changed)
        if self._heartbeat != before:
            self._changed_s = self._now_s()

    def _run(self) -> None:
        while not self._closed.is_set():
            began_s, reports = self._now_s(), self._reports
            try:
                has_changed = self.send()
            except Exception:  # noqa: BLE001 - a thread begins here: without it the container could not be ended
                _log.exception("a heartbeat failed")
                self._end_if_orphaned()
                has_changed = False
            if not has_changed and self._reports == reports:
                self._closed.wait(max(began_s + HELD_AT_MOST_S - self._now_s(), 0))

    def send(self) -> bool:
        """One heartbeat, and what follows from its answer; returns whether that is another directive than before.

        Called by one thread at a time: the answers of two could arrive in another order than they were given.
        """
        known = self._directive
        report = self._next()
        asked = (
            report if known is None else msgspec.structs.replace(report, known=known, hold_s=self._hold_s())
        )
        answer = self._answer(asked)
        if answer is None:
            return False
        self._directive = answer
        self._reactions.on_directive(answer)
        return answer != known

    def _hold_s(self) -> float:
        if self._now_s() - self._changed_s < _RESTS_AFTER_S:
            return HELD_AT_MOST_S
        return min(HELD_AT_REST_S, self.silent_s / _SILENT_PARTS if self.silent_s > 0 else HELD_AT_REST_S)

    def report_now(self) -> None:
        """Send a heartbeat at once. The coordinator gives the answer that it holds, and is asked again."""
        self._reports += 1
        self._answer(self._next())

    def _answer(self, heartbeat: Heartbeat) -> Directive | None:
        """The coordinator's answer; None when there is none."""
        try:
            directive = self.client.heartbeat(self._container_id, heartbeat)
        except Fenced as error:
            _log.error("%s", error)
            self._reactions.on_fenced()
            return None
        except CoordinatorUnavailable as error:
            _log.debug("no answer to a heartbeat: %s", error)
            self._without_answer()
            return None
        self._answered_s, self._unanswered = self._now_s(), 0
        return directive

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
        is_answered = self._answer(self._next()) is not None
        if self._thread.is_alive():
            self._thread.join(timeout=5)
            if is_answered:
                self._answer(self._next())  # the thread's own may have come after it
