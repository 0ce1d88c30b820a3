"""A job's model in a test: calculated, remembered and written to a coordinator stream as a coordinator does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from grete.checkpoint.task_commit import Commits
from grete.clock import Clock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.coordinator.assignment_records import assignment_records
from grete.coordinator.job_model import Remembered, calculate
from grete.coordinator.renamed_tasks import renamed_tasks
from grete.coordinator.replaced_inputs import replaced_inputs
from grete.errors import ConfigError, JobError
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.input_streams import input_records
from grete.metadata.locality import LocalityManager
from grete.model.ids import SystemStream, TaskName
from grete.model.job import JobModel, TaskMode
from grete.model.startpoint import PendingStart
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.systems.outputs import OutputSystems, create_outputs


def write_job_model(
    stream: CoordinatorStream,
    system: LocalSystem,
    read_commits: Callable[[], Commits],
    home: Path,
    clock: Clock,
) -> JobModel:
    """Calculate the model of the stream's configuration, write its assignments, create its changelogs and outputs.

    Raises:
        ConfigError: the configuration and the partitions give no model, or not one that keeps the checkpoints.
        JobError: an input is not the one that the checkpoints are of.
        StreamNotFound: an input is not there.
    """
    settings = stream.settings()
    partitions: dict[SystemStream, int] = {s: system.partition_count(s.stream) for s in settings.task.inputs}
    assignments, mapping = TaskAssignments(stream), ChangelogMapping(stream)
    remembered = Remembered(
        assignments.read(),
        mapping.read(),
        assignments.ssps(),
        assignments.modes(),
        LocalityManager(stream).read_locality(),
    )
    calculated = calculate(settings, partitions, remembered)
    inputs = {s: system.partition_count(s.stream) for s in settings.task.all_inputs}
    uids = {s: system.stream_uid(s.stream) for s in inputs}
    problems = list(replaced_inputs(stream, uids, settings, read_commits, clock.wall_ms()))
    if problems:
        raise JobError("\n".join(problems))
    problems = list(
        renamed_tasks(
            stream, settings, calculated.model, remembered.active_ssps, read_commits, clock.wall_ms()
        )
    )
    if problems:
        raise ConfigError(*problems)
    mapping.write(calculated.changelog)
    assignments.write([*assignment_records(calculated.model, remembered), *input_records(uids)])
    width = max(calculated.changelog.values(), default=-1) + 1
    for store in settings.store_names:
        system.ensure_stream(
            StreamSpec(settings.store(store).changelog_stream(settings.job.id), width, compacted=True)
        )
    with closing(OutputSystems(settings, settings.task.commit_system, system, home, clock)) as outputs:
        create_outputs(settings, outputs, inputs)
    return calculated.model


def assignments_of(
    model: JobModel,
    epoch: int,
    pending: Mapping[TaskName, PendingStart],
    mode: TaskMode = TaskMode.ACTIVE,
    *,
    until_drained: bool = False,
) -> Iterator[Assignment]:
    """The assignment of each container of the model; containers with tasks of another mode are left out."""
    settings = Settings.of(model.config)
    for container in model.containers.values():
        tasks = [
            AssignedTask(
                task.name,
                task.partitions,
                task.changelog_partition,
                pending.get(task.name, PendingStart()),
                mode,
                task.key_bucket,
            )
            for task in container.tasks.values()
            if task.mode is mode
        ]
        if tasks:
            yield Assignment(
                job=settings.job.id,
                container_id=container.id,
                epoch=epoch,
                settings=settings,
                until_drained=until_drained,
                tasks=tuple(sorted(tasks, key=lambda task: task.name)),
            )
