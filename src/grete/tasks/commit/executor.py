"""Commits the share of a batch that one Spark partition processed, in one transaction of the worker that ran it.

The share has a *slot*, its Spark partition's number, and with it a transactional id of the container. A worker that
opens the id ends the transaction of the one that had it, then reads the scope's epoch, then the end of the checkpoint
log:

- a higher epoch means that another container has taken over, and nothing is written;
- a companion record of this batch means that an earlier attempt has committed it, so its report is made of that;
- one of another lineage means that a worker of an earlier run of this container, which was given up with its brokers
  away, has committed what this run is about to process again: the container has to reread its checkpoints.

All this stays true as long as no request of ours is refused, since no worker has opened the id in between. So an
attempt that Spark gave up, ran twice, or took for lost can neither commit a batch a second time nor after its
successor.
An id is kept from batch to batch by the worker that used it last, as the driver knows from the reports.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from grete.checkpoint.task_commit import TaskCommit, commit_entries, companion_of
from grete.clock import Clock, Deadline
from grete.errors import CheckpointsMoved, InDoubt, LogError, LogUnreachable, ProcessingError, WireError
from grete.failpoints import failpoint
from grete.keyed_log.base import Record
from grete.model.ids import TaskName
from grete.systems.base import System
from grete.systems.transactions import NotWritten, OutcomeUnknown, RecordTooLarge, Transactions
from grete.tasks.results import Processed, TaskResult
from grete.tasks.spec import BatchPlan, CommitSpec, RunnerSpec, TaskProgress, TaskReport

_log = logging.getLogger("grete.container")
_PATIENCE_S = 120.0
"""Brokers may restart, and another writer's transaction may have to time out, before a share can be committed."""
_PAUSES_S = (0.05, 2.0)


@dataclass(slots=True)
class _Slot:
    """A transactional id that this worker uses, and the last batch that it committed through it."""

    transactions: Transactions
    committed: tuple[str, int] = ("", -1)


@dataclass(slots=True)
class _Share:
    """A share on its way: what its tasks have made so far."""

    plan: BatchPlan
    slot: int
    made: list[Processed] = field(default_factory=list)


class ShareTransactions:
    """Commits a share in one transaction of the slot: `begin`, `add` for each task, `finish`. Used by one thread.

    Keeps the slots that one Python worker has used. A share that fails begins again; of one that was not finished
    nothing is ever visible. All its tasks have to be open until then.
    """

    def __init__(
        self, spec: RunnerSpec, commit: CommitSpec, system: System, clock: Clock, worker: str
    ) -> None:
        self._spec = spec
        self._commit = commit
        self._system = system
        self._clock = clock
        self._worker = worker
        self._streams = [
            commit.checkpoint_log,
            *commit.outputs,
            *(one.changelog_stream for one in spec.stores),
        ]
        self._slots: dict[int, _Slot] = {}
        self._share = _Share(BatchPlan("", -1, {}), -1)

    def begin(
        self, plan: BatchPlan, slot: int, tasks: Collection[int], *, is_repeated: bool
    ) -> list[TaskResult]:
        """Results of the share's tasks that an earlier attempt has committed; called before they run.

        Raises:
            Fenced: another container has taken over.
            LogError: the store did not answer.
        """
        self._share = _Share(plan, slot)
        held = self._held(slot)
        is_ours = plan.slot_workers.get(slot) == self._worker and held.committed != (
            plan.lineage,
            plan.batch_id,
        )
        if not is_ours:
            held.transactions.drop()
        if not is_repeated:
            return []
        deadline = Deadline(self._clock, _PATIENCE_S, pauses_s=_PAUSES_S)
        while True:
            try:
                found = self._open(held, plan, deadline)
                return [
                    TaskResult(self._signed(report, slot)) for task, report in found.items() if task in tasks
                ]
            except NotWritten as refusal:
                self._pause(refusal, deadline)

    def add(self, made: Processed) -> None:
        """Take one task's results. Changes of its stores are pending in their files by `finish`."""
        self._share.made.append(made)

    def finish(self) -> list[TaskResult]:
        """Commit what the tasks made, unless an earlier attempt has; durable on return.

        Raises:
            Fenced: another container has taken over; nothing was written.
            InDoubt: the outcome is unknown; the next attempt finds out.
            ProcessingError: a record is larger than its stream takes; nothing was written.
            LogCorrupted: another program writes to a changelog of ours; nothing was written.
            LogError: nothing was written.
        """
        plan, slot, results = self._share.plan, self._share.slot, self._share.made
        if not results:
            return []
        held = self._held(slot)
        streams = [stream for result in results for stream, _, _ in result.outputs]
        streams += [change.stream for result in results for change in result.changes]
        held.transactions.fits(sorted(set(streams)))
        for result in results:
            self._check_sizes(held.transactions, result)
        started_s = self._clock.monotonic_s()
        reports = self._finish(held, plan, slot, results)
        commit_s = self._clock.monotonic_s() - started_s
        held.committed = (plan.lineage, plan.batch_id)
        self._share = _Share(plan, slot)  # results are as large as the share
        failpoint("executor.reported")
        return [TaskResult(replace(report, commit_s=commit_s)) for report in reports]

    def _finish(
        self, held: _Slot, plan: BatchPlan, slot: int, results: Sequence[Processed]
    ) -> list[TaskReport]:
        deadline = Deadline(self._clock, _PATIENCE_S, pauses_s=_PAUSES_S)
        doubt: OutcomeUnknown | None = None
        done: list[TaskReport] = []
        while True:
            try:
                if not held.transactions.is_open:
                    found = self._open(held, plan, deadline)
                    doubt = None
                    done += [found[one.report.task] for one in results if one.report.task in found]
                    results = [one for one in results if one.report.task not in found]
                written = self._write(held, plan, results, deadline.at_s) if results else []
                return [self._signed(report, slot) for report in [*done, *written]]
            except OutcomeUnknown as unknown:
                doubt = unknown
                _log.warning("a share of the batch may be committed, looking whether it is: %s", unknown)
                held.transactions.drop()
                if deadline.is_over:
                    raise self._in_doubt(plan, doubt) from unknown
            except NotWritten as refusal:
                held.transactions.drop()
                if doubt is not None and deadline.is_over:
                    raise self._in_doubt(plan, doubt) from refusal
                self._pause(refusal, deadline)

    def _in_doubt(self, plan: BatchPlan, cause: OutcomeUnknown) -> InDoubt:
        return InDoubt(f"{self._commit.fence.scope} batch {plan.batch_id}", str(cause))

    def _signed(self, report: TaskReport, slot: int) -> TaskReport:
        return replace(report, slot=slot, worker=self._worker)

    @staticmethod
    def _pause(refusal: NotWritten, deadline: Deadline) -> None:
        if refusal.is_final or deadline.is_over:
            kind = LogError if refusal.is_final else LogUnreachable
            raise kind(f"nothing of this share of the batch was committed: {refusal}") from refusal
        _log.warning("a share of the batch is not committed yet, trying again: %s", refusal)
        deadline.pause()

    def _held(self, slot: int) -> _Slot:
        if slot not in self._slots:
            self._slots[slot] = _Slot(self._system.transactions(self._commit.fence, slot, self._streams))
        return self._slots[slot]

    # --- looking ---

    def _open(self, held: _Slot, plan: BatchPlan, deadline: Deadline) -> dict[int, TaskReport]:
        """Take the id over, and see what of the batch is committed by now. Of other slots' tasks, too.

        An id that no worker of this run has had may be another run's still: what that has committed since the
        checkpoints were read is looked for from there.

        Raises:
            CheckpointsMoved: another run has committed for a task of this container.
        """
        held.transactions.open(deadline.at_s)
        is_known = self._share.slot in plan.slot_workers
        after = plan.log_end if is_known else self._commit.log_end
        return self._committed(plan, self._system.settled_records(self._commit.checkpoint_log, after))

    def _committed(self, plan: BatchPlan, records: Iterable[Record]) -> dict[int, TaskReport]:
        indexes = {task.name: task.index for task in self._spec.tasks}
        found: dict[int, TaskReport] = {}
        for record in records:
            task, commit = _companion(record)
            if commit is None or task not in indexes or not commit.lineage:
                continue
            if commit.lineage != plan.lineage:
                raise CheckpointsMoved(
                    f"another run of {self._commit.fence.scope} has committed {task} at offset {record.offset} of "
                    f"{self._commit.checkpoint_log} since this one read its checkpoints; nothing was written, and "
                    f"the container reads them again"
                )
            if commit.batch_id >= plan.batch_id:
                found[indexes[task]] = self._report(indexes[task], commit, record.offset)
        return found

    def _report(self, index: int, commit: TaskCommit, offset: int) -> TaskReport:
        indexes = {ssp: number for number, ssp in enumerate(self._spec.ssps)}
        return TaskReport(
            task=index,
            token=commit.token,
            records=0,
            last_offsets={indexes[ssp]: int(last) for ssp, last in commit.offsets.items() if ssp in indexes},
            positions=commit.store_positions,
            committed_at=offset,
        )

    # --- writing ---

    def _check_sizes(self, transactions: Transactions, result: Processed) -> None:
        name = self._spec.tasks[result.report.task].name
        batches = [*result.outputs, *((one.stream, one.partition, one.records) for one in result.changes)]
        for stream, at, records in batches:
            try:
                transactions.check_sizes(stream, at, records)
            except RecordTooLarge as error:
                raise ProcessingError(
                    f"task {name!r}: {error}. Its key begins with {_head(records, error.row)!r}. Nothing of "
                    f"this share of the batch was committed"
                ) from error

    def _write(
        self, held: _Slot, plan: BatchPlan, results: Sequence[Processed], deadline_s: float
    ) -> list[TaskReport]:
        transactions = held.transactions
        failpoint("executor.before-produce")
        transactions.begin()
        try:
            for result in results:
                self._send(transactions, result)
            ends = dict(transactions.settle(deadline_s))
            failpoint("executor.flushed")
            reports = [self._positioned(result, ends) for result in results]
            commits = {
                self._name(report): self._task_commit(plan, report, result.progress)
                for report, result in zip(reports, results, strict=True)
            }
            entries = commit_entries(commits, grouper=self._commit.grouper)
            transactions.send_entries(self._commit.checkpoint_log, entries, self._clock.wall_ms())
            last = transactions.settle(deadline_s)[self._commit.checkpoint_log, 0] - 1
            failpoint("executor.before-commit")
        except BaseException:
            transactions.abort(deadline_s)
            raise
        transactions.commit(deadline_s)
        failpoint("executor.committed")
        return [replace(report, committed_at=last) for report in reports]

    def _name(self, report: TaskReport) -> TaskName:
        return self._spec.tasks[report.task].name

    def _send(self, transactions: Transactions, result: Processed) -> None:
        for stream, partition, records in result.outputs:
            transactions.send_batch(stream, partition, records)
        for change in result.changes:
            after = result.progress.store_positions.get(change.store, 0)
            transactions.send_batch(
                change.stream, change.partition, change.records, after=after, packed=change.data
            )

    def _positioned(self, result: Processed, ends: Mapping[tuple[str, int], int]) -> TaskReport:
        """The report with where the changelogs end now; the stores' files keep the changes up to there."""
        positions = dict(result.progress.store_positions)
        for change in result.changes:
            positions[change.store] = ends[change.stream, change.partition]
            change.keep(result.report.token, positions[change.store])
        return replace(result.report, positions=positions)

    def _task_commit(self, plan: BatchPlan, report: TaskReport, progress: TaskProgress) -> TaskCommit:
        offsets = {**progress.last_offsets, **report.last_offsets}
        return TaskCommit(
            offsets={self._spec.ssps[index]: str(offset) for index, offset in offsets.items()},
            lineage=plan.lineage,
            batch_id=plan.batch_id,
            token=report.token,
            store_positions=report.positions,
        )

    def close(self) -> None:
        """Let every id go."""
        for held in self._slots.values():
            held.transactions.drop()


def _companion(record: Record) -> tuple[TaskName | None, TaskCommit | None]:
    try:
        return companion_of(record)
    except WireError:
        return None, None  # a checkpoint, or a record of another program


def _head(records: pa.RecordBatch, row: int) -> bytes:
    key = records.column(0)[row].as_py()
    return b"" if key is None else bytes(key[:40])
