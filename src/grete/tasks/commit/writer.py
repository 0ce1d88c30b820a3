"""Writes what the tasks of a slot made, in one transaction with their checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from grete.arrow import pa
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.clock import Clock
from grete.errors import ProcessingError
from grete.failpoints import failpoint
from grete.systems.transactions import RecordTooLarge, Transactions
from grete.tasks.results import Output, Processed
from grete.tasks.spec import RunnerSpec, TaskProgress, TaskReport

_log = logging.getLogger("grete.container")
Place = tuple[str, int]
"""A stream and a partition."""


class _Unexpected(Exception):
    """A changelog does not end where it was expected; nothing is committed."""


class TransactionWriter:
    """One transaction after the other through `transactions`, which are open. Used by one thread."""

    def __init__(
        self,
        spec: RunnerSpec,
        transactions: Transactions,
        clock: Clock,
        lineage: str,
        *,
        has_gaps: bool,
        elsewhere: Callable[[Sequence[Output]], None],
    ) -> None:
        """`elsewhere` appends what goes to other systems, durable on return."""
        self._spec = spec
        self._commit = spec.commit
        self._transactions = transactions
        self._clock = clock
        self._lineage = lineage
        self._has_gaps = has_gaps
        self._append_elsewhere = elsewhere
        self._next: dict[Place, int] = {}
        """Where the next record of a changelog will be, if nothing else happens to it."""

    def fit(self, made: Sequence[Processed], *, again: bool = False) -> bool:
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

    def write(self, batch_id: int, made: Sequence[Processed], deadline_s: float) -> list[TaskReport]:
        """Commit; returns the reports with where they were committed.

        Raises:
            NotWritten, OutcomeUnknown: by the brokers.
        """
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
            reports = [self._positioned(result, ends) for result in made]
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


def _head(records: pa.RecordBatch, row: int) -> bytes:
    key = records.column(0)[row].as_py()
    return b"" if key is None else bytes(key[:40])
