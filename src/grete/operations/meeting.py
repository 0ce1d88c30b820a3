"""Bringing tasks to the same offsets: those of a job and its clone, or those that share the partitions of one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from grete.config.key_tables.task import INPUTS_ENDS
from grete.errors import JobError
from grete.model.ids import JobId, SystemStreamPartition
from grete.operations.configuration import set_config
from grete.operations.job_handle import JobHandle, open_job
from grete.operations.orphans import standing_still

Offsets = Mapping[SystemStreamPartition, int]
"""The next offset to read of each partition."""
Run = Callable[[JobId], None]
"""Runs a job until it is drained. Raises JobError."""
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where all tasks are to stand, and which of the jobs has to run for it."""

    at: Offsets
    behind: Sequence[JobId]


def meeting(*handles: JobHandle) -> Meeting:
    """The highest offset of all tasks in each partition.

    Raises:
        JobError: a job has not committed anything, has no input in common with the others, or reads sources of
            Spark's beside its inputs, whose offsets only Spark knows.
    """
    stands = {handle.job: _stands(handle) for handle in handles}
    for job, found in stands.items():
        if not found:
            raise JobError(f"job {job.shown} has no checkpoints: run it first")
    every = {ssp for found in stands.values() for ssp in found}
    if not every.intersection(*stands.values()):
        raise JobError(f"{' and '.join(job.shown for job in stands)} have no input in common")
    at = {ssp: max(max(found[ssp]) for found in stands.values() if ssp in found) for ssp in every}
    behind = [
        job for job, found in stands.items() if any({at[ssp]} != offsets for ssp, offsets in found.items())
    ]
    return Meeting(at, behind)


def _stands(handle: JobHandle) -> dict[SystemStreamPartition, set[int]]:
    """The next offsets of each partition's tasks. Tasks that are gone stand nowhere."""
    found: dict[SystemStreamPartition, set[int]] = {}
    reads = handle.task_inputs()
    for task, commit in handle.checkpoints.read().items():
        if commit.has_foreign_sources:
            raise JobError(
                f"job {handle.job.shown} reads sources of Spark's beside task.inputs, and cannot be run to given "
                f"offsets of these: the outputs of another job would not begin where its own end"
            )
        for ssp in reads.get(task, ()):
            if ssp in commit.offsets:
                found.setdefault(ssp, set()).add(int(commit.offsets[ssp]) + 1)
    return found


def bring_together(jobs: Sequence[JobId], run: Run) -> Meeting:
    """Run each of them, one after the other, to where all their tasks stand at the same offsets.

    A pipeline may go further, when it stopped with a batch planned: then the others follow.

    Raises:
        JobError: one is running, or does not come there.
        ConfigError: see `set_config`.
    """
    for _ in range(_ROUNDS):
        found = _run_those_behind(jobs, run)
        with ExitStack() as stack:
            now = meeting(*(stack.enter_context(open_job(job)) for job in jobs))
        if not now.behind:
            return now
        if now.at == found.at:
            break
    names = ", ".join(job.shown for job in now.behind)
    raise JobError(
        f"{names}: not at the offsets that {'it was' if len(jobs) == 1 else 'they were'} to be run to; see the "
        f"logs, and try again"
    )


def _run_those_behind(jobs: Sequence[JobId], run: Run) -> Meeting:
    with ExitStack() as stack:
        handles = [stack.enter_context(open_job(job)) for job in jobs]
        stack.enter_context(standing_still(*handles))
        found = meeting(*handles)
    ends = ",".join(f"{ssp}={offset}" for ssp, offset in sorted(found.at.items()))
    for job in found.behind:
        _set(job, ends, f"to the same offsets: {', '.join(map(str, jobs))}")
        try:
            run(job)
        finally:  # a drain by somebody else would end there, too
            _set(job, None, "inputs have no end again")
    return found


def _set(job: JobId, ends: str | None, reason: str) -> None:
    with open_job(job) as handle:
        set_config(handle, {INPUTS_ENDS.name: ends}, reason=reason)
