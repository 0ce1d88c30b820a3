"""Metrics on their way: additions from a worker to its container, and totals from a container to its coordinator.

Plain values, so that any channel can carry them. Names and groups are Samza's: `group -> name -> value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

_BELOW = 2**63
_Whole = Annotated[int, Meta(ge=-_BELOW, le=_BELOW - 1, extra_json_schema={"format": "int64"})]

TASK_GROUP = "org.apache.samza.container.TaskInstanceMetrics"
CONTAINER_GROUP = "org.apache.samza.container.SamzaContainerMetrics"


class Count(Struct, frozen=True, tag="counter", omit_defaults=True):
    """A counter: an addition, or with `is_set` and in totals its value."""

    value: _Whole
    is_set: bool = False


class Level(Struct, frozen=True, tag="gauge"):
    """A gauge's last value; None is also a number that JSON has not."""

    value: _Whole | float | str | bool | None


class Durations(Struct, frozen=True, tag="timer"):
    """A timer: how many durations were measured, and their sum. Samza's own timers are in nanoseconds."""

    count: _Whole
    total: float


ENGINE = "spark."
"""Groups of a container's metrics that begin so are Spark's of a pipeline's query."""
MetricValue = Count | Level | Durations
Metrics = Mapping[str, Mapping[str, MetricValue]]
"""Group -> name -> value."""


class ReportedMetrics(Struct, frozen=True):
    """Totals of a container and of its tasks, since it started. Texts are left out."""

    container: dict[str, dict[str, MetricValue]]
    tasks: dict[str, dict[str, dict[str, MetricValue]]]


def added(before: Metrics, after: Metrics) -> Metrics:
    """Additions that followed each other, as one."""
    return {
        group: {**before.get(group, {}), **_added_to(before.get(group, {}), after.get(group, {}))}
        for group in {**before, **after}
    }


def _added_to(before: Mapping[str, MetricValue], after: Mapping[str, MetricValue]) -> dict[str, MetricValue]:
    return {name: _sum(before[name], value) if name in before else value for name, value in after.items()}


def _sum(before: MetricValue, after: MetricValue) -> MetricValue:
    match before, after:
        case Count(), Count():
            return after if after.is_set else Count(before.value + after.value, before.is_set)
        case Durations(), Durations():
            return Durations(before.count + after.count, before.total + after.total)
    return after
