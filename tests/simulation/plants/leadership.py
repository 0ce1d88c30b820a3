"""Mistakes in leader election and in what a leader does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grete.coordination.base import Leadership
from grete.coordination.memory import MemoryTerms
from grete.coordination.observed import Decide, ObservedElection, Term
from grete.coordination.patience import Patience
from grete.coordinator.coordinator import End, Step
from grete.coordinator.renewal import Renewal
from grete.keyed_log.memory import MemoryKeyedLog
from grete_workbench.simulator.coordinator import CoordinatorProgram
from grete_workbench.simulator.plants import Plant, Replaced


def _reuse_epoch(replaced: Replaced) -> None:
    change = MemoryTerms.change

    def again(self: MemoryTerms, scope: str, decide: Decide, *how: Any) -> Term | None:
        def with_old_epoch(term: Term | None) -> Term | None:
            made = decide(term)
            return made if made is None or term is None else replace(made, epoch=term.epoch)

        return change(self, scope, with_old_epoch, *how)

    replaced(MemoryTerms, "change", again)


def _wall_clock(replaced: Replaced) -> None:
    class Wall:
        def __init__(self, clock: Any) -> None:
            self._clock = clock

        def monotonic_s(self) -> float:
            return float(self._clock.wall_ms() / 1000)

    before = Patience.__init__

    def init(self: Patience, clock: Any, *, ttl_s: float) -> None:
        before(self, Wall(clock), ttl_s=ttl_s)  # type: ignore[arg-type] # all that patience asks of a clock

    replaced(Patience, "__init__", init)


def _no_margin(replaced: Replaced) -> None:
    replaced(Patience, "until_s", lambda self, asked_s: asked_s + self._ttl_s * 1.5)


def _no_patience(replaced: Replaced) -> None:
    replaced(Patience, "is_over", lambda self, scope, epoch, renewals: True)


def _never_lost(replaced: Replaced) -> None:
    renew = ObservedElection.renew

    def kept(self: ObservedElection, leadership: Leadership) -> Leadership | None:
        return renew(self, leadership) or leadership

    replaced(ObservedElection, "renew", kept)


def _expired_leader_acts(replaced: Replaced) -> None:
    replaced(Renewal, "prove", lambda self: self._leadership)


def _released_too_early(replaced: Replaced) -> None:
    take = CoordinatorProgram._take

    def early(self: CoordinatorProgram, step: Step) -> Any:
        if isinstance(step, End):
            assert self.coordination.leadership is not None
            self.coordination.release(self.coordination.leadership)
        return take(self, step)

    replaced(CoordinatorProgram, "_take", early)


def _shared_epoch(replaced: Replaced) -> None:
    replaced(MemoryKeyedLog, "claim", MemoryKeyedLog.raise_fence)


PLANTS = {
    "epoch-of-two": Plant(
        "two processes that were elected under one epoch, through a leadership that was deleted, both get it",
        _shared_epoch,
        ("leader-lost", "kill-coordinator", "take-over"),
    ),
    "epoch-reused": Plant("a new leader gets the epoch of the one before", _reuse_epoch),
    "wall-clock-lease": Plant(
        "patience with a leader is measured on the wall clock", _wall_clock, ("clock-jump", "skewed-clocks")
    ),
    "lease-without-margin": Plant("a leader acts for longer than others wait", _no_margin),
    "no-patience": Plant("a leader that lives is succeeded at once", _no_patience),
    "lost-leadership-ignored": Plant(
        "a leader that can not renew goes on", _never_lost, ("take-over", "leader-lost")
    ),
    "expired-leader-acts": Plant(
        "queued actions are done after the leadership is over",
        _expired_leader_acts,
        ("stall-after", "take-over"),
    ),
    "released-before-the-end": Plant(
        "the leadership is given up before the terminal state is written",
        _released_too_early,
        ("stop-and-run",),
    ),
}
