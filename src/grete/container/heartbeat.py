"""Tells the coordinator that the container lives and how far it is; brings back what it is told to do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from grete.errors import CoordinatorUnavailable, Fenced, GreteError

_log = logging.getLogger(__name__)
_INTERVAL_S = 0.5
_TOLD = ("run", "pause", "stop")
_LOOK_AFTER = 2
"""Heartbeats without an answer before a new coordinator is looked for."""


@dataclass(frozen=True, slots=True)
class ContainerProgress:
    """What a container reports of itself. `records` counts messages processed since it started.

    `serial` is the number of what it runs; `paused` the barrier at which it waits, 0 when at none. `commits` counts
    the batches that were committed, `commit_seconds` is the time that took in all, `last_commit_seconds` the last;
    `dead_letters` counts the messages that these set aside.
    """

    state: str = "starting"
    batch_id: int = -1
    records: int = 0
    message: str = ""
    serial: int = 0
    paused: int = 0
    commits: int = 0
    commit_seconds: float = 0.0
    last_commit_seconds: float = 0.0
    dead_letters: int = 0


class CoordinatorClient(Protocol):
    """What a container needs of the coordinator's HTTP client."""

    def get(self, path: str) -> Any:
        """The JSON document at `path`. Raises CoordinatorUnavailable."""

    def heartbeat(self, container_id: str, body: dict[str, object]) -> dict[str, Any]:
        """Send one; returns `{"action": "run" | "pause" | "stop", "number": n}`.

        Raises:
            Fenced: the coordinator knows a newer incarnation of this container.
            CoordinatorUnavailable: it did not answer.
        """


@dataclass(frozen=True, slots=True)
class Reactions:
    """What to do with the answers. Called from the heartbeat's thread.

    `find_coordinator` raises an error that may pass when nobody can be asked where one is.
    """

    on_told: Callable[[str, int], None]
    on_fenced: Callable[[], None]
    on_orphaned: Callable[[], None]
    find_coordinator: Callable[[], CoordinatorClient | None]


class Heartbeat:
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
    ) -> None:
        self.client = client
        self._container_id = container_id
        self._epoch = epoch
        self._reactions = reactions
        self._now_s = now_s
        self.orphan_s = -1.0
        self._answered_s = now_s()
        self._unanswered = 0
        self._progress = ContainerProgress()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def report(self, progress: ContainerProgress) -> None:
        """Set what the next heartbeat says."""
        self._progress = progress

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            try:
                self.send()
            except Exception:  # noqa: BLE001 - a thread begins here: without it nobody could end the container
                _log.exception("a heartbeat failed")
                self._end_if_orphaned()

    def send(self) -> None:
        """One heartbeat, and what follows from its answer."""
        body: dict[str, object] = {"epoch": self._epoch, **asdict(self._progress)}
        try:
            answer = self.client.heartbeat(self._container_id, body)
        except Fenced as error:
            _log.error("%s", error)
            self._reactions.on_fenced()
            return
        except CoordinatorUnavailable as error:
            _log.debug("no answer to a heartbeat: %s", error)
            self._without_answer()
            return
        told, number = answer.get("action", "run"), answer.get("number", 0)
        if told not in _TOLD or type(number) is not int:
            _log.warning("somebody else answers where the coordinator did: %.200r", answer)
            self._without_answer()
            return
        self._answered_s, self._unanswered = self._now_s(), 0
        self._reactions.on_told(told, number)

    def _without_answer(self) -> None:
        self._unanswered += 1
        if self._closed.is_set():
            return
        if self._unanswered >= _LOOK_AFTER:
            try:
                found = self._reactions.find_coordinator()
            except GreteError as error:
                level = logging.WARNING if self._unanswered == _LOOK_AFTER else logging.DEBUG
                _log.log(level, "nobody can be asked for the coordinator, until somebody can: %s", error)
                if error.may_pass:
                    self._answered_s = self._now_s()
                found = None
            if found is not None:
                self.client, self._unanswered = found, 0
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
