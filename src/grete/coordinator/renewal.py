"""Keeps a leadership from a thread of its own, so that a long calculation does not cost it.

The loop reports that it is alive; when it has not for too long it hangs, and another coordinator should lead:
renewing stops. Every action needs the proof, and gets an error instead when there is none.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from grete.clock import Clock
from grete.coordination.base import Coordination, Leadership
from grete.errors import GreteError, LeadershipLost

_log = logging.getLogger("grete.coordinator")
_ATTEMPTS = 3
"""Renewals before an action, until one of them is still valid when it returns."""
_AGAIN_S = 0.1
"""Between renewals before an action that had no answer. Three in a row are over at once where a connection was lost,
and cost a leadership that lasted another second."""
_RETRY = 4
"""A renewal that failed is tried again in this part of the interval."""


@dataclass(frozen=True, slots=True)
class RenewalFigures:
    """Of a leadership: renewals that lengthened it, those that did not, the seconds it holds without another."""

    renewals: int = 0
    failures: int = 0
    left_s: float = 0.0


class Renewal:
    """Renews every `every_s` while the loop has said within `patience_s` that it is alive."""

    def __init__(
        self,
        coordination: Coordination,
        leadership: Leadership,
        clock: Clock,
        *,
        every_s: float,
        patience_s: float,
    ) -> None:
        self._coordination = coordination
        self._leadership = leadership
        self._clock = clock
        self._every_s = every_s
        self._patience_s = patience_s
        self._alive_s = clock.monotonic_s()
        self._is_lost = False
        self._lost_how = ""
        self._attempts = self._renewals = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)

    @property
    def epoch(self) -> int:
        """The epoch that is kept."""
        return self._leadership.epoch

    @property
    def figures(self) -> RenewalFigures:
        """As they are now; a leadership that is lost has no time left."""
        left_s = 0.0 if self._is_lost else self._leadership.valid_until_s - self._clock.monotonic_s()
        return RenewalFigures(self._renewals, self._attempts - self._renewals, max(0.0, left_s))

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def close(self) -> None:
        """Stop renewing; the leadership stays until it is released or expires."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def beat(self) -> None:
        """The loop is alive.

        Raises:
            LeadershipLost: another coordinator leads.
        """
        self._alive_s = self._clock.monotonic_s()
        if self._is_lost:
            raise self._lost()

    def prove(self) -> Leadership:
        """The leadership, which holds now; renewed first when its time is over.

        Raises:
            LeadershipLost: another coordinator leads, or may by now.
            GreteError: the store did not answer, so that nothing is proven.
        """
        late = 0
        while not self._is_lost and self._clock.monotonic_s() >= self._leadership.valid_until_s:
            if late == _ATTEMPTS:
                raise LeadershipLost(f"{self._leadership.scope}: each renewal took longer than it lasts")
            before_s = self._leadership.valid_until_s
            self._renew()  # which may take as long as the leadership lasts, when this process or the store stalls
            if self._leadership.valid_until_s > before_s:
                late += 1
            elif not self._is_lost:  # no answer, while nobody else can be elected
                self._clock.wait(threading.Event(), _AGAIN_S)
        if self._is_lost:
            raise self._lost()
        return self._leadership

    def _lost(self) -> LeadershipLost:
        return LeadershipLost(f"epoch {self.epoch} of {self._leadership.scope} was {self._lost_how}")

    def _lose(self, how: str) -> None:
        self._lost_how, self._is_lost = how, True

    def _renew(self) -> None:
        with self._lock:
            if self._is_lost:
                return
            before, self._attempts = self._leadership, self._attempts + 1
            renewed = self._coordination.renew(before)
            if renewed is None:
                is_over = self._clock.monotonic_s() >= before.valid_until_s
                self._lose("not renewed in time, or taken over" if is_over else "taken over")
                return
            self._leadership = renewed
            self._renewals += renewed.valid_until_s > before.valid_until_s

    def tick(self) -> bool:
        """One renewal, if the loop is alive; False when it is to be tried again soon.

        A store that does not answer may return the leadership as it was (`KafkaCoordination.renew`). When the broker
        that answers for the election was killed, two attempts within a lease of 10 s did not meet its successor.
        """
        hangs_s = self._clock.monotonic_s() - self._alive_s
        if hangs_s > self._patience_s:
            _log.error("the coordinator's loop hangs since %.0f s: not renewing its leadership", hangs_s)
            return True
        before_s = self._leadership.valid_until_s
        try:
            self._renew()
        except GreteError as error:
            _log.warning("the leadership was not renewed: %s", error)
            if not error.may_pass and self._clock.monotonic_s() >= before_s + self._every_s:
                self._give_up(before_s)
            return False
        return self._is_lost or self._leadership.valid_until_s > before_s

    def _give_up(self, valid_until_s: float) -> None:
        """Others may lead, and we shall not be let in again; unless the loop's own proof was let in just now."""
        with self._lock:
            if self._leadership.valid_until_s == valid_until_s:
                self._lose("not renewed for a lease")

    def _run(self) -> None:
        wait_s = self._every_s
        while not self._closed.wait(wait_s) and not self._is_lost:
            began_s = self._clock.monotonic_s()
            is_done = self.tick()
            took_s = (
                self._clock.monotonic_s() - began_s
            )  # a busy broker needs seconds, which the lease counts, too
            wait_s = max(self._every_s - took_s, 0) if is_done else self._every_s / _RETRY
