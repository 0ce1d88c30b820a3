"""Whether a pipeline continues its lineage or starts a new one. A pure decision over three facts.

A lineage is one Spark checkpoint location. Our checkpoints are the truth; a lineage is continued while Spark's own
logs agree with them:

    Spark's next batch starts at or before the checkpoint, and its planned end is not behind it  -> continue
      (a batch that our checkpoint covers already is run again by Spark; its tasks are skipped)
    there are SSPs more than before: Spark reads them from their beginning                      -> continue
      (with state also those of inputs that came; Spark's logs are written for these)
    Spark is ahead of the checkpoint, or lags by more than one batch, or has SSPs no more       -> new lineage
    Spark's logs are damaged, or not those of the batch that our checkpoint has                 -> new lineage

A new lineage starts at explicit offsets: one past the checkpoint. Spark's state is lost by it, so the operator has to
say so. StreamTasks have no lineages: what they continue from is in checkpoints and changelogs alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grete.checkpoint.task_commit import TaskCommit
from grete.errors import JobError, StateDoesNotFit
from grete.spark.failures.error_classes import GIVE_UP, bring_back
from grete.spark.lineage.offset_log import SparkProgress
from grete.spark.lineage.parted_sources import Parts, with_more

FIRST_FOLDER = "spark"


@dataclass(frozen=True, slots=True)
class LineageInfo:
    """The record of a lineage, written when it starts. `starting_offsets` are next offsets to read by SSP.

    `sources` are those of its query, in Spark's order: see `offset_log.read_batch_end`. `kept` is what the query had
    in Spark alone when it began, see `refuse_to_lose_state`; "" for nothing, None where it was not noted. `folder` is
    where in the lineage Spark's checkpoint location is: in another one since inputs came, or the state was moved into
    other partitions. `silent` is the batch that Spark made by moving it, which no output and no checkpoint has.
    """

    id: str
    starting_offsets: Mapping[str, int]
    plan: str
    sources: tuple[str, ...] = ()
    kept: str | None = None
    folder: str = FIRST_FOLDER
    silent: int | None = None

    @property
    def foreign_sources(self) -> tuple[str, ...]:
        """The numbers of sources in the plan that are not grete's, as Spark writes them."""
        return tuple(str(number) for number, source in enumerate(self.sources) if not source)


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on with the lineage. `widened` is how its logs become those of what `build` reads, where inputs came."""

    lineage: LineageInfo
    widened: Parts | None = None


@dataclass(frozen=True, slots=True)
class StartNew:
    """Begin a fresh lineage; `reason` goes to log and history, empty when there was none before.

    `lineage` says where and with which plan; its id is given when it begins. `unfinished`: the one before may have
    given rows to outputs that no checkpoint covers. `kept_before`: what it kept, as in LineageInfo.
    """

    reason: str
    lineage: LineageInfo
    unfinished: bool = False
    kept_before: str | None = None


LineageDecision = Continue | StartNew


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The last batch of a lineage that our checkpoints have, and its end by them: the next offset of each SSP."""

    batch: int
    next_offsets: Mapping[str, int]

    @classmethod
    def of(cls, lineage: LineageInfo, commits: Iterable[TaskCommit]) -> Checkpointed | None:
        """What checkpoints of tasks have of a lineage; None where they have nothing of it.

        The batch before a silent one counts as that: both end at the same offsets.
        """
        found = [commit for commit in commits if commit.lineage == lineage.id]
        if not found:
            return None
        batch = max(commit.batch_id for commit in found)
        last = [commit for commit in found if commit.batch_id == batch]
        if lineage.silent is not None and batch == lineage.silent - 1:
            batch = lineage.silent
        return cls(batch, {str(ssp): int(at) + 1 for commit in last for ssp, at in commit.offsets.items()})


def decide_lineage(
    current: LineageInfo | None,
    spark: SparkProgress | str | None,
    wanted: Mapping[str, int],
    plan: str,
    *,
    moved: bool = False,
    checkpointed: Checkpointed | None = None,
) -> LineageDecision:
    """Compare the current lineage with what the job wants to read next.

    `spark` is the lineage's progress, or the reason why it is unreadable; `wanted` is the next offset by SSP that
    checkpoints, resets and defaults ask for; `plan` names what must not change within a lineage, and after its last
    comma the tasks, which may grow. `moved` says that an operator has moved a checkpoint to where no batch ended: a
    batch that Spark has planned already would not begin there. `checkpointed` is the last batch of this lineage that
    is in our checkpoints, if there is one.
    """

    def start_new(reason: str, *, unfinished: bool = False) -> StartNew:
        return StartNew(reason, LineageInfo("", dict(wanted), plan), unfinished)

    if current is None:
        return start_new("", unfinished=not moved)
    if spark is None:
        return start_new("its Spark checkpoint location is gone", unfinished=True)
    if isinstance(spark, str):
        return start_new(f"Spark's logs are unreadable: {spark}", unfinished=True)
    if moved and spark.planned >= 0:
        return start_new("an operator has moved the checkpoint")
    is_open = spark.planned > spark.committed
    if _without_tasks(current.plan) != _without_tasks(plan):
        return start_new(_difference(current.plan, plan), unfinished=is_open)
    if not set(current.starting_offsets) <= set(wanted):
        return start_new("the container reads other stream partitions than before", unfinished=is_open)
    if problem := _disagreement(current, spark, wanted) or _other_batch(spark, checkpointed):
        return start_new(problem)
    return Continue(replace(current, starting_offsets={**wanted, **current.starting_offsets}, plan=plan))


def _without_tasks(plan: str) -> str:
    return plan.rpartition(", ")[0]


def _difference(before: str, now: str) -> str:
    """The application with its output, or the output mode: the parts of a plan's text before the tasks."""
    parts = zip(("the application", "output_mode"), before.split(", "), now.split(", "), strict=False)
    changed = [f"{what} was {old!r} and is {new!r}" for what, old, new in parts if old != new]
    return "; ".join(changed) or f"the plan changed from {before!r} to {now!r}"


def _disagreement(current: LineageInfo, spark: SparkProgress, wanted: Mapping[str, int]) -> str:
    """The partition of which Spark has read more, or planned less, than the checkpoint says; empty when none."""
    committed = {
        **current.starting_offsets,
        **(spark.committed_end.next_offsets if spark.committed_end else {}),
    }
    planned = {**committed, **(spark.planned_end.next_offsets if spark.planned_end else {})}
    for ssp in current.starting_offsets:
        offset = wanted[ssp]
        if committed[ssp] > offset:
            return f"{ssp}: Spark has read up to {committed[ssp]}, the checkpoint says {offset}"
        if planned[ssp] < offset:
            return f"{ssp}: the checkpoint says {offset}, Spark has planned only {planned[ssp]}"
    return ""


def _other_batch(spark: SparkProgress, checkpointed: Checkpointed | None) -> str:
    """How our checkpoint's batch is another one than Spark's of that number; empty when it is not.

    Where Spark began again with a number that is committed, its rows would be taken for written.
    """
    if checkpointed is None:
        return ""
    number = checkpointed.batch
    ends = {spark.committed: spark.committed_end, spark.planned: spark.planned_end}
    if number not in ends:
        has = f"planned {spark.planned} and committed {spark.committed}"
        return f"the checkpoint is of batch {number}, and Spark has {has}"
    end = ends[number]
    for ssp, offset in end.next_offsets.items() if end else ():
        ours = checkpointed.next_offsets.get(ssp, offset)
        if ours != offset:
            return f"{ssp}: batch {number} ends at {ours} in the checkpoint, and at {offset} in Spark's offset log"
    return ""


def with_query(
    decision: LineageDecision, sources: tuple[str, ...], kept: str | None, wanted: Mapping[str, int]
) -> LineageDecision:
    """The decision, once it is known what `build` makes: Spark tells its sources by their order alone.

    `kept`: see `refuse_to_lose_state`. Where nothing was kept before, Spark has nothing to go on from.
    """
    lineage = decision.lineage
    if isinstance(decision, StartNew):
        return replace(decision, lineage=replace(lineage, sources=sources, kept=kept or ""))
    if lineage.sources != sources:
        keeps = kept is not None and lineage.kept != ""
        if keeps and (widened := with_more(lineage.sources, sources)) is not None:
            return Continue(replace(lineage, sources=sources), widened)
        reason = f"build reads {listed(sources)}, in this order, and read {listed(lineage.sources)} before"
    elif lineage.kept == "" and kept is not None:
        reason = f"build keeps state in Spark now ({kept}), and kept none before"
    else:
        return decision
    return started_over(lineage, reason, sources, kept, wanted)


def started_over(
    before: LineageInfo, reason: str, sources: tuple[str, ...], kept: str | None, wanted: Mapping[str, int]
) -> StartNew:
    """A new lineage, since what `build` makes cannot go on with this one."""
    new = LineageInfo("", dict(wanted), before.plan, sources, kept or "")
    return StartNew(reason, new, unfinished=True, kept_before=before.kept)


def listed(sources: Sequence[str]) -> str:
    """A query's sources, for people."""
    return ", ".join(source or "a source of Spark's" for source in sources)


def refuse_to_lose_state(
    decision: LineageDecision,
    *,
    had_checkpoint: bool,
    discard: bool,
    kept: str | None,
    outside: Sequence[str] = (),
    checkpoint: str = "",
) -> None:
    """A new lineage over existing checkpoints needs the operator's word where something is lost or doubled by it.

    `kept` names what is Spark's alone: an operator that keeps state, a source that is not grete's. Without, only what
    the lineage before has begun and not finished stands in the way, where there are outputs `outside` of streams.
    `checkpoint` is the folder of that lineage.

    Raises:
        StateDoesNotFit: naming the reason and the ways out. Only of a location that is gone a plain JobError, since a
            file system that was away may be back when the container is started again.
    """
    if isinstance(decision, Continue) or not had_checkpoint or discard:
        return
    refusal = StateDoesNotFit if decision.reason else JobError
    reason = decision.reason or "its Spark checkpoint location is gone"
    if kept is not None and decision.kept_before != "":
        raise refusal(
            f"this pipeline keeps state in Spark's checkpoint ({kept}) and cannot continue it: {reason}. "
            f"{bring_back(checkpoint)}. Or give its state up: {GIVE_UP}"
        )
    if decision.unfinished and outside:
        words = ", ".join(outside)
        raise refusal(
            f"this pipeline cannot continue its Spark checkpoint: {reason}; and its last batch was begun, so rows of "
            f"it may be in {words} already. Run it once more as it was, or accept that these come again: "
            f"grete run --set job.lineage.state=discard"
        )
