"""The values between a container and its shares: with what a share begins, and what it has committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grete.tasks.spec import TaskProgress, TaskReport
from grete.wire.metric_values import added
from grete.wire.traces import TracedBatch


@dataclass(frozen=True, slots=True)
class ShareStart:
    """What a share begins with.

    `progress` is what is committed of its `tasks`, and `starting` the next offset of each of its SSPs, by its text.
    Commits of the `lineage` up to `log_end` of the checkpoint log are in it. Tasks in `shut_down` take no part.
    """

    lineage: str
    slot: int
    tasks: tuple[int, ...]
    progress: Mapping[int, TaskProgress]
    starting: Mapping[str, int]
    next_batch: int
    log_end: int
    shut_down: frozenset[int] = frozenset()
    until_drained: bool = False
    bootstrap: tuple[str, ...] = ()
    later: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """Commits of a share: a report for each task that took part, and where those partitions stand that moved."""

    slot: int
    batch_id: int
    reports: Sequence[TaskReport]
    next_offsets: Mapping[str, int]
    commits: int = 1
    bytes: int = 0
    """Of input."""
    traced: tuple[TracedBatch, ...] = ()
    """Those of them that are traced."""
    cpu_s: float = 0.0
    """What the share's process has computed since its report before, in seconds of a processor."""


def merged(before: Committed, after: Committed) -> Committed:
    """Commits of a share that followed each other, as one report."""
    reports = {report.task: report for report in before.reports}
    for report in after.reports:
        earlier = reports.get(report.task)
        reports[report.task] = report if earlier is None else _added(earlier, report)
    return replace(
        after,
        reports=tuple(reports.values()),
        next_offsets={**before.next_offsets, **after.next_offsets},
        commits=before.commits + after.commits,
        bytes=before.bytes + after.bytes,
        traced=before.traced + after.traced,
        cpu_s=before.cpu_s + after.cpu_s,
    )


def _added(before: TaskReport, after: TaskReport) -> TaskReport:
    return replace(
        after,
        records=before.records + after.records,
        dead_letters=before.dead_letters + after.dead_letters,
        last_offsets={**before.last_offsets, **after.last_offsets},
        positions={**before.positions, **after.positions},
        commit_s=before.commit_s + after.commit_s,
        metrics=added(before.metrics, after.metrics),
        shutdown_task=before.shutdown_task or after.shutdown_task,
        shutdown_all=before.shutdown_all or after.shutdown_all,
    )
