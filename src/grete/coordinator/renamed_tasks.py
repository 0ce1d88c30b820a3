"""SSPs that come to another task than the one whose checkpoint says how far they were read (S2-110).

A checkpoint is a task's. Another SSP grouper, or elasticity factor, gives the tasks other names, so each SSP would
begin where its offset default says, or where a task of that name has ended long ago, and what lies between would be
left out or processed again. Samza refuses the other grouper by the name in the checkpoint's key, and says nothing of
another factor; here the positions themselves are compared, so a model that keeps them is never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from grete.checkpoint.task_commit import Commits
from grete.config.key_tables.job import ELASTICITY, SSP_GROUPER
from grete.config.key_tables.task import BROADCAST
from grete.config.settings import Settings
from grete.coordinator.replaced_inputs import RequestedStarts
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.job import JobModel, TaskMode

_NAMED = 5
"""SSPs that a refusal names; the others are counted."""

TaskSsps = Mapping[TaskName, Sequence[SystemStreamPartition]]
_Readers = dict[SystemStreamPartition, set[TaskName]]


def renamed_tasks(
    stream: CoordinatorStream,
    settings: Settings,
    model: JobModel,
    previous: TaskSsps,
    read_commits: Callable[[], Commits],
    now_ms: int,
) -> Iterator[str]:
    """A problem, with the way out, when SSPs have checkpoints and none of the tasks that read them has the last one.

    `previous` are the SSPs of each task in the last model; checkpoints are read only when an SSP has left its task.
    """
    readers = _readers({t.name: t.ssps for t in model.tasks.values() if t.mode is TaskMode.ACTIVE})
    before = _readers(previous)
    moved = {ssp: tasks for ssp, tasks in readers.items() if not tasks & before.get(ssp, set())}
    if not moved:
        return
    commits = read_commits()
    read = _readers({task: tuple(commit.offsets) for task, commit in commits.items()})
    asked = RequestedStarts(stream, now_ms)

    def keeps_place(ssp: SystemStreamPartition, tasks: set[TaskName]) -> bool:
        last = {commits[task].offsets[ssp] for task in before.get(ssp, set()) & read.get(ssp, set())}
        if not last:
            return bool(tasks & read.get(ssp, tasks))
        now = {commits[task].offsets.get(ssp) if task in commits else None for task in tasks}
        return now == last

    lost = [
        ssp
        for ssp, tasks in sorted(moved.items())
        if not keeps_place(ssp, tasks)
        and not settings.stream(ssp.system_stream).is_reset
        and not asked.cover(ssp, tasks)
    ]
    if lost:
        yield _problem(settings, lost, readers, before, read, commits)


def _readers(ssps: TaskSsps) -> _Readers:
    readers: _Readers = {}
    for task, of_task in ssps.items():
        for ssp in of_task:
            readers.setdefault(ssp.whole, set()).add(task)
    return readers


def _problem(
    settings: Settings,
    lost: Sequence[SystemStreamPartition],
    readers: _Readers,
    before: _Readers,
    read: _Readers,
    commits: Commits,
) -> str:
    named = []
    for ssp in lost[:_NAMED]:
        was, now = min(before.get(ssp, set()) & read[ssp] or read[ssp]), min(readers[ssp])
        named.append(f"{ssp} was read up to {commits[was].offsets[ssp]} by {was!r} and comes to {now!r}")
    more = f", and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    streams = sorted({ssp.system_stream for ssp in lost})
    resets = [f"{settings.stream(one).key('samza.reset.offset')}=true" for one in streams[:_NAMED]]
    return (
        f"{'; '.join(named)}{more}: a checkpoint is a task's, so the new one would not go on there but begin at its "
        f"offset default, and records would be left out or processed again. Another {SSP_GROUPER.name} does this: "
        f"set it back to what it was (`grete config history` shows it); another {BROADCAST.name} may, too. Another "
        f"{ELASTICITY.name} does so when `config set` changes it: set it back, and let `grete job elasticity` change "
        f"it, which keeps the place. To "
        f"start over, say so for one run with {', '.join(resets)} and samza.offset.default=oldest or "
        f"upcoming, or give the job a new job.id"
    )
