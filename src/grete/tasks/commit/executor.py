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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from grete.clock import Clock, Deadline
from grete.errors import (
    CheckpointsMoved,
    Fenced,
    InDoubt,
    LogError,
    LogUnreachable,
)
from grete.failpoints import failpoint
from grete.systems.base import System
from grete.systems.transactions import NotWritten, OutcomeUnknown
from grete.tasks.commit.earlier import EarlierCommits
from grete.tasks.commit.writer import TransactionWriter
from grete.tasks.results import Output, Processed
from grete.tasks.spec import RunnerSpec, TaskReport

_log = logging.getLogger("grete.container")
_PATIENCE_S = 120.0
"""Brokers may restart, and another writer's transaction may have to time out, before a share can be committed."""
_PAUSES_S = (0.05, 2.0)


class TimedOut(Exception):
    """A transaction took longer than brokers wait for one; nothing of it was written, and nothing of it will be."""

    def __init__(self, size: int) -> None:
        self.size = size
        """The bytes that were to be sent."""
        super().__init__(f"a transaction of {size} bytes was not sent in time")


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
        self._log_end = log_end
        streams = [
            spec.commit.checkpoint_log,
            *spec.commit.outputs,
            *(one.changelog_stream for one in spec.stores),
        ]
        self._transactions = system.transactions([spec.commit.fence, spec.commit.epoch], slot, streams)
        self._earlier = EarlierCommits(spec, slot, lineage)
        self._writer = TransactionWriter(
            spec,
            self._transactions,
            clock,
            lineage,
            has_gaps=system.capabilities.has_gaps,
            elsewhere=elsewhere,
        )

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
                return [self._signed(report) for report in found.values()]
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
        self._writer.fit(made)
        started_s = time.perf_counter()
        with self._ended_by_a_later_epoch():
            reports = self._commit_or_find(batch_id, made)
        commit_s = time.perf_counter() - started_s
        self._log_end = max([self._log_end, *(report.committed_at for report in reports)])
        failpoint("executor.reported")
        return [self._signed(replace(report, commit_s=commit_s)) for report in reports]

    @contextmanager
    def _ended_by_a_later_epoch(self) -> Iterator[None]:
        """To be fenced off by the container's own next epoch is no end of the container."""
        try:
            yield
        except Fenced as error:
            if error.scope != self._commit.epoch.scope:
                raise
            # without its cause, which would be read as the container's own end by `spark.failures.translation`
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
                return self._writer.write(batch_id, made, deadline.at_s)
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
                if doubt is None and refusal.is_final and self._writer.fit(made, again=True):
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

    def _open(self, tasks: Collection[int], deadline: Deadline) -> dict[int, TaskReport]:
        """Take the id over, and see what was committed of the tasks since."""
        self._transactions.open(deadline.at_s)
        records = self._system.settled_records(self._commit.checkpoint_log, self._log_end)
        return {task: found for task, found in self._earlier.in_records(records).items() if task in tasks}

    def _found(self, made: Sequence[Processed], deadline: Deadline) -> list[TaskReport]:
        """The reports of these results if they are committed, with where; else none."""
        own = {result.report.task for result in made}
        return self._earlier.of_results(made, self._open(own, deadline))

    def confirm(self) -> None:
        """Wait until readers see what was committed; at most once a second while there is more to commit.

        Raises:
            LogUnreachable: they do not for long; who begins again looks what is there.
        """
        try:
            self._transactions.confirm()
        except OutcomeUnknown as unknown:
            raise LogUnreachable(f"{self._commit.fence.scope} slot {self._slot}: {unknown}") from unknown

    def close(self) -> None:
        """Let the id go."""
        self._transactions.close()


def _size(made: Sequence[Processed]) -> int:
    batches = [rows for result in made for _, _, rows in result.outputs]
    batches += [change.records for result in made for change in result.changes]
    return sum(int(rows.nbytes) for rows in batches)
