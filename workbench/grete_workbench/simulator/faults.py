"""Which faults a seed has, and how often.

Every seed draws a subset of the kinds and a rate for each, so that some seeds have one kind only and others all of
them. After `calm` nothing goes wrong any more: what is left is to see that the job gets to its end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

WRITE_KINDS = (
    "die-before",
    "die-after",
    "stall-before",
    "stall-after",
    "in-doubt-lost",
    "in-doubt-written",
    "refused",
)
"""At a write: the process dies, or is paused in the middle of the call, or does not learn of the outcome."""
NETWORK_KINDS = ("request-lost", "answer-lost", "delayed", "repeated")
PROCESS_KINDS = (
    "kill-container",
    "kill-coordinator",
    "pause-container",
    "pause-coordinator",
    "disk-full",
    "clock-jump",
    "compact",
    "leader-lost",
)
SHARE_KINDS = ("kill-share", "pause-share", "lose-share", "cut-share")
"""At a share alone: its process, Spark's belief in it, or its connection to its container."""
LINE_KINDS = ("late-message",)
"""At each message between a share and its container; those after it wait for it."""
OPERATOR_KINDS = (
    "config",
    "unset",
    "set-once",
    "container-count",
    "expand",
    "rewind",
    "stop-and-run",
    "container-request",
    "take-over",
    "foreign-record",
)
MEMBER_KINDS = (
    "join",
    "leave",
    "second-of-its-id",
    "cells-silent",
    "leader-gone-amid-a-hand-over",
)
"""At the stream processors of a job, in worlds that have them."""
LASTING_KINDS = ("skewed-clocks", "kills-lost", "two-hosts")
"""These are there for as long as there are faults."""
UNFIT_CONFIG = "unfit-config"
HOSTILE_KINDS = ("forged-pause", "killed-at-a-late-report", UNFIT_CONFIG)
"""Faults that come just when they hurt: a forged report in a container's name, whose machine stands still; the end of
an attempt at a share just when a report of the attempt before it arrives; a configuration with which a container does
not get to work. Only in seeds that enable them, of which
most have no other faults than they ask for. A late report alone was found to be taken in 2 of 1,600 seeds.
"""
_ALONE = 0.7
_WEIGHTS = {
    "container-count": 4.0,
    "config": 2.0,
    "rewind": 2.0,
    "pause-container": 3.0,
    "kill-coordinator": 2.0,
    "kill-container": 2.0,
}
"""Faults that find more are tried more often."""


_ANY = (
    *WRITE_KINDS,
    *NETWORK_KINDS,
    *PROCESS_KINDS,
    *SHARE_KINDS,
    *LINE_KINDS,
    *OPERATOR_KINDS,
    *LASTING_KINDS,
    "forged-pause",
    UNFIT_CONFIG,
)


def frequent(seed: int, *, embedded: bool = False) -> tuple[str, ...]:
    """A few kinds of faults that a seed may have more often, and tasks that move in most.

    In seeds that draw their faults alone some combinations are too rare: of a container that ends while a share of it
    is taken for lost, and gives its tasks to others, there was none in 20,000.
    """
    chance = random.Random(f"frequent {seed}")  # noqa: S311 - faults, no secrets
    kinds = chance.sample((*_ANY, *(MEMBER_KINDS * 2 if embedded else ())), chance.choice((2, 3, 4)))
    moves = () if embedded or chance.random() < 0.4 else ("container-count",)
    return tuple(dict.fromkeys((*moves, *kinds)))


@dataclass(slots=True)
class Faults:
    """The faults of one seed. `rates` has each kind's probability per occasion; absent kinds never happen."""

    chance: random.Random
    rates: dict[str, float]
    is_disk_full: bool = False

    @classmethod
    def draw(cls, chance: random.Random, emphasis: Sequence[str], *, embedded: bool = False) -> Faults:
        """Choose kinds and rates; those of `emphasis` are there in any case."""
        rates: dict[str, float] = {}
        members = ((MEMBER_KINDS, 1.0),) if embedded else ()
        groups: tuple[tuple[tuple[str, ...], float], ...] = (
            *members,
            (WRITE_KINDS, 0.006),
            (NETWORK_KINDS, 0.05),
            (PROCESS_KINDS, 1.0),
            (SHARE_KINDS, 1.0),
            (LINE_KINDS, 0.1),
            (OPERATOR_KINDS, 1.0),
            (LASTING_KINDS, 1.0),
        )
        for kinds, usual in groups:
            share = chance.choice((0.1, 0.4, 0.7, 1.0))
            for kind in kinds:
                strong = kind in emphasis
                if chance.random() < share or strong:
                    rates[kind] = usual * (3.0 if strong else chance.choice((0.5, 1.0, 3.0)))
        hostile = [kind for kind in HOSTILE_KINDS if kind in emphasis]
        rates.update(dict.fromkeys(hostile, 1.0))
        if hostile and chance.random() < _ALONE:
            rates = {kind: rates[kind] for kind in emphasis}
        return cls(chance, rates)

    def has(self, kind: str) -> bool:
        """Whether the seed has this kind."""
        return kind in self.rates

    def strikes(self, kind: str) -> bool:
        """Whether this kind happens on this occasion."""
        rate = self.rates.get(kind)
        return rate is not None and self.chance.random() < rate

    def among(self, kinds: tuple[str, ...]) -> str | None:
        """One of these kinds, by their rates; None when the seed has none of them."""
        weights = [self.rates.get(kind, 0.0) * _WEIGHTS.get(kind, 1.0) for kind in kinds]
        return self.chance.choices(kinds, weights)[0] if any(weights) else None

    def calm(self) -> None:
        """From now on everything works, and nothing is changed."""
        self.rates = {}
        self.is_disk_full = False
