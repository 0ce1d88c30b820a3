"""Commits what the tasks of a slot made, in one transaction of the process that ran them.

A slot has a transactional id of the container. A process that opens the id ends the transaction of the one that had
it, then reads the scope's epoch, then the end of the checkpoint log:

- a higher epoch means that another container has taken over, and nothing is written; that a later epoch of shares has
  begun in this one, which may have fewer slots and so nobody who takes this one, ends the attempt as well;
- a commit of a task of this container with another lineage means that a worker of an earlier run, which was given up
  with its brokers away, has committed what this run is about to process again: the container reads its checkpoints
  again;
- commits of the slot's tasks with this lineage are those of an earlier attempt at the share, which Spark took for
  lost: a share that begins goes on from them. For one that has begun they mean that a later attempt has taken over.

All this stays true as long as no request of ours is refused, since no process has opened the id in between. So an
attempt that Spark gave up, ran twice, or took for lost can neither commit a record a second time nor after its
successor.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from grete.checkpoint.task_commit import TaskCommit, commit_entries, companion_of
from grete.clock import Clock, Deadline
from grete.errors import (
    CheckpointsMoved,
    Fenced,
    InDoubt,
    LogError,
    LogUnreachable,
    ProcessingError,
    WireError,
)
from grete.failpoints import failpoint
from grete.keyed_log.base import Record
from grete.model.ids import TaskName
from grete.systems.base import System
from grete.systems.transactions import NotWritten, OutcomeUnknown, RecordTooLarge
from grete.tasks.results import Output, Processed
from grete.tasks.spec import RunnerSpec, TaskProgress, TaskReport

_log = logging.getLogger("grete.container")
_PATIENCE_S = 120.0
"""Brokers may restart, and another writer's transaction may have to time out, before a share can be committed."""
_PAUSES_S = (0.05, 2.0)


Place = tuple[str, int]
"""A stream and a partition."""


class TimedOut(Exception):
    """A transaction took longer than brokers wait for one; nothing of it was written, and nothing of it will be."""

    def __init__(self, size: int) -> None:
        self.size = size
        """The bytes that were to be sent."""
        super().__init__(f"a transaction of {size} bytes was not sent in time")


class _Unexpected(Exception):
    """A changelog does not end where it was expected; nothing is committed."""


class SlotCommits:
    """The commits of one slot in one epoch. Used by one thread."""

    def __init__(
        self,
        spec: RunnerSpec,
        system: System,
        clock: Clock,
        worker: str,
        *,
        slot: int,
        lineage: str,
        log_end: int,
        elsewhere: Callable[[Sequence[Output]], None],
    ) -> None:
        """Commits of the slot's tasks are known up to `log_end` of the checkpoint log.

        `elsewhere` appends what goes to other systems, durable on return.
        """
        self._spec = spec
        self._commit = spec.commit
        self._system = system
        self._clock = clock
        self._worker = worker
        self._slot = slot
        self._lineage = lineage
        self._log_end = log_end
        self._append_elsewhere = elsewhere
        streams = [
            spec.commit.checkpoint_log,
            *spec.commit.outputs,
            *(one.changelog_stream for one in spec.stores),
        ]
        self._transactions = system.transactions([spec.commit.fence, spec.commit.epoch], slot, streams)
        self._has_gaps = system.capabilities.has_gaps
        self._next: dict[Place, int] = {}
        """Where the next record of a changelog will be, if nothing else happens to it."""

    def resume(self, tasks: Collection[int]) -> list[TaskReport]:
        """Take the slot; returns the last commit of each task that earlier attempts at this share have made.

        Raises:
            Fenced: another container has taken over.
            CheckpointsMoved: another run of this container has committed, or a later epoch has begun.
            LogError: the brokers did not answer.
        """
        with self._ended_by_a_later_epoch():
            return self._resume(tasks)

    def _resume(self, tasks: Collection[int]) -> list[TaskReport]:
        deadline = Deadline(self._clock, _PATIENCE_S, pauses_s=_PAUSES_S)
        while True:
            try:
                found = self._open(tasks, deadline)
                self._log_end = max([self._log_end, *(report.committed_at for report in found.values())])
                return list(found.values())
            except NotWritten as refusal:
                self._pause(refusal, deadline)

    def commit(self, batch_id: int, made: Sequence[Processed]) -> list[TaskReport]:
        """Commit what tasks made; durable on return. Changes of stores are pending in their files before.

        Raises:
            Fenced: another container has taken over; nothing was written.
            CheckpointsMoved: another attempt at this share has, or a later epoch has begun; nothing was written.
            InDoubt: the outcome is unknown; the next attempt finds out.
            TimedOut: it took longer than brokers wait for a transaction; nothing was written.
            ProcessingError: a record is larger than its topic takes; nothing was written.
            LogError: nothing was written.
        """
        self._fit(made)
        started_s = time.perf_counter()
        with self._ended_by_a_later_epoch():
            reports = self._commit_or_find(batch_id, made)
        commit_s = time.perf_counter() - started_s
        self._log_end = max([self._log_end, *(report.committed_at for report in reports)])
        failpoint("executor.reported")
        return [replace(report, commit_s=commit_s) for report in reports]

    @contextmanager
    def _ended_by_a_later_epoch(self) -> Iterator[None]:
        """To be fenced off by the container's own next epoch is no end of the container."""
        try:
            yield
        except Fenced as error:
            if error.scope != self._commit.epoch.scope:
                raise
            # without its cause, which would be read as the container's own end by `spark.failures`
            raise CheckpointsMoved(
                f"{self._commit.fence.scope} has begun a later epoch, its number {error.seen}, while slot "
                f"{self._slot} of epoch {error.epoch} was at work; nothing was written"
            ) from None

    def _commit_or_find(self, batch_id: int, made: Sequence[Processed]) -> list[TaskReport]:
        deadline = Deadline(self._clock, _PATIENCE_S, pauses_s=_PAUSES_S)
        doubt: OutcomeUnknown | None = None
        is_late = False
        while True:
            try:
                if not self._transactions.is_open and (found := self._found(made, deadline)):
                    return found
                doubt = None
                if is_late:
                    raise TimedOut(_size(made))
                return self._write(batch_id, made, deadline.at_s)
            except OutcomeUnknown as unknown:
                doubt = unknown
                is_late |= self._transactions.has_timed_out
                _log.warning("a commit may have been made, looking whether it was: %s", unknown)
                self._transactions.drop()
                if deadline.is_over:
                    raise self._in_doubt(batch_id, doubt) from unknown
            except NotWritten as refusal:
                is_late |= self._transactions.has_timed_out
                self._transactions.drop()
                if doubt is not None and deadline.is_over:
                    raise self._in_doubt(batch_id, doubt) from refusal
                if doubt is None and refusal.is_final and self._fit(made, again=True):
                    continue  # topics take less than they did
                self._pause(refusal, deadline)

    def _in_doubt(self, batch_id: int, cause: OutcomeUnknown) -> InDoubt:
        return InDoubt(f"{self._commit.fence.scope} batch {batch_id}", str(cause))

    def _signed(self, report: TaskReport) -> TaskReport:
        return replace(report, slot=self._slot, worker=self._worker)

    @staticmethod
    def _pause(refusal: NotWritten, deadline: Deadline) -> None:
        if refusal.is_final or deadline.is_over:
            kind = LogError if refusal.is_final else LogUnreachable
            raise kind(f"nothing of this share was committed: {refusal}") from refusal
        _log.warning("a share is not committed yet, trying again: %s", refusal)
        deadline.pause()

    # --- looking ---

    def _open(self, tasks: Collection[int], deadline: Deadline) -> dict[int, TaskReport]:
        """Take the id over, and see what was committed of the tasks since."""
        self._transactions.open(deadline.at_s)
        records = self._system.settled_records(self._commit.checkpoint_log, self._log_end)
        return {task: found for task, found in self._committed(records).items() if task in tasks}

    def _found(self, made: Sequence[Processed], deadline: Deadline) -> list[TaskReport]:
        """The reports of these results if they are committed, nothing if they are not: they are together or never."""
        own = {result.report.task: result.report for result in made}
        found = self._open(own, deadline)
        known = {result.report.task: result.progress.token for result in made}
        found = {task: report for task, report in found.items() if report.token != known[task]}
        moved = [task for task, report in found.items() if report.token != own[task].token]
        if moved:
            raise CheckpointsMoved(
                f"another attempt at slot {self._slot} of {self._commit.fence.scope} has committed "
                f"{self._spec.tasks[moved[0]].name} and goes on; nothing was written"
            )
        return [
            replace(
                own[task],
                positions=report.positions,
                committed_at=report.committed_at,
                batch_id=report.batch_id,
            )
            for task, report in found.items()
        ]

    def _committed(self, records: Iterable[Record]) -> dict[int, TaskReport]:
        indexes = {task.name: task.index for task in self._spec.tasks}
        found: dict[int, TaskReport] = {}
        for record in records:
            task, commit = _companion(record)
            if commit is None or task not in indexes or not commit.lineage:
                continue
            if commit.lineage != self._lineage:
                raise CheckpointsMoved(
                    f"another run of {self._commit.fence.scope} has committed {task} at offset {record.offset} of "
                    f"{self._commit.checkpoint_log} since this one read its checkpoints; nothing was written, and "
                    f"the container reads them again"
                )
            found[indexes[task]] = self._report(indexes[task], commit, record.offset)
        return found

    def _report(self, index: int, commit: TaskCommit, offset: int) -> TaskReport:
        indexes = {ssp: number for number, ssp in enumerate(self._spec.ssps)}
        report = TaskReport(
            task=index,
            token=commit.token,
            records=0,
            last_offsets={indexes[ssp]: int(last) for ssp, last in commit.offsets.items() if ssp in indexes},
            positions=commit.store_positions,
            committed_at=offset,
            batch_id=commit.batch_id,
        )
        return self._signed(report)

    # --- writing ---

    def _fit(self, made: Sequence[Processed], *, again: bool = False) -> bool:
        """Let batches be such as their streams take; returns whether that has changed.

        Raises:
            ProcessingError: a record is larger.
        """
        streams = [stream for result in made for stream, _, _ in result.outputs]
        streams += [change.stream for result in made for change in result.changes]
        has_changed = self._transactions.fits(sorted(set(streams)), again=again)
        for result in made:
            self._check_sizes(result)
        return has_changed

    def _check_sizes(self, result: Processed) -> None:
        name = self._spec.tasks[result.report.task].name
        batches = [*result.outputs, *((one.stream, one.partition, one.records) for one in result.changes)]
        for stream, at, records in batches:
            try:
                self._transactions.check_sizes(stream, at, records)
            except RecordTooLarge as error:
                raise ProcessingError(
                    f"task {name!r}: {error}. Its key begins with {_head(records, error.row)!r}. Nothing of "
                    f"this transaction was committed"
                ) from error

    def _write(self, batch_id: int, made: Sequence[Processed], deadline_s: float) -> list[TaskReport]:
        expected = self._expected_ends(made)
        try:
            return self._write_expecting(expected, batch_id, made, deadline_s)
        except _Unexpected:
            _log.debug("another offset than expected, so positions are asked for")
            return self._write_expecting(None, batch_id, made, deadline_s)

    def _expected_ends(self, made: Sequence[Processed]) -> Mapping[Place, int] | None:
        """Where changelogs will end; None if it has to be asked for, which takes a request more.

        Nobody else writes to them: after our last transaction there is its marker, and then what comes next.
        """
        ends: dict[Place, int] = {}
        for result in made:
            for change in result.changes:
                place = (change.stream, change.partition)
                if place not in self._next:
                    return None
                ends[place] = self._next[place] + change.records.num_rows
        return ends

    def _write_expecting(
        self,
        expected: Mapping[Place, int] | None,
        batch_id: int,
        made: Sequence[Processed],
        deadline_s: float,
    ) -> list[TaskReport]:
        transactions = self._transactions
        failpoint("executor.before-produce")
        changelogs, self._next = self._next, {}  # what is aborted takes an offset, too
        transactions.begin()
        try:
            for result in made:
                self._send(result)
            ends = dict(transactions.settle(deadline_s)) if expected is None else expected
            failpoint("executor.flushed")
            reports = [self._signed(self._positioned(result, ends)) for result in made]
            commits = {
                self._spec.tasks[report.task].name: self._task_commit(batch_id, report, result.progress)
                for report, result in zip(reports, made, strict=True)
            }
            entries = commit_entries(commits, grouper=self._commit.grouper)
            transactions.send_entries(self._commit.checkpoint_log, entries, self._clock.wall_ms())
            found = transactions.settle(deadline_s)
            if any(found.get(place) != end for place, end in (expected or {}).items()):
                raise _Unexpected
            last = found[self._commit.checkpoint_log, 0] - 1
            self._send_elsewhere(made)
            failpoint("executor.before-commit")
        except BaseException:
            transactions.abort(deadline_s)
            raise
        transactions.commit(deadline_s)
        failpoint("executor.committed")
        if self._has_gaps:
            written = {(change.stream, change.partition) for result in made for change in result.changes}
            self._next = changelogs | {place: found[place] + 1 for place in written}
        return [replace(report, committed_at=last, batch_id=batch_id) for report in reports]

    def confirm(self) -> None:
        """Wait until readers see what was committed; at most once a second while there is more to commit.

        Raises:
            LogUnreachable: they do not for long; who begins again looks what is there.
        """
        try:
            self._transactions.confirm()
        except OutcomeUnknown as unknown:
            raise LogUnreachable(f"{self._commit.fence.scope} slot {self._slot}: {unknown}") from unknown

    def _send(self, result: Processed) -> None:
        for stream, partition, records in result.outputs:
            self._transactions.send_batch(stream, partition, records)
        for change in result.changes:
            after = result.progress.store_positions.get(change.store, 0)
            self._transactions.send_batch(
                change.stream, change.partition, change.records, after=after, packed=change.data
            )

    def _send_elsewhere(self, made: Sequence[Processed]) -> None:
        """At the last moment, so that what is sent in vain is little: it cannot be taken back."""
        sent = [output for result in made for output in result.elsewhere]
        if sent:
            self._transactions.check_fence()
            self._append_elsewhere(sent)

    def _positioned(self, result: Processed, ends: Mapping[tuple[str, int], int]) -> TaskReport:
        """The report with where the changelogs end now; the stores' files keep the changes up to there."""
        positions = dict(result.progress.store_positions)
        for change in result.changes:
            positions[change.store] = ends[change.stream, change.partition]
            change.keep(result.report.token, positions[change.store])
        return replace(result.report, positions=positions)

    def _task_commit(self, batch_id: int, report: TaskReport, progress: TaskProgress) -> TaskCommit:
        offsets = {**progress.last_offsets, **report.last_offsets}
        return TaskCommit(
            offsets={self._spec.ssps[index]: str(offset) for index, offset in offsets.items()},
            lineage=self._lineage,
            batch_id=batch_id,
            token=report.token,
            store_positions=report.positions,
        )

    def close(self) -> None:
        """Let the id go."""
        self._transactions.close()


def _size(made: Sequence[Processed]) -> int:
    batches = [rows for result in made for _, _, rows in result.outputs]
    batches += [change.records for result in made for change in result.changes]
    return sum(int(rows.nbytes) for rows in batches)


def _companion(record: Record) -> tuple[TaskName | None, TaskCommit | None]:
    try:
        return companion_of(record)
    except WireError:
        return None, None  # a checkpoint, or a record of another program


def _head(records: pa.RecordBatch, row: int) -> bytes:
    key = records.column(0)[row].as_py()
    return b"" if key is None else bytes(key[:40])
