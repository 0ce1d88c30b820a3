"""What a container needs before its first batch: checkpoints, outputs, tasks, stores, where to read. No Spark."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from grete.checkpoint.names import checkpoint_log_name, grouper_of
from grete.checkpoint.open_store import open_store
from grete.checkpoint.store import CheckpointStore, StoreContext, resolve
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.clock import Clock
from grete.config.commits import commit_groups
from grete.config.eventhubs import keys_of_system, name_within
from grete.config.outputs import declared_outputs
from grete.config.poison import dead_letter_stream, poison_policy
from grete.config.settings.streams import StreamSettings
from grete.config.stores import changelog_stream, compaction_lag_ms, store_names
from grete.config.streams import EMBEDDED_SYSTEM, broadcast_inputs, system_kind
from grete.container.assignment import Assignment
from grete.diagnostics.streams import container_name, telling_of
from grete.errors import ConfigError, StreamError
from grete.grouping import ssp as grouping
from grete.model.ids import SystemStream, TaskName
from grete.systems.base import System
from grete.systems.local.housekeeping import Housekeeper, StreamPolicy
from grete.systems.local.system import LocalSystem
from grete.tasks.commit.driver import CommitTarget
from grete.tasks.read_plan import BatchLimits, SourceOptions
from grete.tasks.spec import CommitSpec, RunnerSpec, StoreSpec, TaskSpec

_log = logging.getLogger("grete.container")
_PARTITIONS_AT_MOST = 64


def single_system(assignment: Assignment) -> str:
    """The one system that a container reads from and commits to.

    Raises:
        ConfigError: the inputs are of several systems, or there is none.
    """
    systems = sorted({ssp.system for ssp in assignment.ssps})
    if len(systems) != 1:
        raise ConfigError(
            f"a container reads from one system, because its outputs and checkpoints commit there; "
            f"task.inputs names {', '.join(systems) or 'none'}"
        )
    return systems[0]


def check_inputs(assignment: Assignment, system: System) -> None:
    """Whether the inputs are still those that the job model was made of.

    Raises:
        StreamError: one was deleted and made anew. Checkpoints are offsets of the old one.
    """
    for stream in sorted({ssp.system_stream for ssp in assignment.ssps}):
        known = assignment.input_uids.get(stream)
        now = system.stream_uid(stream.stream) if known else ""
        if now and now != known:
            raise StreamError(
                f"{stream} was deleted and made anew while the job ran (id {known}, now {now}); its checkpoints are "
                f"offsets of the old one. Stop the job and run it again: it says how to go on"
            )


def committed(assignment: Assignment, system: System) -> dict[TaskName, TaskCommit]:
    """What the checkpoint log has of the container's tasks."""
    log = system.checkpoint_log(checkpoint_log_name(assignment.job))
    mine = {task.name for task in assignment.tasks}
    return {task: commit for task, commit in read_commits(log.read()).items() if task in mine}


def settled(assignment: Assignment, system: System, target: CommitTarget) -> dict[TaskName, TaskCommit]:
    """What counts of the container's tasks, after log and checkpoint store were brought to say the same.

    An offset that somebody else wrote into the store becomes the log's, under the fence, and what the store has is a
    copy of the log again: so from here on the log is all there is to know. A checkpoint of Samza's with changelog
    marks does so when the stores are brought to them (`samza_state.take_over`).

    Raises:
        Fenced: another incarnation has taken over.
        LogCorrupted: the store has a checkpoint that cannot be read, and the log has none.
    """
    logged = committed(assignment, system)
    if target.copy_to is None:
        return logged
    resolved = resolve(logged, target.copy_to.read({task.name for task in assignment.tasks}))
    moved = {task: resolved.commits[task] for task in sorted(resolved.moved)}
    for task, commit in moved.items():
        _log.info("somebody moved task %s in the checkpoint store, to %s", task, dict(commit.offsets))
    whole = {task: commit for task, commit in moved.items() if not commit.changelog_marks}
    if whole:
        target.commit([], whole)
    target.copy({task: resolved.commits[task] for task in resolved.stale})
    return dict(resolved.commits)


def checkpoint_store(assignment: Assignment, clock: Clock, home: Path) -> CheckpointStore | None:
    """The store that `task.checkpoint.factory` names, None when the checkpoint log is all there is."""
    return open_store(StoreContext(assignment.job, assignment.config, home, clock, assignment.fence))


def commit_target(
    assignment: Assignment, system: System, clock: Clock, store: CheckpointStore | None = None
) -> CommitTarget:
    """Where the container's batches are committed, under its fence."""
    return CommitTarget(
        store=system,
        fences=(assignment.fence,),
        checkpoint_log=checkpoint_log_name(assignment.job),
        grouper=grouper_of(assignment.config),
        now_ms=clock.wall_ms,
        copy_to=store,
    )


def runner_spec(assignment: Assignment, system: System, home: Path) -> RunnerSpec:
    """The container's tasks and stores, as the executors are told.

    Raises:
        ConfigError: no task.class.
        StreamNotFound: a changelog is not there.
    """
    config, ssps = assignment.config, assignment.ssps
    index = {ssp: i for i, ssp in enumerate(ssps)}
    tasks = tuple(
        TaskSpec(i, task.name, tuple(index[ssp] for ssp in task.ssps), task.changelog_partition)
        for i, task in enumerate(assignment.tasks)
    )
    task_class = config.get("task.class")
    if not task_class:
        raise ConfigError("neither task.class nor app.class is set: name the application as module:Class")
    replicas = int(config.get("job.standbytasks.replication.factor", "1"))
    dead_letters = None
    poison, letters = poison_policy(config), dead_letter_stream(config)
    if poison.sets_aside and letters is not None:
        dead_letters = name_within(config, single_system(assignment), letters) or letters.stream
    return RunnerSpec(
        incarnation=uuid.uuid4().hex,
        job=str(assignment.job),
        config=config,
        task_class=task_class,
        application_path=config.get("job.application.path"),
        ssps=ssps,
        tasks=tasks,
        stores=stores(assignment, system),
        store_directory=str(assignment.store_directory(home)),
        default_system=single_system(assignment),
        home=str(home),
        dead_letter_stream=dead_letters,
        poison=poison,
        commit=_commit_spec(assignment, system),
        standby_directories=tuple(
            str(assignment.standby_directory(home, replica)) for replica in range(replicas - 1)
        ),
        telling=telling_of(config, assignment.job, container_name(assignment.container_id), home),
    )


def _commit_spec(assignment: Assignment, system: System) -> CommitSpec | None:
    if not system.commits_on_executors:
        return None
    name = checkpoint_log_name(assignment.job)
    outputs = tuple(stream.stream for stream in declared_outputs(assignment.config))
    return CommitSpec(
        assignment.fence, name, grouper_of(assignment.config), system.checkpoint_log(name).end(), outputs
    )


def housekeeping(assignment: Assignment, system: System, clock: Clock) -> Callable[[], object]:
    """What is done between a container's batches, under its fence."""
    if isinstance(system, LocalSystem):
        return housekeeper(assignment, system, clock).step
    return lambda: system.keep_fence(assignment.fence)


def housekeeper(assignment: Assignment, system: LocalSystem, clock: Clock) -> Housekeeper:
    """Who keeps the container's streams small; brokers do so by themselves."""
    config, name = assignment.config, single_system(assignment)
    changelogs = [
        StreamPolicy(
            changelog_stream(store, assignment.job, config),
            partitions=frozenset(task.changelog_partition for task in assignment.tasks),
            min_compaction_lag_ms=compaction_lag_ms(store, config),
        )
        for store in store_names(config)
    ]
    read = {ssp.stream for ssp in assignment.ssps}
    written = {stream.stream for stream in declared_outputs(config)}
    others = [
        StreamPolicy(
            stream,
            retention_ms=StreamSettings(config, SystemStream(name, stream)).retention_ms,
            retention_bytes=StreamSettings(config, SystemStream(name, stream)).retention_bytes,
        )
        for stream in sorted(read | written)
    ]
    return Housekeeper(system, [*changelogs, *others], [assignment.fence], clock)


def stores(assignment: Assignment, system: System) -> tuple[StoreSpec, ...]:
    """The job's stores, with the changelog streams as they are now.

    Raises:
        StreamNotFound: a changelog is not there.
    """
    specs = []
    for name in store_names(assignment.config):
        stream = changelog_stream(name, assignment.job, assignment.config)
        specs.append(StoreSpec(name, stream, system.stream_uid(stream)))
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
        is_mark = system.has_gaps and commit is not None and commit.store_positions.get(store) == end - 1
        return end - 1 if is_mark else end

    return {task.index: {store: position(task, store) for store in ends} for task in spec.tasks}


def source_options(
    assignment: Assignment, home: Path, starting_offsets: Mapping[str, int], *, by_task: bool
) -> SourceOptions:
    """What the container reads; `by_task` for StreamTasks, whose tasks each get a Spark partition.

    Where executors commit, there are no more Spark partitions than commit groups.
    """
    config, ssps = assignment.config, assignment.ssps
    index = {ssp: i for i, ssp in enumerate(ssps)}
    tasks = tuple(tuple(index[ssp] for ssp in task.ssps) for task in assignment.tasks)
    window_ms = int(config.get("task.window.ms", "-1"))
    name = single_system(assignment)
    commits_there = system_kind(config, name) != EMBEDDED_SYSTEM
    return SourceOptions(
        system=name,
        config=keys_of_system(config, name),
        home=str(home),
        ssps=tuple(str(ssp) for ssp in ssps),
        starting_offsets=dict(starting_offsets),
        tasks=tasks if by_task else None,
        partitions_at_most=commit_groups(config) if by_task and commits_there else _PARTITIONS_AT_MOST,
        max_records=max_records(config),
        max_bytes=max_bytes(config),
        tick_ms=max(0, window_ms) if by_task else 0,
        bootstrap=tuple(
            sorted(
                {str(s.system_stream) for s in ssps if StreamSettings(config, s.system_stream).is_bootstrap}
            )
        ),
        later=_later(assignment) if by_task and commits_there else {},
    )


def _later(assignment: Assignment) -> dict[str, list[str]]:
    """The lower partitions of its stream in the same task, for each SSP that has some: those it was added to.

    A task gets a second partition of a stream when the stream grows, unless the partition is broadcast or the grouper
    gives the task all of them.
    """
    if assignment.config.get(grouping.KEY, "").endswith("AllSspToSingleTaskGrouperFactory"):
        return {}
    shared = set(broadcast_inputs(assignment.config))
    found: dict[str, list[str]] = {}
    for task in assignment.tasks:
        own = [ssp for ssp in sorted(task.ssps) if ssp not in shared]
        for ssp in own:
            lower = [o for o in own if o.system_stream == ssp.system_stream and o.partition < ssp.partition]
            if lower:
                found[str(ssp)] = [str(one) for one in lower]
    return found


def max_records(config: Mapping[str, str]) -> int:
    """Most input records of a batch."""
    return int(config.get("task.max.records.per.batch", "200000"))


def max_bytes(config: Mapping[str, str]) -> int:
    """About how many bytes of input a batch has; 0 for no limit."""
    return int(config.get("task.max.bytes.per.batch", "268435456"))


def batch_limits(config: Mapping[str, str]) -> BatchLimits:
    """What a batch may have of input."""
    return BatchLimits(max_records(config), max_bytes(config))
