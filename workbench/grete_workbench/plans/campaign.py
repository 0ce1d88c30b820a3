"""Stories through both planners, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from grete_workbench.plans import ours
from grete_workbench.plans.accepted import Case, reason_of
from grete_workbench.plans.compare import Answer, first_difference
from grete_workbench.plans.stories import Story

PlanStory = Callable[[Story], Sequence[Answer]]
_KEPT = 20


@dataclass(slots=True)
class Report:
    """Findings of a campaign. Accepted differences are counted by name; of unexplained ones the first 20 are kept."""

    cases: int = 0
    starts: int = 0
    refused: int = 0
    agreed: int = 0
    in_bytes: Counter[str] = field(default_factory=Counter)
    in_plans: Counter[str] = field(default_factory=Counter)
    unexplained: int = 0
    found: list[Case] = field(default_factory=list)


def run(stories: Iterable[Story], samza: PlanStory) -> Report:
    """Plan every story with both."""
    report = Report()
    for story in stories:
        theirs = samza(story)
        report.cases += 1
        report.starts += len(story.starts)
        report.refused += sum(answer.refused is not None for answer in theirs)
        case = _compared(story, theirs, samza)
        accepted = None if case is None else reason_of(case)
        if case is None:
            report.agreed += 1
        elif accepted is None:
            report.unexplained += 1
            if len(report.found) < _KEPT:
                report.found.append(case)
        else:
            (report.in_bytes if case.difference.in_bytes else report.in_plans)[accepted.name] += 1
    return report


def _compared(story: Story, theirs: Sequence[Answer], samza: PlanStory) -> Case | None:
    mine = ours.plan(story)
    difference = first_difference(theirs, mine)
    if difference is None:
        return None
    return Case(story, difference, theirs, mine, lambda changed: _compared(changed, samza(changed), samza))
