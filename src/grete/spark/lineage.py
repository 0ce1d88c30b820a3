"""Whether a pipeline continues its lineage or starts a new one. A pure decision over three facts.

A lineage is one Spark checkpoint location. Our checkpoints are the truth; a lineage is continued while Spark's own
logs agree with them:

    Spark's next batch starts at or before the checkpoint, and its planned end is not behind it  -> continue
      (a batch that our checkpoint covers already is run again by Spark; its tasks are skipped)
    there are SSPs more than before: Spark reads them from their beginning                      -> continue
    Spark is ahead of the checkpoint, or lags by more than one batch, or has SSPs no more       -> new lineage
    Spark's logs are damaged                                                                    -> new lineage

A new lineage starts at explicit offsets: one past the checkpoint. Spark's state is lost by it, so the operator has to
say so. StreamTasks have no lineages: what they continue from is in checkpoints and changelogs alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grete.errors import JobError, StateDoesNotFit
from grete.spark.offset_log import SparkProgress


@dataclass(frozen=True, slots=True)
class LineageInfo:
    """The record of a lineage, written when it starts. `starting_offsets` are next offsets to read by SSP.

    `sources` are those of its query, in Spark's order: see `offset_log.read_batch_end`. `kept` is what the query had
    in Spark alone when it began, see `refuse_to_lose_state`; "" for nothing, None where it was not noted.
    """

    id: str
    starting_offsets: Mapping[str, int]
    plan: str
    sources: tuple[str, ...] = ()
    kept: str | None = None

    @property
    def foreign_sources(self) -> tuple[str, ...]:
        """The numbers of sources in the plan that are not grete's, as Spark writes them."""
        return tuple(str(number) for number, source in enumerate(self.sources) if not source)


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on with the lineage."""

    lineage: LineageInfo


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


def decide_lineage(
    current: LineageInfo | None,
    spark: SparkProgress | str | None,
    wanted: Mapping[str, int],
    plan: str,
    *,
    moved: bool = False,
) -> LineageDecision:
    """Compare the current lineage with what the job wants to read next.

    `spark` is the lineage's progress, or the reason why it is unreadable; `wanted` is the next offset by SSP that
    checkpoints, resets and defaults ask for; `plan` names what must not change within a lineage, and after its last
    comma the tasks, which may grow. `moved` says that an operator has moved a checkpoint to where no batch ended: a
    batch that Spark has planned already would not begin there.
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
    if problem := _disagreement(current, spark, wanted):
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
        reason = f"build reads {_listed(sources)}, in this order, and read {_listed(lineage.sources)} before"
    elif lineage.kept == "" and kept is not None:
        reason = f"build keeps state in Spark now ({kept}), and kept none before"
    else:
        return decision
    new = LineageInfo("", dict(wanted), lineage.plan, sources, kept or "")
    return StartNew(reason, new, unfinished=True, kept_before=lineage.kept)


def _listed(sources: Sequence[str]) -> str:
    return ", ".join(source or "a source of Spark's" for source in sources)


def refuse_to_lose_state(
    decision: LineageDecision,
    *,
    had_checkpoint: bool,
    discard: bool,
    kept: str | None,
    outside: Sequence[str] = (),
) -> None:
    """A new lineage over existing checkpoints needs the operator's word where something is lost or doubled by it.

    `kept` names what is Spark's alone: an operator that keeps state, a source that is not grete's. Without, only what
    the lineage before has begun and not finished stands in the way, where there are outputs `outside` of streams.

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
            f"Restore the checkpoint location, or start with empty state at the checkpointed offsets by "
            f"setting job.lineage.state=discard"
        )
    if decision.unfinished and outside:
        words = ", ".join(outside)
        raise refusal(
            f"this pipeline cannot continue its Spark checkpoint: {reason}; and its last batch was begun, so rows of "
            f"it may be in {words} already. Run it once more as it was, or accept that these come again by "
            f"setting job.lineage.state=discard"
        )
