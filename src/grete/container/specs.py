"""A container's tasks, stores and inputs as its executors get them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit
from grete.config.settings import Settings
from grete.container.assignment import Assignment
from grete.diagnostics.streams import container_name, diagnostics_config
from grete.errors import ConfigError
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition, TaskName
from grete.systems.base import System
from grete.systems.outputs import written_together
from grete.tasks.read_plan import PARTITIONS_AT_MOST, SourceOptions
from grete.tasks.spec import CommitSpec, RunnerSpec, StoreSpec, TaskSpec


def runner_spec(assignment: Assignment, system: System, home: Path, log_end: int, epoch: Fence) -> RunnerSpec:
    """The container's tasks and stores for the workers of the epoch; its commits were read when the log ended there.

    Raises:
        ConfigError: no task.class.
        StreamNotFound: a changelog is not there.
    """
    settings, ssps = assignment.settings, assignment.ssps
    index = {ssp: i for i, ssp in enumerate(ssps)}
    tasks = tuple(
        TaskSpec(
            i, task.name, tuple(index[ssp] for ssp in task.ssps), task.changelog_partition, task.key_bucket
        )
        for i, task in enumerate(assignment.tasks)
    )
    task_class = settings.job.task_class
    if not task_class:
        raise ConfigError("neither task.class nor app.class is set: name the application as module:Class")
    replicas = settings.job.standby_replicas
    dead_letters = None
    poison, letters = settings.task.poison, settings.task.dead_letters
    if poison.sets_aside and letters is not None:
        dead_letters = settings.system(settings.task.commit_system).name_of(letters) or letters.stream
    return RunnerSpec(
        incarnation=uuid.uuid4().hex,
        job=str(assignment.job),
        settings=settings,
        task_class=task_class,
        application_path=settings.job.application_path,
        application_environment=settings.job.application_environment,
        ssps=ssps,
        tasks=tasks,
        stores=stores(assignment, system),
        store_directory=str(assignment.store_directory(home)),
        default_system=settings.task.commit_system,
        home=str(home),
        dead_letter_stream=dead_letters,
        poison=poison,
        commit=_commit_spec(assignment, log_end, epoch),
        standby_directories=tuple(
            str(assignment.standby_directory(home, replica)) for replica in range(replicas - 1)
        ),
        diagnostics=diagnostics_config(
            settings, assignment.job, container_name(assignment.container_id), home
        ),
    )


def _commit_spec(assignment: Assignment, log_end: int, epoch: Fence) -> CommitSpec:
    name = checkpoint_log_name(assignment.job)
    settings = assignment.settings
    system = settings.system(settings.task.commit_system)
    written = written_together(settings, system.name)
    outputs = tuple(system.name_of(stream) or stream.stream for stream in written)
    return CommitSpec(
        assignment.fence,
        epoch,
        name,
        settings.job.ssp_grouper,
        log_end,
        outputs,
    )


def stores(assignment: Assignment, system: System) -> tuple[StoreSpec, ...]:
    """The job's stores, with the changelog streams as they are now.

    Raises:
        StreamNotFound: a changelog is not there.
    """
    settings = assignment.settings
    specs = []
    for name in settings.store_names:
        stream = settings.store(name).changelog_stream(assignment.job)
        specs.append(StoreSpec(name, stream, system.stream_uid(stream), settings.store(name).ttl_ms))
    return tuple(specs)


def store_positions(
    spec: RunnerSpec, system: System, commits: Mapping[TaskName, TaskCommit]
) -> dict[int, dict[str, int]]:
    """Where each task's changelogs end now: everything in them is committed, so that is the task's state.

    What one offset behind the last commit's end is, is that commit's own mark, so the end stays where it was.
    """
    ends = {store.name: system.offsets(store.changelog_stream) for store in spec.stores}

    def position(task: TaskSpec, store: str) -> int:
        end = int(ends[store][task.changelog_partition].upcoming)
        commit = commits.get(task.name)
        is_mark = (
            system.capabilities.has_gaps
            and commit is not None
            and commit.store_positions.get(store) == end - 1
        )
        return end - 1 if is_mark else end

    return {task.index: {store: position(task, store) for store in ends} for task in spec.tasks}


def source_options(
    assignment: Assignment,
    home: Path,
    starting_offsets: Mapping[str, int],
    *,
    by_task: bool,
    slots_at_most: int | None = None,
) -> SourceOptions:
    """The container's inputs; `by_task` for StreamTasks, whose tasks each get a slot.

    Where each reader holds connections, there are no more slots than commit groups, and no more than run at once
    (`slots_at_most`): a share beyond that is an opening, a commit and a turn more.
    """
    settings, ssps = assignment.settings, assignment.ssps
    index = {ssp: i for i, ssp in enumerate(ssps)}
    tasks = tuple(tuple(index[ssp] for ssp in task.ssps) for task in assignment.tasks)
    name = settings.task.commit_system
    is_embedded = all(settings.system(one).capabilities.is_embedded for one in {ssp.system for ssp in ssps})
    partitions_at_most = PARTITIONS_AT_MOST
    if by_task and not is_embedded:
        partitions_at_most = settings.task.commit_groups
    if slots_at_most is not None:
        partitions_at_most = min(partitions_at_most, slots_at_most)
    return SourceOptions(
        system=name,
        config=settings.system(name).own_keys,
        home=str(home),
        ssps=tuple(str(ssp) for ssp in ssps),
        starting_offsets=dict(starting_offsets),
        tasks=tasks if by_task else None,
        partitions_at_most=partitions_at_most,
        max_records=settings.task.max_records_per_batch,
        max_bytes=settings.task.max_bytes_per_batch,
        tick_ms=max(0, settings.task.window_ms) if by_task else 0,
        bootstrap=tuple(
            sorted({str(s.system_stream) for s in ssps if settings.stream(s.system_stream).is_bootstrap})
        ),
        later=_later(assignment, settings) if by_task else {},
    )


def added_partitions(
    system: System, ssps: Sequence[SystemStreamPartition]
) -> Iterator[tuple[SystemStreamPartition, SystemStreamPartition, int]]:
    """The partitions that were added to their stream: where their keys were before, and up to which offset."""
    for stream in sorted({ssp.stream for ssp in ssps}) if system.capabilities.remembers_origins else ():
        held = system.reachable_offsets(stream)
        for ssp in ssps:
            offsets = held.get(ssp.partition) if ssp.stream == stream else None
            if offsets is not None and offsets.origin is not None:
                before = SystemStreamPartition(ssp.system, stream, offsets.origin.partition)
                yield ssp, before, int(offsets.origin.upcoming)


def slots_of(spec: RunnerSpec, at_most: int, origins: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """The tasks of each slot: neighbours together, and a task with the one that `origins` names for it."""
    count, found = len(spec.tasks), dict[int, list[int]]()
    slots = min(count, at_most)
    for task in range(count):
        root = task
        while root in origins:
            root = origins[root]
        found.setdefault(root * slots // count, []).append(task)
    return {slot: tuple(found[key]) for slot, key in enumerate(sorted(found))}


def _later(assignment: Assignment, settings: Settings) -> dict[str, list[str]]:
    """The lower partitions of its stream in the same task, for each SSP that has some: those it was added to.

    Of systems that remember by themselves where the keys of an added partition were, there are none.
    A task gets a second partition of a stream when the stream grows, unless the partition is broadcast or the grouper
    gives the task all of them.
    """
    if settings.job.reads_all_in_each_task:
        return {}
    shared = set(settings.task.broadcast_inputs)
    found: dict[str, list[str]] = {}
    for task in assignment.tasks:
        own = [
            ssp
            for ssp in sorted(task.ssps)
            if ssp not in shared and not settings.system(ssp.system).capabilities.remembers_origins
        ]
        for ssp in own:
            lower = [o for o in own if o.system_stream == ssp.system_stream and o.partition < ssp.partition]
            if lower:
                found[str(ssp)] = [str(one) for one in lower]
    return found
