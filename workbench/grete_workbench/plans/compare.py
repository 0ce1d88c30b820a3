"""A planner's answer to one start, and the first difference between two of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A job model as it is served, its id, and what the stream remembers; or why there is none."""

    refused: str | None = None
    model: str = ""
    id: str = ""
    containers: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changelog: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two planners part: at the start `at`, in `what`. `in_bytes` alone: the same plan, written otherwise."""

    at: int
    what: str
    samza: str
    ours: str
    in_bytes: bool = False

    def __str__(self) -> str:
        return f"start {self.at}: {self.what}\n    Samza {self.samza[:1_500]}\n    grete {self.ours[:1_500]}"


def first_difference(samza: Sequence[Answer], ours: Sequence[Answer]) -> Difference | None:
    """The first difference of the plans; without one, the first of their bytes."""
    assert len(samza) == len(ours)
    in_bytes: Difference | None = None
    for at, (theirs, mine) in enumerate(zip(samza, ours, strict=True)):
        if theirs.refused is not None or mine.refused is not None:
            if theirs.refused is None or mine.refused is None:
                return Difference(at, "refused", theirs.refused or "plans", mine.refused or "plans")
            continue
        for what, one, other in _plans(theirs, mine):
            if one != other:
                return Difference(at, what, *_shown(one, other))
        if in_bytes is None:
            in_bytes = next(
                (
                    Difference(at, what, *_shown(one, other), in_bytes=True)
                    for what, one, other in _bytes(theirs, mine)
                    if one != other
                ),
                None,
            )
    return in_bytes


def _plans(samza: Answer, ours: Answer) -> list[tuple[str, Any, Any]]:
    return [
        ("containers and tasks", _without_order(samza.model), _without_order(ours.model)),
        ("remembered containers", samza.containers, ours.containers),
        ("remembered modes", samza.modes, ours.modes),
        ("remembered tasks", _sorted(samza.tasks), _sorted(ours.tasks)),
        ("changelog mapping", samza.changelog, ours.changelog),
    ]


def _bytes(samza: Answer, ours: Answer) -> list[tuple[str, Any, Any]]:
    return [
        ("bytes of the job model", samza.model, ours.model),
        ("job model id", samza.id, ours.id),
        ("order of remembered tasks", samza.tasks, ours.tasks),
    ]


def _sorted(tasks: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {ssp: sorted(names) for ssp, names in tasks.items()}


def _without_order(model: str) -> Any:
    document = json.loads(model)
    for container in document["containers"].values():
        for task in container["tasks"].values():
            task["system-stream-partitions"].sort(key=json.dumps)
    return document


def _shown(one: Any, other: Any) -> tuple[str, str]:
    """Both as text, from shortly before where they part."""
    texts = [each if isinstance(each, str) else json.dumps(each, sort_keys=True) for each in (one, other)]
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, same - 200)
    before = "..." if start else ""
    return before + texts[0][start : start + 900], before + texts[1][start : start + 900]
