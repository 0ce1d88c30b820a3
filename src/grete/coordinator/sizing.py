"""How many containers a job needs, from how it does: pure, so that the same figures always give the same sizes.
Of a pipeline these are executors.

The rule, in the order in which it is asked with each figure:

1. Figures that are missing, or of a number of containers that has changed within the last half minute, say nothing.
2. Nothing is processed though there is something to process: no size helps, and none is chosen.
3. What a container can do is learned while all are at their limit, which is when the job is behind the whole time.
4. More: it was behind by more than its lag target the whole time, or took nine tenths of what its containers can do.
   As many as do what arrives, and what it is behind within one lag target, at the utilization; twice as many at most.
   Not when one partition has most of what it is behind, and not when more have not helped: not for half
   an hour, and for twice as long each time that it did not again.
5. Fewer: it was a quarter of its lag target behind at most, for long. As many as do the most that arrived, at the
   utilization; half as many at least. While it is unknown what one can do, a quarter less. Never so few that what
   was computed at most would take more than the utilization of their processors.

Between 4's nine tenths and 5's utilization there is room, so that one is never undone by the other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from grete.coordinator.figure_file import Figures

_SETTLES_S = 30.0
"""Containers that came or went, and tasks that moved, need about so long until they do what they can."""
_ABOUT = 1.1
"""Figures come some milliseconds late: those of 20 seconds are two or three of them."""
_GAP_S = 60.0
"""Figures that are further apart are not of the same time: a coordinator was away."""
_LIMIT_S = 5.0
"""Behind by less is what a commit in progress makes of a job that keeps up."""
_OF_ONE_PARTITION = 0.5
_FORGETS = 0.98
"""What a container could do is believed for a while: one may be behind yet while others have nothing left to do."""
_FULL = 0.9
_HELPS = 1.1
_HOLDS_S, _HOLDS_AT_MOST_S = 1_800.0, 8 * 3_600.0


@dataclass(frozen=True, slots=True)
class SizingRule:
    """`job.autosizing.*`: bounds of the number, targets, and for how long something has to be so.

    `unit` is what is counted, `cores` how many processors one has, None where that is not known.
    """

    least: int
    most: int
    lag_s: float
    utilization: float
    up_after_s: float
    down_after_s: float
    unit: str = "container"
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class Sizing:
    """Another number of containers or executors than there are, and why in words with figures."""

    containers: int
    why: str
    before: int
    unit: str = "container"

    def __str__(self) -> str:
        return f"{self.before} to {self.containers} {self.unit}s: {self.why}"


class Sizer:
    """Follows the figures of one job."""

    def __init__(self, rule: SizingRule) -> None:
        self._rule = rule
        self._seen: deque[Figures] = deque()
        self._since_s: float | None = None
        self._containers: int | None = None
        self._of_one: float | None = None
        self._tried: tuple[int, int, float] | None = None
        self._holds_until_s, self._holds_s = float("-inf"), _HOLDS_S
        self.standing = "nothing is known of the job yet"
        """What it does, or why it does nothing, in words."""

    def observe(self, now: Figures) -> Sizing | None:
        """Take in figures, later than those before; another size if one is needed now."""
        if now.behind is None or now.records_per_s is None or not now.containers:
            self._forget(now.containers)
            self.standing = "it is not known how far the job is behind, or how much it processes"
            return None
        if now.containers != self._containers or (self._seen and now.at_s - self._seen[-1].at_s > _GAP_S):
            self._forget(now.containers)
        if self._since_s is None:
            self._since_s = now.at_s
        if (bounds := self._out_of_bounds(now.containers)) is not None:
            return bounds
        if now.at_s - self._since_s < _SETTLES_S:
            self.standing = f"{now.containers} {self._units} begin"
            return None
        self._seen.append(now)
        longest_s = max(self._rule.up_after_s, self._rule.down_after_s)
        while now.at_s - self._seen[0].at_s > _ABOUT * longest_s:
            self._seen.popleft()
        return self._decided(now.containers)

    def wait(self, asked: int) -> None:
        """So many containers are to run, and others still do: nothing that is measured now counts."""
        self._forget(None)
        self.standing = f"waits until {asked} {self._units} run"

    @property
    def _units(self) -> str:
        return f"{self._rule.unit}s"

    def _forget(self, containers: int | None) -> None:
        self._seen.clear()
        self._since_s, self._containers = None, containers

    def _out_of_bounds(self, containers: int) -> Sizing | None:
        rule = self._rule
        wanted = min(max(containers, rule.least), max(rule.most, 1))
        if wanted == containers:
            return None
        why = f"the bounds are {rule.least} and {rule.most} {self._units}"
        return Sizing(wanted, why, containers, rule.unit)

    def _decided(self, containers: int) -> Sizing | None:
        recent = self._window(self._rule.up_after_s)
        if not recent:
            self.standing = f"holds at {containers}: too little is known of it"
            return None
        load = Load.of(recent)
        if load.behind and not load.rate:
            self.standing = (
                f"holds at {containers}: nothing is processed, and more {self._units} do not mend that"
            )
            return None
        self._learn(load, containers)
        is_late = load.least_behind_s > self._rule.lag_s
        tried, self._tried = self._tried, None
        if tried is not None and tried[1] == containers and is_late:
            if load.rate < _HELPS * tried[2]:
                return self._undone(load, *tried[:2])
            self._holds_s = _HOLDS_S
        return self._more(load, containers, is_late=is_late) or self._fewer(load, containers)

    def _window(self, seconds: float) -> Sequence[Figures]:
        """The figures of so many seconds; none while there are not so many."""
        last_s = self._seen[-1].at_s
        found = [one for one in self._seen if last_s - one.at_s <= _ABOUT * seconds]
        return found if _ABOUT * (last_s - found[0].at_s) >= seconds else ()

    def _learn(self, load: Load, containers: int) -> None:
        share = load.rate / containers
        if load.is_at_limit and (containers == 1 or load.of_one_partition < _OF_ONE_PARTITION):
            self._of_one = max(share, _FORGETS * (self._of_one or 0.0))
        elif self._of_one is not None:
            self._of_one = max(self._of_one, share)

    def _more(self, load: Load, containers: int, *, is_late: bool) -> Sizing | None:
        rule, of_one = self._rule, self._of_one
        is_full = of_one is not None and load.arrives > _FULL * of_one * containers
        self.standing = f"holds at {containers}: {load}"
        if not (is_late or is_full) or of_one is None:
            return None
        if load.of_one_partition >= _OF_ONE_PARTITION:
            self.standing += f"; {load.of_one_partition:.0%} of it is in one partition, which is one task's"
            return None
        if containers >= rule.most:
            self.standing += f"; no more {self._units} are allowed, or there is nothing for them"
            return None
        if self._seen[-1].at_s < self._holds_until_s:
            minutes = (self._holds_until_s - self._seen[-1].at_s) / 60
            self.standing += (
                f"; more {self._units} have not processed more, which is tried again in {minutes:.0f} minutes"
            )
            return None
        needed = (load.arrives + load.behind / rule.lag_s) / (rule.utilization * of_one)
        wanted = min(max(math.ceil(needed), containers + 1), 2 * containers, rule.most)
        self._tried = (containers, wanted, load.rate)
        return self._sized(wanted, f"{load}; one {rule.unit} does {of_one:.0f} records/s")

    def _undone(self, load: Load, before: int, containers: int) -> Sizing:
        """Back to as many as before, when more have not processed more: something else is the limit."""
        self._holds_until_s = self._seen[-1].at_s + self._holds_s
        self._holds_s = min(2 * self._holds_s, _HOLDS_AT_MOST_S)
        self._of_one = None
        return self._sized(before, f"{containers} {self._units} process no more than {before} did: {load}")

    def _fewer(self, load: Load, containers: int) -> Sizing | None:
        rule, calm = self._rule, self._window(self._rule.down_after_s)
        if containers <= rule.least or not calm or Load.of(calm).most_behind_s > rule.lag_s / 4:
            return None
        most = max(one.records_per_s or 0.0 for one in calm)
        if self._of_one is None:
            fewer = max(1, containers // 4) if most else containers // 2
            wanted = max(containers - fewer, rule.least)
            known = f"what one {rule.unit} can do is not known yet"
        else:
            needed = math.ceil(most / (rule.utilization * self._of_one)) if most else 0
            wanted = max(needed, math.ceil(containers / 2), rule.least)
            known = f"one {rule.unit} does {self._of_one:.0f} records/s"
        busy = max(one.cpu or 0.0 for one in calm)
        if rule.cores and (for_cpu := math.ceil(busy / (rule.utilization * rule.cores))) > wanted:
            wanted, known = for_cpu, f"{known}; they use {busy:.1f} processors, and one has {rule.cores}"
        if wanted >= containers:
            return None
        minutes = rule.down_after_s / 60
        return self._sized(wanted, f"{most:.0f} records/s at most for {minutes:.0f} minutes; {known}")

    def _sized(self, wanted: int, why: str) -> Sizing:
        self._seen.clear()
        self.standing = f"goes to {wanted}: {why}"
        return Sizing(wanted, why, self._containers or 0, self._rule.unit)


@dataclass(frozen=True, slots=True)
class Load:
    """What some figures, oldest first, say together."""

    rate: float
    """Records processed a second."""
    arrives: float
    """Records that came in a second."""
    behind: int
    """Records to process at the end."""
    least_behind_s: float
    """How long what was to be processed would take at this rate, at the best moment."""
    most_behind_s: float
    of_one_partition: float
    """The share of one partition in what was to be processed at the end, 0 where it is not known."""
    is_at_limit: bool

    @classmethod
    def of(cls, figures: Sequence[Figures]) -> Load:
        """Of figures whose numbers are known."""
        rates = [one.records_per_s or 0.0 for one in figures]
        left = [one.behind or 0 for one in figures]
        first, last = figures[0], figures[-1]
        rate = sum(rates) / len(rates)
        took_s = last.at_s - first.at_s
        arrives = max(0.0, rate + (left[-1] - left[0]) / took_s) if took_s > 0 else rate
        pace = max(rate, 1e-9)
        worst = last.worst or 0
        limits = [max(_LIMIT_S, 3 * (one.commit_s or 0.0)) for one in figures]
        return cls(
            rate,
            arrives,
            left[-1],
            min(left) / pace,
            max(left) / pace,
            worst / left[-1] if left[-1] else 0.0,
            all(behind / pace > limit for behind, limit in zip(left, limits, strict=True)),
        )

    def __str__(self) -> str:
        behind_s = self.behind / self.rate if self.rate else 0.0
        return f"{self.behind} records behind, {behind_s:.0f} s; {self.arrives:.0f} records/s arrive"
