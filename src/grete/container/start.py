"""A container's start, before it reads anything: fence, checkpoints, startpoints, offsets, outputs.

`prepare` is how every container begins, whatever runs its batches. `steps` is the same sequence, stopping where
other processes may act in between: the simulator runs these.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from grete.checkpoint.offset_manager import Skipped, StartingOffsets, resumed, starting_offsets
from grete.checkpoint.store import CheckpointStore
from grete.checkpoint.task_commit import TaskCommit
from grete.clock import Clock
from grete.config.log_levels import log_levels, set_levels
from grete.container.assignment import Assignment
from grete.container.checkpoints import commit_target, reconcile_checkpoint_store
from grete.container.process_state import EndedEpoch
from grete.container.rewind import apply_startpoints
from grete.container.samza_state import take_over
from grete.container.specs import runner_spec, store_positions
from grete.errors import StreamRecreated
from grete.failpoints import failpoint
from grete.metadata.access import open_coordinator_stream
from grete.metadata.history import History
from grete.model.fence import Fence
from grete.model.ids import TaskName
from grete.systems.base import System
from grete.systems.outputs import OutputSystems, check_outputs
from grete.tasks.application import check_application
from grete.tasks.commit.base import CommitTarget, CommittedTasks

_log = logging.getLogger("grete.container")
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Started:
    """A container that may read: older incarnations are fenced off, and no other program moves its checkpoints.

    `epoch` is the right of the epoch that begins. `commits` is what is committed of its tasks, `starting` where each
    begins. What another run of the container has committed since is in the checkpoint log after `log_end`. `others`
    are the systems that it reads from beside its own. `rewound_ms` is when an operator asked for the oldest of the
    moves that this start has made.
    """

    assignment: Assignment
    epoch: Fence
    system: System
    home: Path
    target: CommitTarget
    commits: Mapping[TaskName, TaskCommit]
    starting: StartingOffsets
    log_end: int
    others: Mapping[str, System] = field(default_factory=dict)
    rewound_ms: int | None = None

    @property
    def systems(self) -> dict[str, System]:
        """All systems that the container reads from, the one that it commits to among them."""
        return {self.system_name: self.system, **self.others}

    @property
    def system_name(self) -> str:
        """The system that the container's checkpoints are in."""
        return self.assignment.settings.task.commit_system

    @property
    def next_offsets(self) -> dict[str, int]:
        """The next offset to read of each SSP, by its text."""
        return {str(ssp): int(offset) for ssp, offset in self.starting.by_ssp.items()}

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The offsets that no task processes, since retention has removed them; for `report_skipped`."""
        return self.starting.skipped

    def committed_tasks(self, lineage: str) -> CommittedTasks:
        """The committed state of the container's StreamTasks, which an epoch of this lineage builds on.

        Raises:
            ConfigError: no task.class.
            StreamNotFound: a changelog is not there.
        """
        spec = runner_spec(self.assignment, self.system, self.home, self.log_end, self.epoch)
        positions = store_positions(spec, self.system, self.commits)
        return CommittedTasks(spec, self.target, lineage, resumed(self.commits, self.starting), positions)


def prepare(
    assignment: Assignment,
    system: System,
    store: CheckpointStore | None,
    clock: Clock,
    home: Path,
    *,
    ended: EndedEpoch | None = None,
    others: Mapping[str, System] = MappingProxyType({}),
) -> Started:
    """Begin: `store` is what `task.checkpoint.factory` names, see `checkpoint_store`; `ended` the epoch
    before, if nothing of it is at work; `others` the systems of its inputs but for `system`.

    Durable on return: the fence and the epoch's right, what an operator or Samza moved, and applied startpoints.

    Raises:
        ConfigError, ApplicationError: the application cannot be loaded.
        StreamRecreated: an input was deleted and recreated.
        Fenced: another incarnation has taken over.
        LogCorrupted, OffsetOutOfRange, JobError: see `reconcile_checkpoint_store`, `take_over`, `apply_startpoints`
            and `starting_offsets`.
    """
    remaining = steps(assignment, system, store, clock, home, ended=ended, others=others)
    while True:
        try:
            next(remaining)
        except StopIteration as end:
            started: Started = end.value
            return started


def steps(
    assignment: Assignment,
    system: System,
    store: CheckpointStore | None,
    clock: Clock,
    home: Path,
    *,
    ended: EndedEpoch | None = None,
    others: Mapping[str, System] = MappingProxyType({}),
) -> Generator[None, None, Started]:
    """As `prepare`; stops after each step, the first of which raises the fence and begins an epoch."""
    settings, name = assignment.settings, assignment.settings.task.commit_system
    set_levels(log_levels(settings.job.modules_folder))
    check_application(settings)
    target = commit_target(assignment, system, clock, store)
    right = system.begin_epoch(assignment.fence) if ended is None else ended.right
    failpoint("container.fence-raised")
    yield
    systems = {name: system, **others}
    check_inputs(assignment, systems)
    log_end = system.checkpoint_log(target.checkpoint_log).end()
    commits = reconcile_checkpoint_store(assignment, system, target, None if ended is None else ended.known)
    yield
    commits = take_over(assignment, system, target, commits)
    commits, rewound_ms = apply_startpoints(assignment, system, target, commits, systems)
    yield
    starting = starting_offsets(
        {task.name: task.ssps for task in assignment.tasks},
        {task: commit.offsets for task, commit in commits.items()},
        settings,
        systems,
    )
    with closing(OutputSystems(settings, name, system, home, clock)) as outputs:
        check_outputs(settings, outputs)
    failpoint("container.outputs-checked")
    return Started(assignment, right, system, home, target, commits, starting, log_end, others, rewound_ms)


def check_inputs(assignment: Assignment, systems: Mapping[str, System]) -> None:
    """Whether the inputs are still those that the job model was made of.

    Raises:
        StreamRecreated: one was deleted and recreated. Checkpoints are offsets of the old one.
        StreamError: no answer.
    """
    for stream in sorted({ssp.system_stream for ssp in assignment.ssps}):
        known = assignment.input_uids.get(stream)
        now = systems[stream.system].stream_uid(stream.stream) if known else ""
        if now and now != known:
            raise StreamRecreated(
                f"{stream} was deleted and recreated while the job ran (id {known}, now {now}); its checkpoints are "
                f"offsets of the old one. Stop the job and run it again: it explains how to resume"
            )


def report_skipped(assignment: Assignment, skipped: Sequence[Skipped], home: Path) -> None:
    """Log an error for each, and write one row `offsets-skipped` into the job's history. Durable on return.

    A container that dies before it has committed anything beyond reports it again.

    Raises:
        LogError: the row was not written.
    """
    if not skipped:
        return
    for one in skipped:
        _log.error("%s: retention has removed them, and task.lost-offsets.policy=skip", one)
    shown = "; ".join(map(str, skipped[:_SHOWN]))
    with open_coordinator_stream(assignment.settings, assignment.job, home) as stream:
        History(stream).append(
            "offsets-skipped",
            container=str(assignment.container_id),
            partitions=str(len(skipped)),
            skipped=shown if len(skipped) <= _SHOWN else f"{shown}; and more, see the container's log",
        )
