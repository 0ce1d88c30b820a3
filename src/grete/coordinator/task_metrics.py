"""What containers report of their own metrics and their tasks', as families for Prometheus.

A family is named after kind and metric, `grete_counter_NAME_total`, `grete_gauge_NAME`, `grete_timer_NAME_count` and
`grete_timer_NAME_sum`, with what Prometheus does not take in NAME written `_`. The label `name` has it unchanged, so
that two metrics of one family never are one sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grete.coordinator.progress import ContainerProgress
from grete.model.ids import JobId
from grete.wire.metric_values import Count, Durations, Level, Metrics, MetricValue
from grete.wire.prometheus_text import Family

_FOREIGN = re.compile(r"[^a-zA-Z0-9_]")


def reported_metrics(job: JobId, progress: Mapping[str, ContainerProgress]) -> Iterator[Family]:
    """Every family that a container has reported, sorted; `task` is empty for the container's own metrics."""
    families: dict[str, Family] = {}
    for container, one in sorted(progress.items()):
        if one.metrics is None:
            continue
        for task, metrics in [("", one.metrics.container), *sorted(one.metrics.tasks.items())]:
            _add(families, metrics, job=job.key, container=container, task=task)
    return iter(family for _, family in sorted(families.items()))


def _add(families: dict[str, Family], metrics: Metrics, **labels: str) -> None:
    for group, values in metrics.items():
        for name, value in values.items():
            for made, number in _samples(name, value):
                families.setdefault(made.name, made).add(number, **labels, group=group, name=name)


def _samples(name: str, value: MetricValue) -> Iterator[tuple[Family, int | float]]:
    plain = _FOREIGN.sub("_", name)
    match value:
        case Count(number):
            yield Family(f"grete_counter_{plain}_total", "counter", f"Samza's counter {name}."), number
        case Level(int() | float() as number):
            yield Family(f"grete_gauge_{plain}", "gauge", f"Samza's gauge {name}."), number
        case Durations(count, total):
            yield Family(f"grete_timer_{plain}_count", "counter", f"Durations of the timer {name}."), count
            yield Family(f"grete_timer_{plain}_sum", "counter", f"Sum of the timer {name}."), total
