"""From a configuration to what its containers run: partitions looked up, job model calculated, streams created."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from grete import __version__
from grete.checkpoint.legacy_changelog import legacy_mapping, note_migration
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import last_commits
from grete.clock import Clock
from grete.config.derived import canonical_keys
from grete.config.rewriters import with_new_inputs
from grete.config.rules.fingerprint import digest, fingerprint
from grete.config.settings import Settings
from grete.coordinator.assignment_records import assignment_records
from grete.coordinator.job_model import Calculated, Remembered, calculate
from grete.coordinator.renamed_tasks import renamed_tasks
from grete.coordinator.replaced_inputs import replaced_inputs
from grete.coordinator.state import ContainerSpec
from grete.errors import ConfigError, JobError
from grete.failpoints import failpoint
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.input_streams import input_records
from grete.metadata.locality import LocalityManager
from grete.model.ids import ContainerId, JobId, SystemStream, TaskName
from grete.model.job import ContainerModel, JobModel, TaskMode
from grete.model.streams import StreamSpec
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.systems.outputs import OutputSystems, create_outputs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A configuration and the job model that it makes; `partitions` are those of `task.inputs`, its base."""

    settings: Settings
    model: JobModel
    partitions: Mapping[SystemStream, int]


@dataclass(frozen=True, slots=True)
class _WorkedOut:
    partitions: Mapping[SystemStream, int]
    inputs: Mapping[SystemStream, int]
    """As `partitions`, and of streams that are only broadcast."""
    uids: Mapping[SystemStream, str]
    remembered: Remembered
    calculated: Calculated
    took_legacy_mapping: bool


class Planner:
    """Makes plans, and makes them the job's."""

    def __init__(
        self, job: JobId, home: Path, stream: CoordinatorStream, clock: Clock, stack: ExitStack
    ) -> None:
        self._job = job
        self._home = home
        self._stream = stream
        self._clock = clock
        self._stack = stack
        self.systems: dict[str, System] = {}
        self._checked: tuple[Mapping[str, str], _WorkedOut] | None = None

    def plan(self, settings: Settings) -> JobPlan:
        """Calculate the model and write down what must be remembered of it, then create what it needs.

        Raises:
            ConfigError: it changes what is set once, or makes no model that the job could follow; then nothing was
                written.
            StreamError: an input does not exist.
            JobError: Samza's old form of the changelog mapping is there and cannot be read; or an input was deleted
                and recreated, and no startpoint says where to go on in it.
        """
        checked, self._checked = self._checked, None
        # what was checked a moment ago, for the same configuration, is not asked for again
        worked_out = checked[1] if checked and checked[0] == settings.raw else self._work_out(settings)
        calculated = worked_out.calculated
        failpoint("coordinator.model-calculated")
        _warn_of_tasks_that_end(settings, calculated.model, worked_out.remembered)
        _warn_of_stores_that_stay_empty(settings, worked_out.partitions)
        ChangelogMapping(self._stream).write(calculated.changelog)
        if worked_out.took_legacy_mapping:
            note_migration(self._stream)
        records = [
            *assignment_records(calculated.model, worked_out.remembered),
            *input_records(worked_out.uids),
            *ConfigInForce(self._stream).records(settings.raw),
        ]
        TaskAssignments(self._stream).write(records)
        failpoint("coordinator.model-persisted")
        self._create_streams(settings, worked_out)
        return JobPlan(settings, calculated.model, worked_out.partitions)

    def check(self, settings: Settings) -> None:
        """Work out the model, and write nothing.

        Raises:
            ConfigError, StreamError, JobError: as `plan` would, which follows at once and need not work it out again.
        """
        self._checked = settings.raw, self._work_out(settings)

    def _work_out(self, settings: Settings) -> _WorkedOut:
        refusals = ConfigInForce(self._stream).refusals(settings.raw)
        if refusals:
            raise ConfigError(*refusals)
        for stream in settings.task.all_inputs:
            self.system(stream.system, settings)
        partitions = {s: self.systems[s.system].partition_count(s.stream) for s in settings.task.all_inputs}
        _check_broadcast(settings, partitions)
        uids = {s: self.systems[s.system].stream_uid(s.stream) for s in partitions}
        assignments, mapping = TaskAssignments(self._stream), ChangelogMapping(self._stream)
        checkpoints = self.commit_system(settings).checkpoint_log(checkpoint_log_name(self._job))
        problems = list(
            replaced_inputs(
                self._stream, uids, settings, lambda: last_commits(checkpoints), self._clock.wall_ms()
            )
        )
        if problems:
            raise JobError("\n".join(problems))
        legacy = legacy_mapping(self._stream, checkpoints.read(), settings.task, self._job)
        remembered = Remembered(
            assignments.read(),
            legacy or mapping.read(),
            assignments.ssps(),
            assignments.modes(),
            LocalityManager(self._stream).read_locality(),
        )
        calculated = calculate(settings, partitions, remembered)
        problems = list(_lost_partitions(mapping.unreadable(), calculated))
        if problems:
            raise JobError("\n".join(problems))
        problems = list(
            renamed_tasks(
                self._stream,
                settings,
                calculated.model,
                remembered.active_ssps,
                lambda: last_commits(checkpoints),
                self._clock.wall_ms(),
            )
        )
        if problems:
            raise ConfigError(*problems)
        grouped = {stream: partitions[stream] for stream in settings.task.inputs}
        return _WorkedOut(grouped, partitions, uids, remembered, calculated, bool(legacy))

    def system(self, name: str, settings: Settings) -> System:
        """A system, opened when it was not."""
        if name not in self.systems:
            self.systems[name] = open_system(settings, name, self._home, self._clock)
            self._stack.callback(self.systems[name].close)
        return self.systems[name]

    def with_new_streams(self, settings: Settings) -> dict[str, str]:
        """The configuration with the inputs that its patterns choose from the streams that there are now.

        Raises:
            ConfigError: a pattern cannot be used.
        """

        def list_streams(system: str, rewritten: Settings) -> Sequence[str]:
            return self.system(system, rewritten).streams()

        return canonical_keys(with_new_inputs(settings.raw, list_streams=list_streams))

    def _create_streams(self, settings: Settings, worked_out: _WorkedOut) -> None:
        """Changelogs have one partition for every task there ever was (S2-105)."""
        system = self.commit_system(settings)
        partitions = max(worked_out.calculated.changelog.values(), default=-1) + 1
        for store in settings.store_names:
            name = settings.store(store).changelog_stream(self._job)
            system.ensure_stream(StreamSpec(name, partitions, compacted=True))
        own = settings.task.commit_system
        with closing(OutputSystems(settings, own, system, self._home, self._clock)) as outputs:
            create_outputs(settings, outputs, worked_out.inputs)
        failpoint("coordinator.streams-created")

    def commit_system(self, settings: Settings) -> System:
        """The system in which containers commit."""
        return self.system(settings.task.commit_system, settings)


def _check_broadcast(settings: Settings, partitions: Mapping[SystemStream, int]) -> None:
    missing = [
        ssp for ssp in settings.task.broadcast_inputs if ssp.partition >= partitions[ssp.system_stream]
    ]
    if missing:
        stream = missing[0].system_stream
        raise ConfigError(
            f"task.broadcast.inputs names partition {missing[0].partition} of {stream}, which has "
            f"{partitions[stream]}: name partitions that are there, or add some: grete stream grow {stream} "
            f"--partitions N"
        )


def _warn_of_tasks_that_end(settings: Settings, model: JobModel, remembered: Remembered) -> None:
    gone = sorted(set(remembered.active) - set(model.tasks))
    if gone and settings.store_names:
        _log.warning(
            "%d tasks of the last job model have no partition any more and do not run: %s. Their stores and "
            "changelog partitions stay as they are",
            len(gone),
            ", ".join(gone[:20]),
        )


def _warn_of_stores_that_stay_empty(settings: Settings, partitions: Mapping[SystemStream, int]) -> None:
    """A key is looked up in the task of its partition: where streams have other numbers of them, that is another."""
    if settings.job.reads_all_in_each_task:
        return
    sides = {stream for stream in partitions if settings.stream(stream).is_side_input}
    for side in sorted(sides):
        others = {count for stream, count in partitions.items() if stream not in sides} - {partitions[side]}
        if others:
            _log.warning(
                "the side input %s has %d partitions, other inputs %s: tasks have the entries of other keys than "
                "those of their messages. Give the streams as many partitions, or name all of %s in "
                "task.broadcast.inputs, so that each task has all of it",
                side,
                partitions[side],
                ", ".join(map(str, sorted(others))),
                side,
            )


def _lost_partitions(unreadable: Mapping[TaskName, str], calculated: Calculated) -> Iterator[str]:
    """A problem for each task of the model whose changelog partition cannot be known: it may have state."""
    for task in sorted(set(unreadable) & set(calculated.model.tasks)):
        yield (
            f"the set-changelog record of task {task!r} says partition {unreadable[task][:100]!r}: it is unknown "
            f"where the task's state is. Write its number again, or let it begin without state: grete stream "
            f"quarantine --job NAME --remove OFFSET --execute"
        )


def container_specs(plan: JobPlan, *, mode: str) -> dict[ContainerId, ContainerSpec]:
    """The fingerprints of what each container runs; `mode` is how its query runs.

    The version is a part of it, so a container that another version launched is started again at a batch boundary.
    """
    query = digest([fingerprint(plan.settings.raw, "query"), mode])
    process = digest([fingerprint(plan.settings.raw, "process"), __version__])
    return {
        id_: ContainerSpec(_tasks(one), query, process, standby=_is_standby(one))
        for id_, one in plan.model.containers.items()
    }


def _is_standby(container: ContainerModel) -> bool:
    return all(task.mode is TaskMode.STANDBY for task in container.tasks.values())


def _tasks(container: ContainerModel) -> str:
    return digest(
        [
            [name, task.mode.value, task.changelog_partition, sorted(map(str, task.ssps))]
            for name, task in sorted(container.tasks.items())
        ]
    )
