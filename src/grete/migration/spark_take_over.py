"""What grete would take over of a Structured Streaming query, and writing it.

The first batch of grete begins where the last committed batch of the query ended: of each partition the checkpoint,
which is the last processed offset, is one before the offset that Spark would read next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from grete.checkpoint.applied_startpoints import Applied, applied_entry
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.open_store import open_store
from grete.checkpoint.store import StoreContext, copies
from grete.checkpoint.task_commit import TaskCommit, moved_entries
from grete.clock import Clock
from grete.config.choices import LostOffsets
from grete.config.settings import Settings
from grete.config.time_zone import TIME_ZONE, with_time_zone
from grete.coordinator.job_model import Remembered, calculate
from grete.errors import HeldByOther, JobError, JobNotFound
from grete.migration.note import Note, NoteSection, Outcome
from grete.migration.spark_query import Offsets, OldQuery, read_query
from grete.migration.spark_state import Rebuilt, begin_lineage, cannot_keep, of_state, rebuilt
from grete.migration.take_over import Ends, TaskTakeOver, ends_of, remembered_by, written_checkpoints
from grete.model.ids import JobId, SystemStream, SystemStreamPartition, TaskName
from grete.model.startpoint import StateChoice
from grete.operations import open_job
from grete.operations.job_handle import JobHandle
from grete.spark.lineage.location import Location, OnAsking
from grete.systems.admin import PartitionOffsets
from grete.systems.factory import open_system

_STOP = "stop it first; a job that runs has checkpoints of its own"


@dataclass(frozen=True, slots=True)
class SparkTakeOver:
    """What was found. `tasks` are those of grete's job model, with the checkpoints that are to be written.

    `rebuilt` is what the job's lineage goes on as, where the query's state is kept.
    """

    job: JobId
    query: OldQuery
    tasks: tuple[TaskTakeOver, ...]
    notes: tuple[Note, ...]
    rebuilt: Rebuilt | None = None

    @property
    def blocks(self) -> bool:
        """Whether nothing can be written as things are."""
        return any(note.outcome is Outcome.BLOCKS for note in self.notes)


def take_over_query(
    location: Location,
    settings: Settings,
    home: Path,
    clock: Clock,
    *,
    state: StateChoice | None = None,
    on_asking: OnAsking = lambda what: None,
) -> SparkTakeOver:
    """Look at a query's checkpoint location and at the job that is to go on from it. Writes nothing.

    `state` is what shall become of Spark's state: kept, where the plan of `build` fits it, or discarded. None: the
    query has none.

    Raises:
        ConfigError, JobError, SparkLogUnreadable: see `read_query`; or the configuration makes no job model.
        HeldByOther: the job runs.
        LogError, StreamError: brokers do not answer, or an input is not there.
        ApplicationError: with `state` kept, as `grete run --dry-run`.
    """
    query, job = read_query(location), settings.job.id
    with _existing(job, settings) as handle:
        if handle is not None and (holder := handle.election.holder()) is not None:
            raise HeldByOther(f"job {job.shown}", f"{holder}: {_STOP}")
        remembered = Remembered() if handle is None else remembered_by(handle.stream)
        in_force = None if handle is None else handle.settings
    ends = ends_of(settings, home, clock)
    model = calculate(settings, {stream: len(found) for stream, found in ends.items()}, remembered).model
    wanted = dict(_wanted(query.committed_ends, settings, ends))
    tasks = tuple(
        TaskTakeOver(
            task.name,
            str(container.id),
            task.changelog_partition,
            tuple(sorted(task.ssps)),
            {ssp: str(wanted[ssp] - 1) for ssp in sorted(task.ssps) if ssp in wanted},
        )
        for container in model.containers.values()
        for task in container.tasks.values()
    )
    notes = [
        *_has_checkpoints(settings, job, home, clock, [task.task for task in tasks]),
        *_of_query(query, keeps=state is StateChoice.KEEP),
        *_of_time_zone(query, settings, in_force),
        *_of_streams(query, settings, ends),
        *(note for ssp, offset in wanted.items() for note in _of_offset(ssp, offset, settings, ends)),
    ]
    if state is StateChoice.KEEP:
        notes += cannot_keep(query, settings, model)
    built = None
    if state is StateChoice.KEEP and not any(note.outcome is Outcome.BLOCKS for note in notes):
        built = rebuilt(query, with_time_zone(settings, in_force), model, home, on_asking)
    notes += of_state(query, state, built)
    return SparkTakeOver(job, query, tasks, tuple(notes), built)


@contextmanager
def _existing(job: JobId, settings: Settings) -> Iterator[JobHandle | None]:
    """The job's coordinator stream, None of a job that was never submitted."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(open_job(job, settings))
        except JobNotFound:
            yield None


def _inputs(topic: str, settings: Settings) -> list[SystemStream]:
    return [
        stream
        for stream in settings.task.all_inputs
        if stream.stream == topic and settings.system(stream.system).capabilities.kafka_topics
    ]


def _wanted(offsets: Offsets, settings: Settings, ends: Ends) -> Iterator[tuple[SystemStreamPartition, int]]:
    """The next offset of each input partition. Those that the query did not know yet begin at their first record.

    Spark reads a partition that was added from its beginning, whatever the query's starting offsets were.
    """
    for topic in sorted({topic for topic, _ in offsets}):
        for stream in _inputs(topic, settings):
            for partition, held in sorted(ends[stream].items()):
                first = int(held.upcoming if held.oldest is None else held.oldest)
                offset = offsets.get((topic, partition), first)
                yield SystemStreamPartition(stream.system, topic, partition), offset


def _has_checkpoints(
    settings: Settings, job: JobId, home: Path, clock: Clock, tasks: Sequence[TaskName]
) -> Iterator[Note]:
    found = set(written_checkpoints(settings, job, clock).commits)
    store = open_store(StoreContext(job, settings, home, clock))
    if store is not None:
        with ExitStack() as stack:
            stack.callback(store.close)
            found |= set(store.read(set(tasks)))
    if found:
        yield Note(
            NoteSection.CHECKPOINTS,
            checkpoint_log_name(job),
            Outcome.BLOCKS,
            f"job {job.shown} has checkpoints already, of {len(found)} tasks: it would go on from them",
            "give the job another job.name or job.id, delete it (grete job delete), or move its checkpoints with "
            "grete checkpoint rewind",
        )


def _of_query(query: OldQuery, *, keeps: bool) -> Iterator[Note]:
    """What is to be said of the query itself: what it planned, what is no Kafka, and what it keeps."""
    if query.committed < 0:
        says = "no batch of the query was committed: everything begins where the query began"
        yield Note(NoteSection.CHECKPOINTS, "commits", Outcome.AS_IS, says)
    if query.planned > query.committed:
        says = (
            f"batch {query.planned} was planned and not committed: its records are processed by grete; what of them "
            "the query has written already is in its output, and stays there; to have none of it twice, let the "
            "query end this batch first, by one more run of it"
        )
        yield Note(NoteSection.CHECKPOINTS, f"offsets/{query.planned}", Outcome.AS_IS, says)
    for source, shown in query.foreign.items():
        if keeps:
            says = f"it is not a source of Kafka; Spark goes on with it from {shown}"
            yield Note(NoteSection.STREAMS, f"source {source}", Outcome.AS_IS, says)
            continue
        says = f"it is not a source of Kafka, and is left out; Spark had come to {shown}"
        way_out = "bring its records into a topic, or let this part of the query stay with Spark"
        yield Note(NoteSection.STREAMS, f"source {source}", Outcome.NO_EFFECT, says, way_out)
    if query.apart:
        yield Note(
            NoteSection.CHECKPOINTS,
            "offsets",
            Outcome.BLOCKS,
            f"sources that read the same topic are at different offsets: {'; '.join(query.apart[:5])}",
            "run the query once more with trigger(availableNow=True) while nothing is appended, so that they meet",
        )


def _of_time_zone(query: OldQuery, settings: Settings, in_force: Settings | None) -> Iterator[Note]:
    """Whether texts and dates mean the same instants to the job as to the query, as far as that is known."""
    zone = with_time_zone(settings, in_force).spark.time_zone
    if zone is None or zone == query.time_zone:
        return
    is_named = settings.spark.time_zone is not None
    whose = "the configuration's" if is_named else "the job's" if in_force else "this machine's"
    had = (
        "the query's is not in its checkpoint: its program set it, or it was that of the driver's machine"
        if query.time_zone is None
        else f"the query's was {query.time_zone}"
    )
    yield Note(
        NoteSection.APPLICATION,
        TIME_ZONE,
        Outcome.AS_IS,
        f"the job will have {zone}, {whose}; {had}. Where they differ, times and dates that are read from texts or "
        f"written as texts mean other instants, and days begin at other ones, so windows close at other rows",
        f"set {TIME_ZONE} to the query's zone",
    )


def _of_streams(query: OldQuery, settings: Settings, ends: Ends) -> Iterator[Note]:
    topics = sorted({topic for topic, _ in query.committed_ends})
    if not any(_inputs(topic, settings) for topic in topics):
        yield Note(
            NoteSection.STREAMS,
            "task.inputs",
            Outcome.BLOCKS,
            f"no input is a topic that the query reads ({', '.join(topics) or 'none'})",
            "name the topics in task.inputs as system.topic, of a system on Kafka",
        )
    for topic in topics:
        named = _inputs(topic, settings)
        if not named:
            says = "the query reads this topic, and it is no input of the job: it is left out"
            yield Note(
                NoteSection.STREAMS, topic, Outcome.NO_EFFECT, says, "add it to task.inputs if it is one"
            )
        if len(named) > 1:
            says = f"several systems have this input ({', '.join(map(str, named))}): which the query read is unknown"
            yield Note(
                NoteSection.STREAMS,
                topic,
                Outcome.BLOCKS,
                says,
                "take one after the other, in jobs of their own",
            )
        for stream in named:
            yield from _of_partitions(topic, stream, query.committed_ends, ends[stream])
    for stream in settings.task.all_inputs:
        if stream.stream not in topics:
            says = f"the query does not read it: it begins at {settings.stream(stream).offset_default}"
            yield Note(NoteSection.STREAMS, str(stream), Outcome.AS_IS, says)


def _of_partitions(
    topic: str, stream: SystemStream, offsets: Offsets, ends: Mapping[int, PartitionOffsets]
) -> Iterator[Note]:
    known = {partition for name, partition in offsets if name == topic}
    if added := sorted(ends.keys() - known):
        numbers = ", ".join(map(str, added))
        says = f"partitions {numbers} are not in the query's log yet: they begin at their first record"
        yield Note(NoteSection.STREAMS, str(stream), Outcome.AS_IS, says)
    if gone := sorted(known - ends.keys()):
        says = f"the query read partitions {', '.join(map(str, gone))}, and the topic has {len(ends)}"
        yield Note(
            NoteSection.STREAMS,
            str(stream),
            Outcome.BLOCKS,
            says,
            "check that these are the brokers of the query",
        )


def _of_offset(ssp: SystemStreamPartition, offset: int, settings: Settings, ends: Ends) -> Iterator[Note]:
    held = ends[ssp.system_stream][ssp.partition]
    upcoming = int(held.upcoming)
    first = upcoming if held.oldest is None else int(held.oldest)
    if first <= offset <= upcoming:
        return
    is_skipped = offset < first and settings.task.lost_offsets is LostOffsets.SKIP
    yield Note(
        NoteSection.CHECKPOINTS,
        str(ssp),
        Outcome.AS_IS if is_skipped else Outcome.BLOCKS,
        f"the query would read on at offset {offset}, and the topic holds {first} to {upcoming - 1}: "
        + ("records are gone" if offset < first else "the topic was recreated, or these are other brokers"),
        "task.lost-offsets.policy=skip goes on without them"
        if offset < first
        else "check the brokers' addresses",
    )


def execute(
    found: SparkTakeOver,
    settings: Settings,
    home: Path,
    clock: Clock,
    on_asking: OnAsking = lambda what: None,
) -> None:
    """Write the checkpoints that were found, in one append, durable on return; before them the state that is kept.

    Killed in between, nothing was taken over, and it can be done again.

    Raises:
        HeldByOther: the job was started meanwhile.
        JobError: something is in the way; or the query has gone on since it was looked at. Nothing was written.
    """
    assert not found.blocks, "what blocks was shown to the operator"
    with _existing(found.job, settings) as handle, ExitStack() as stack:
        if handle is not None:
            stack.enter_context(handle.election.stopped(_STOP))
        _check_still(found.query)
        commit = _commit(found, settings, home, on_asking)
        _check_still(found.query)  # what was copied meanwhile may be of two batches
        _write(found, commit, settings, home, clock)


def _check_still(query: OldQuery) -> None:
    now = read_query(query.folder)
    if (now.committed, now.planned) != (query.committed, query.planned):
        raise JobError(
            f"the query in {query.folder} still runs: batch {now.planned} was planned, and {now.committed} "
            f"committed, since this was worked out. Stop it first; nothing was written"
        )


def _commit(found: SparkTakeOver, settings: Settings, home: Path, on_asking: OnAsking) -> TaskCommit:
    """What every task's checkpoint says beside its offsets. Begins the lineage that it names."""
    query, built = found.query, found.rebuilt
    if built is None:
        return TaskCommit({})
    starting = {str(ssp): int(at) + 1 for task in found.tasks for ssp, at in task.checkpoint.items()}
    lineage = begin_lineage(query, built, starting, settings, home, on_asking)
    return TaskCommit({}, lineage, query.committed, has_foreign_sources="" in built.sources)


def _write(found: SparkTakeOver, commit: TaskCommit, settings: Settings, home: Path, clock: Clock) -> None:
    commits = {
        task.task: replace(commit, offsets=dict(task.checkpoint)) for task in found.tasks if task.checkpoint
    }
    grouper = settings.job.ssp_grouper
    entries = moved_entries(commits, grouper=grouper)
    if settings.job.is_pipeline and not commit.lineage:
        # so that the first start begins a lineage without Spark's state, as after a rewind with --state discard
        begun = Applied({}, StateChoice.DISCARD)
        entries += [applied_entry(task, begun, grouper=grouper) for task in sorted(commits)]
    system = open_system(settings, settings.task.commit_system, home, clock)
    with ExitStack() as stack:
        stack.callback(system.close)
        system.checkpoint_log(checkpoint_log_name(found.job)).append(entries)
        store = open_store(StoreContext(found.job, settings, home, clock))
        if store is not None:
            stack.callback(store.close)
            store.write(copies(commits))
