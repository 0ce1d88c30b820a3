"""The state that grete would take over from a Samza job's streams: read from the broker, nothing written.

The job model is calculated as `grete run` would, from what the coordinator stream remembers, and compared with the
checkpoints: a task that finds none starts where its inputs' default offsets say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.open_store import open_store
from grete.checkpoint.store import CheckpointStore, StoreContext, resolve
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.clock import Clock
from grete.config.key_tables.job import ELASTICITY
from grete.config.settings import Settings
from grete.config.settings.streams import StreamSettings
from grete.container.samza_state import RESTORE_ALL, check_known, restored_to
from grete.coordinator.job_model import Calculated, Remembered, calculate
from grete.errors import ConfigError, JobError, WireError
from grete.kafka.inspector import KafkaInspector
from grete.keyed_log.base import Record
from grete.keyed_log.kafka_existing import ExistingLog
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.metadata.locality import LocalityManager
from grete.migration.note import Note, Notes, NoteSection, Outcome
from grete.migration.state import log_system
from grete.model.ids import JobId, SystemStream, SystemStreamPartition, TaskName
from grete.systems.admin import PartitionOffsets
from grete.systems.factory import open_system
from grete.systems.kafka.stream_settings import KafkaStreamSettings as TopicsOfStreams
from grete.systems.kafka.stream_settings import TopicProblem
from grete.tasks.stores.rewind import Changelog
from grete.wire.checkpoint_json import decode_log_key

_V1, _V2 = "checkpoint", "checkpoint-v2"
Offsets = Mapping[SystemStreamPartition, str]
Ends = Mapping[SystemStream, Mapping[int, PartitionOffsets]]


@dataclass(frozen=True, slots=True)
class TaskTakeOver:
    """One task of grete's job model. An SSP without an offset in `checkpoint` begins at its default."""

    task: TaskName
    container: str
    changelog_partition: int
    ssps: tuple[SystemStreamPartition, ...]
    checkpoint: Offsets


@dataclass(frozen=True, slots=True)
class CheckpointLogContent:
    """Content of a checkpoint log: groupers, tasks by version of their checkpoints, each task's last checkpoint."""

    groupers: frozenset[str]
    tasks: Mapping[str, frozenset[TaskName]]
    commits: Mapping[TaskName, TaskCommit]

    def offsets(self, task: TaskName) -> Offsets:
        """A task's last processed offsets; none without a checkpoint."""
        return self.commits[task].offsets if task in self.commits else {}


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The state that was found. `differs` are keys whose value in the stream is not the file's.

    `sources` are where the checkpoints are, for people.
    """

    stream: str
    keys: int
    differs: tuple[str, ...]
    tasks: tuple[TaskTakeOver, ...]
    notes: tuple[Note, ...]
    sources: tuple[str, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether grete could not go on from what is there."""
        return any(note.outcome is Outcome.BLOCKS for note in self.notes)


def take_over(config: Mapping[str, str], home: Path, clock: Clock) -> TakeOver:
    """Look at the streams of the job that `config` (as `--write` writes it) names.

    Raises:
        ConfigError: the coordinator stream is not on Kafka, or the configuration makes no job model.
        LogError, StreamError: brokers do not answer, or an input is not there.
    """
    settings = Settings.of(config)
    job = settings.job.written_id
    system = settings.coordinator.system
    if not settings.system(system).capabilities.kafka_topics:
        raise ConfigError(f"--coordinator-stream reads Kafka, and the coordinator stream is on {system!r}")
    inspector = KafkaInspector(settings, system, clock)
    name = stream_name(job)
    written = written_checkpoints(settings, job, clock)
    store = open_store(StoreContext(job, settings, home, clock)) if inspector.topic(name) is None else None
    if inspector.topic(name) is None and store is None and not written.commits:
        return _never_ran(name)
    if inspector.topic(name) is None:
        in_force, remembered, standalone = dict(config), Remembered(), [_standalone(name)]
    else:
        with closing(ExistingLog(inspector.clients(name), clock)) as log:
            stream = CoordinatorStream(log, clock, source="grete-migrate")
            in_force, remembered, standalone = stream.config(), remembered_by(stream), []
    ends = ends_of(settings, home, clock)
    calculated = calculate(settings, {stream: len(found) for stream, found in ends.items()}, remembered)
    sources = [f"topic {checkpoint_log_name(job)} of system {log_system(config)}"] if written.commits else []
    if store is not None:
        written, found = _with_store(store, written, calculated.model.tasks)
        sources += [f"{settings.task.checkpoint_store} ({found} tasks)"] if found else []
        if not written.commits:
            return _never_ran(name)
    notes = [
        *standalone,
        *groupers(config, written),
        *versions(written),
        *starts(config, calculated, written, ends),
        *_changelogs(config, job, calculated, clock),
        *_states(config, job, home, clock, calculated, written),
    ]
    differs = tuple(sorted(k for k in {*config, *in_force} if config.get(k) != in_force.get(k)))
    keys = 0 if standalone else len(in_force)
    tasks = tuple(_tasks(calculated, written))
    return TakeOver(name, keys, differs, tasks, tuple(notes), tuple(sources))


def _with_store(
    store: CheckpointStore, written: CheckpointLogContent, tasks: Collection[TaskName]
) -> tuple[CheckpointLogContent, int]:
    """The commits that count of log and store, and the number of tasks in the store. The store is closed."""
    with closing(store):
        kept = store.read(tasks)
    return replace(written, commits=resolve(written.commits, kept).commits), len(kept)


def _never_ran(name: str) -> TakeOver:
    says = f"there is no topic {name}: the job never ran here, or under another name or id"
    way_out = "check job.name, job.id and the brokers"
    return TakeOver(name, 0, (), (), (Note(NoteSection.COORDINATION, name, Outcome.BLOCKS, says, way_out),))


def _standalone(name: str) -> Note:
    says = (
        f"there is no topic {name}, as of a standalone job, and there are checkpoints: tasks and their changelog "
        "partitions are calculated as Samza does, checkpoints and changelogs are taken over"
    )
    return Note(NoteSection.COORDINATION, name, Outcome.AS_IS, says)


def remembered_by(stream: CoordinatorStream) -> Remembered:
    """What a coordinator stream remembers of earlier models."""
    assignments = TaskAssignments(stream)
    return Remembered(
        assignments.read(),
        ChangelogMapping(stream).read(),
        assignments.ssps(),
        assignments.modes(),
        LocalityManager(stream).read_locality(),
    )


def ends_of(
    settings: Settings, home: Path, clock: Clock
) -> dict[SystemStream, Mapping[int, PartitionOffsets]]:
    """The offsets that the job's inputs hold."""
    found = {}
    for stream in settings.task.all_inputs:
        with closing(open_system(settings, stream.system, home, clock)) as system:
            found[stream] = system.offsets(stream.stream)
    return found


def written_checkpoints(settings: Settings, job: JobId, clock: Clock) -> CheckpointLogContent:
    """The content of the job's checkpoint log, empty when there is none."""
    system = log_system(settings.raw)
    name, nothing = checkpoint_log_name(job), CheckpointLogContent(frozenset(), {}, {})
    if not settings.system(system).capabilities.kafka_topics:
        return nothing
    inspector = KafkaInspector(settings, system, clock)
    if inspector.topic(name) is None:
        return nothing
    with closing(ExistingLog(inspector.clients(name), clock)) as log:
        return written_in(list(log.read()))


def written_in(records: Iterable[Record]) -> CheckpointLogContent:
    """Fold a checkpoint log. Keys that are no checkpoint's are left out."""
    groupers, tasks = set(), dict[str, set[TaskName]]()
    kept = list(records)
    for record in kept:
        try:
            grouper, task, kind = decode_log_key(record.key)
        except WireError:
            continue
        if kind in (_V1, _V2) and task is not None and record.value is not None:
            groupers.add(grouper)
            tasks.setdefault(kind, set()).add(task)
    by_version = {kind: frozenset(names) for kind, names in tasks.items()}
    return CheckpointLogContent(frozenset(groupers), by_version, read_commits(kept))


def groupers(config: Mapping[str, str], written: CheckpointLogContent) -> Notes:
    """Samza refuses a checkpoint of another grouper: tasks of one name read other partitions."""
    key = "job.systemstreampartition.grouper.factory"
    configured = Settings.of(config).job.ssp_grouper
    for grouper in sorted(written.groupers):
        if grouper.rpartition(".")[2] == configured.rpartition(".")[2]:
            yield Note(
                NoteSection.CHECKPOINTS, key, Outcome.AS_IS, f"checkpoints were written under {grouper}"
            )
        else:
            yield Note(
                NoteSection.CHECKPOINTS,
                key,
                Outcome.BLOCKS,
                f"checkpoints were written under {grouper}, and the configuration groups by {configured}",
                f"set {key}={grouper}",
            )


def versions(written: CheckpointLogContent) -> Notes:
    """Tasks whose checkpoints are of version 2 alone."""
    alone = written.tasks.get(_V2, frozenset()) - written.tasks.get(_V1, frozenset())
    if alone:
        says = f"{len(alone)} tasks have checkpoints of version 2 alone, and go on from them: {_few(alone)}"
        yield Note(NoteSection.CHECKPOINTS, "task.checkpoint.write.versions", Outcome.AS_IS, says)


def starts(
    config: Mapping[str, str], calculated: Calculated, written: CheckpointLogContent, ends: Ends
) -> Notes:
    """Offsets that are gone, partitions without one, and tasks that the model no longer has."""
    models = {
        task: model for one in calculated.model.containers.values() for task, model in one.tasks.items()
    }
    gone = written.commits.keys() - models.keys()
    if gone:
        yield Note(
            NoteSection.CHECKPOINTS,
            "task.inputs",
            Outcome.BLOCKS,
            f"{len(gone)} tasks have checkpoints and are not in the job model: {_few(gone)}",
            "name the same inputs and the same grouper as the Samza job did",
        )
    unplaced = [task for task, model in models.items() if model.key_bucket >= 0 and not written.offsets(task)]
    if unplaced:
        yield Note(
            NoteSection.CHECKPOINTS,
            ELASTICITY.name,
            Outcome.BLOCKS,
            f"Samza commits no offsets of an elastic job's inputs: its state is there, and where it stood is not; so "
            f"it is with {len(unplaced)} tasks: {_few(unplaced)}",
            "stop Samza when it has processed all, and say that: grete checkpoint rewind --to upcoming --state keep "
            "--execute",
        )
    for task in sorted(models):
        for ssp in models[task].partitions:
            yield from _start(config, task, ssp, written.offsets(task).get(ssp), ends)


def _start(
    config: Mapping[str, str], task: TaskName, ssp: SystemStreamPartition, offset: str | None, ends: Ends
) -> Notes:
    if offset is None:
        says = f"no checkpoint: {task} starts there at {StreamSettings(config, ssp.system_stream).offset_default}"
        yield Note(NoteSection.CHECKPOINTS, str(ssp), Outcome.AS_IS, says)
        return
    end = ends[ssp.system_stream][ssp.partition]
    first = int(end.upcoming if end.oldest is None else end.oldest)
    if not first - 1 <= int(offset) < int(end.upcoming):
        yield Note(
            NoteSection.CHECKPOINTS,
            str(ssp),
            Outcome.BLOCKS,
            f"the checkpoint of {task} is {offset}, and the topic holds {first} to {int(end.upcoming) - 1}: records "
            "that were not processed are gone, or the topic was recreated",
            f"let Samza's checkpoint tool write {first - 1} for it, after deciding that the loss is borne",
        )


def _changelogs(config: Mapping[str, str], job: JobId, calculated: Calculated, clock: Clock) -> Notes:
    settings, system = Settings.of(config), log_system(config)
    needed = max(calculated.changelog.values(), default=-1) + 1
    streams = TopicsOfStreams(settings, system)
    for store in settings.store_names:
        name = settings.store(store).changelog_stream(job)
        topic = (
            KafkaInspector(settings, system, clock).topic(name)
            if settings.system(system).capabilities.kafka_topics
            else None
        )
        problem = (
            streams.changelog_problem(name, topic.config) if topic is not None and topic.config else None
        )
        yield changelog(
            store, f"{system}.{name}", None if topic is None else topic.partitions, needed, problem
        )


def changelog(
    store: str, name: str, partitions: int | None, needed: int, problem: TopicProblem | None = None
) -> Note:
    """Whether a store can be rebuilt from its changelog; `partitions` None: there is none.

    `problem` is what a start would say of its topic.
    """
    key = f"stores.{store}.changelog"
    if partitions is None:
        says = f"{name} is not there: it will be made, and the store begins empty"
        return Note(NoteSection.STORES, key, Outcome.MAPPED, says)
    if partitions < needed:
        return Note(
            NoteSection.STORES,
            key,
            Outcome.BLOCKS,
            f"{name} has {partitions} partitions, and the mapping of tasks needs {needed}",
            "it is the changelog of another job, or the coordinator stream is",
        )
    if problem is not None:
        return Note(NoteSection.STORES, key, Outcome.BLOCKS, f"{name} {problem.says}", problem.way_out)
    return Note(
        NoteSection.STORES, key, Outcome.AS_IS, f"{name} has {partitions} partitions for {needed} tasks"
    )


def _states(
    config: Mapping[str, str],
    job: JobId,
    home: Path,
    clock: Clock,
    calculated: Calculated,
    written: CheckpointLogContent,
) -> Notes:
    """The fate of changelogs beyond the last commits."""
    settings = Settings.of(config)
    inspector = KafkaInspector(settings, log_system(config), clock)
    tasks = sorted((t, p) for t, p in calculated.changelog.items() if t in written.commits)
    with closing(open_system(settings, log_system(config), home, clock)) as system:
        for store in settings.store_names:
            stream = settings.store(store).changelog_stream(job)
            topic = inspector.topic(stream)
            if topic is None:
                continue
            expires = settings.store(store).is_expiring
            changelogs = {
                t: Changelog(system, stream, p, is_expiring=expires) for t, p in tasks if p < topic.partitions
            }
            yield from state(config, store, changelogs, written)


def state(
    config: Mapping[str, str],
    store: str,
    changelogs: Mapping[TaskName, Changelog],
    written: CheckpointLogContent,
) -> Notes:
    """How many tasks go back to where Samza committed last, and those that cannot."""
    settings = Settings.of(config)
    back, records = list[TaskName](), 0
    for task, changelog in changelogs.items():
        marks = written.commits[task].changelog_marks
        position, end = restored_to(settings.task, changelog, marks) if marks else None, changelog.end
        if position is None or position == end:
            continue
        back.append(task)
        records += end - position
        try:
            if position > 0:
                check_known(changelog, position)
        except JobError as error:
            yield Note(
                NoteSection.STORES, f"stores.{store} of {task}", Outcome.BLOCKS, str(error), RESTORE_ALL
            )
    if back:
        yield Note(
            NoteSection.STORES,
            f"stores.{store}",
            Outcome.MAPPED,
            f"the changelogs of {len(back)} tasks are {records} records ahead of their checkpoints ({_few(back)}): "
            "the first start brings them back to there, as Samza would, and processes again what made the records",
        )


def _tasks(calculated: Calculated, written: CheckpointLogContent) -> Iterator[TaskTakeOver]:
    for container in calculated.model.containers.values():
        for task, model in sorted(container.tasks.items()):
            yield TaskTakeOver(
                task,
                str(container.id),
                model.changelog_partition,
                model.partitions,
                dict(written.offsets(task)),
            )


def _few(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:5]) + (", ..." if len(shown) > 5 else "")
