"""The loop of a share: polls its partitions, runs its tasks, and commits, for as long as its epoch lasts.

A share is the tasks of one slot. Outputs, changelog records and checkpoints of a transaction are committed together
where they were made (`tasks.commit.executor`), and checkpoints alone say where to go on. Nothing ends an epoch but a
change, so instances, stores and clients live as long as that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from grete.arrow import pa
from grete.clock import CPU, Clock
from grete.model.ids import SystemStreamPartition
from grete.systems.admin import OffsetAdmin
from grete.systems.inputs import Arrived, Inputs, LookedFor
from grete.tasks.batch_traces import BatchTraces
from grete.tasks.commit.executor import SlotCommits, TimedOut
from grete.tasks.concurrent import Piece, process_side_by_side
from grete.tasks.key_buckets import KeyBuckets
from grete.tasks.runner import TaskRun, taken_of
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share_input import PassedOffsets, ShareInput
from grete.tasks.share_limits import CommitSize, Pace, ShareLimits
from grete.tasks.shares import Committed, ShareStart
from grete.tasks.spec import RunnerSpec, TaskReport, advanced
from grete.tasks.timers import DueCalls
from grete.wire.traces import TracedBatch

_BACKLOG_S = 0.2
"""While there is more input than one poll gives, a transaction goes on so long: a commit takes about 10 ms, and
an operator's request waits for its end."""
_SLICE_S = 0.05
_CONFIRM_S = 1.0
"""So often it is looked whether commits can be read, as long as others follow: on Kafka it takes 3 ms."""


class ShareLoop:
    """Runs the tasks of one share. Used by one thread."""

    def __init__(
        self,
        workers: TaskWorkers,
        start: ShareStart,
        clock: Clock,
        *,
        commit_s: float | None = None,
        records_at_most: int | None = None,
        is_ending: Callable[[], bool] = lambda: False,
        ends: OffsetAdmin | None = None,
    ) -> None:
        """Takes the slot, and what earlier attempts at this share have committed.

        `commit_s` and `records_at_most` are for callers who pace it themselves. A transaction ends soon when
        `is_ending`. `ends` is where the inputs end, when that is not what the system says.

        Raises:
            Fenced: another container has taken over.
            CheckpointsMoved, LogError: see `SlotCommits.resume`.
        """
        self._workers = workers
        self._clock = clock
        self._is_ending = is_ending
        self._slot = start.slot
        self._tasks = [task for task in start.tasks if task not in start.shut_down]
        self._progress = {task: start.progress[task] for task in start.tasks}
        self._starting = start.starting
        self._batch = start.next_batch
        self._limits = ShareLimits.of(workers.spec, commit_s, records_at_most)
        self._size = CommitSize(self._limits.records, workers.spec.settings.task.transaction_timeout_s)
        self._pace = Pace()
        self._commits = SlotCommits(
            workers.spec,
            workers.system,
            clock,
            workers.id,
            slot=start.slot,
            lineage=start.lineage,
            log_end=start.log_end,
            elsewhere=workers.outputs.append,
        )
        self._resume(start.tasks)
        self._input = self._open_input(start, ends)
        self._readers = self._readers_of(workers.spec)
        self._buckets = KeyBuckets.of(workers.spec.settings)
        self._gathered = _Gathered()
        self._passed = PassedOffsets(clock)
        self._confirmed_at_s = -math.inf
        self._next_commit_s = self._limits.next_commit_s(-math.inf, -math.inf)
        is_the_end = not workers.spec.settings.task.ends  # inputs go on behind such ends
        self._due = DueCalls(workers, clock, self._limits.window_ms, calls_ends=is_the_end)
        self._traces = BatchTraces.of(workers.spec.settings.traces, clock)

    @property
    def resumed(self) -> Committed | None:
        """What earlier attempts at the share have committed and perhaps not reported, to be reported before all else.

        Else the container knows of later commits, and not of these, when it says with what the next attempt begins.
        """
        if not self._found:
            return None
        return Committed(self._slot, self._batch - 1, self._found, dict(self.next_offsets), commits=0)

    @property
    def is_drained(self) -> bool:
        """Whether all is committed that was there when the share began, if it is to end there."""
        return self._input.is_at_the_end and self.is_settled and self._due.has_ended

    @property
    def is_settled(self) -> bool:
        """Whether checkpoints name all that was passed."""
        return not self._passed

    @property
    def next_offsets(self) -> Mapping[str, int]:
        """The next offset to read of each SSP, by its text."""
        return self._input.next_offsets

    # --- beginning ---

    def _resume(self, tasks: Sequence[int]) -> None:
        self._found = self._commits.resume(tasks)
        self._take(self._found)
        self._batch = 1 + max([self._batch - 1, *(report.batch_id for report in self._found)])

    def _open_input(self, start: ShareStart, ends: OffsetAdmin | None) -> ShareInput:
        spec, order = self._workers.spec, (self._positions(), start.bootstrap, start.later)
        if ends is None:
            made = ShareInput(self._inputs(start), self._workers.input_system, *order)
        else:
            made = ShareInput(LookedFor(self._workers.system, self._clock, ends), lambda name: ends, *order)
        made.leave_out(_unread(spec, start.tasks, self._tasks))
        if start.until_drained:
            made.stop_at_the_end(spec.settings.task.ends)
        return made

    def _inputs(self, start: ShareStart) -> Inputs:
        names = {SystemStreamPartition.parse(text).system for text in start.starting}
        names = names or {self._workers.spec.default_system}
        readers = {name: self._workers.input_system(name).inputs(self._clock) for name in names}
        if len(readers) == 1:
            return readers.popitem()[1]
        from grete.systems.several import SeveralInputs

        return SeveralInputs(readers, self._clock)

    def _positions(self) -> dict[str, int]:
        """The next offset that a task wants of each: commits have gone on from where they started."""
        spec, starting = self._workers.spec, self._starting
        wanted: dict[str, int] = {}
        for task in self._tasks:
            last = self._progress[task].last_offsets
            for index in spec.tasks[task].ssps:
                ssp = str(spec.ssps[index])
                offset = last.get(index, starting[ssp] - 1) + 1
                wanted[ssp] = min(offset, wanted.get(ssp, offset))
        return {ssp: max(offset, wanted.get(ssp, offset)) for ssp, offset in starting.items()}

    def _readers_of(self, spec: RunnerSpec) -> dict[SystemStreamPartition, tuple[int, list[int]]]:
        found: dict[SystemStreamPartition, tuple[int, list[int]]] = {}
        for task in self._tasks:
            for index in spec.tasks[task].ssps:
                found.setdefault(spec.ssps[index], (index, []))[1].append(task)
        return found

    # --- going on ---

    def step(self, wait_s: float = 0.0) -> Committed | None:
        """Process what has arrived, and commit it; None when nothing has come for `wait_s`. Durable on return.

        Raises:
            ProcessingError: a record cannot be processed; nothing of the transaction was committed.
            Fenced: another container has taken over.
            CheckpointsMoved, InDoubt, LogError: see `SlotCommits.commit`; the share has to begin again.
            GreteError: see `ShareInput.poll`.
        """
        if self.process(wait_s):
            return self.commit()
        self.confirm()
        return None

    def process(self, wait_s: float = 0.0) -> list[int]:
        """The first half of `step`: process what has arrived, and return which tasks have something to commit.

        Raises:
            GreteError: see `step`.
        """
        with self._dropped_in_errors():
            self._gathered = self._gather(wait_s)
        return sorted(self._gathered.runs)

    def commit(self) -> Committed | None:
        """The second half of `step`: commit what was processed. Durable on return.

        None when it was too much for one transaction: it is processed again, in smaller ones.

        Raises:
            GreteError: see `step`.
        """
        with self._dropped_in_errors():
            try:
                made = self._commit(self._gathered.runs)
            except TimedOut as late:
                self._size.timed_out(self._gathered.records, late.size)
                self._go_back()
                return None
        if self._clock.monotonic_s() >= self._confirmed_at_s + _CONFIRM_S:
            self.confirm()
        return made

    def confirm(self) -> None:
        """Wait until readers see what was committed.

        Raises:
            InDoubt: they do not for long.
        """
        self._confirmed_at_s = self._clock.monotonic_s()
        self._commits.confirm()

    @contextmanager
    def _dropped_in_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Give the tasks up as they are: they are not committed."""
        self._gathered = _Gathered()
        self._due.drop()
        for task in self._tasks:
            self._workers.drop(task)

    def _go_back(self) -> None:
        """Stand where the last commit was."""
        self.drop()
        self._passed.clear()
        self._input.go_back(self._positions())

    def close(self) -> None:
        """Let the slot go, and release connections of the input."""
        self._commits.close()
        self._input.close()

    def _gather(self, wait_s: float) -> _Gathered:
        """The tasks that processed something, up to a commit."""
        gathered = _Gathered()
        if self._traces is not None:
            self._traces.begin(self._batch)
        now_s = self._clock.monotonic_s()
        began_s, due_s = now_s, max(self._next_commit_s, now_s)
        wait_s = min(wait_s, self._due.until_s(self._tasks))
        while True:
            wanted = min(self._pace.rows, self._size.records - gathered.records)
            arrived = self._input.poll(wanted, min(wait_s, _SLICE_S) if gathered.runs else wait_s)
            count = sum(one.records.num_rows for one in arrived if one.records is not None)
            if self._traces is not None and count:
                self._traces.arrived(one.records for one in arrived if one.records is not None)
            processing_s = self._clock.monotonic_s()
            is_cut = self._process(arrived, gathered)
            self._pace.note(count, self._clock.monotonic_s() - processing_s)
            self._due.make(
                self._tasks,
                lambda task: self._run(task, gathered),
                is_at_the_end=self._input.is_at_the_end,
            )
            is_cut |= any(run.wants_commit for run in gathered.runs.values())
            is_full = gathered.records >= self._size.records or 0 < self._limits.bytes <= gathered.bytes
            if is_cut or is_full or not gathered.runs or self._is_ending() or self._input.is_at_the_end:
                break
            now_s = self._clock.monotonic_s()
            if count >= wanted and now_s < began_s + _BACKLOG_S:
                wait_s = 0.0
            elif now_s < due_s:
                wait_s = min(due_s - now_s, self._due.until_s(self._tasks))
            else:
                break
        self._note_passed(gathered)
        return gathered

    def _process(self, arrived: Sequence[Arrived], gathered: _Gathered) -> bool:
        """Give each task its records; whether one of them wants a commit now, before what is left."""
        if self._workers.is_async:
            return self._process_side_by_side(arrived, gathered)
        for place, one in enumerate(arrived):
            if one.records is None:
                self._pass(one)
                continue
            rows, (index, tasks) = one.records, self._readers[one.ssp]
            self._passed.discard(index)
            runs = [self._run(task, gathered) for task in tasks]
            taken = [
                taken_of(rows, own, run.process(index, own, one.next_offset))
                for run, own in zip(runs, self._split(one.ssp, rows, tasks), strict=True)
            ]
            done = min(taken, default=rows.num_rows)
            gathered.records += done
            gathered.bytes += rows.nbytes
            if any(run.wants_commit for run in runs):
                left = [Arrived(one.ssp, rows.slice(done), one.next_offset)] if done < rows.num_rows else []
                self._input.put_back([*left, *self._without_passed(arrived[place + 1 :])])
                return True
        return False

    def _process_side_by_side(self, arrived: Sequence[Arrived], gathered: _Gathered) -> bool:
        pieces = []
        for one in self._without_passed(arrived):
            index, tasks = self._readers[one.ssp]
            self._passed.discard(index)
            assert one.records is not None, "the others were passed"
            owned = zip(tasks, self._split(one.ssp, one.records, tasks), strict=True)
            pieces += [Piece(self._run(task, gathered), index, one, own) for task, own in owned]
            gathered.records += one.records.num_rows
            gathered.bytes += one.records.nbytes
        self._input.put_back(process_side_by_side(self._workers.events, self._limits, pieces))
        return any(piece.run.wants_commit for piece in pieces)

    def _split(
        self, ssp: SystemStreamPartition, rows: pa.RecordBatch, tasks: Sequence[int]
    ) -> list[pa.RecordBatch]:
        """The rows that are each task's."""
        if self._buckets is None:
            return [rows] * len(tasks)
        spec = self._workers.spec
        return self._buckets.split(ssp, rows, [spec.tasks[task].key_bucket for task in tasks])

    def _without_passed(self, arrived: Sequence[Arrived]) -> list[Arrived]:
        for one in arrived:
            if one.records is None:
                self._pass(one)
        return [one for one in arrived if one.records is not None]

    def _run(self, task: int, gathered: _Gathered) -> TaskRun:
        run = gathered.runs.get(task)
        if run is None:
            worker = self._workers.worker(task)
            run = gathered.runs[task] = TaskRun(worker, self._progress[task], self._workers.spec)
        return run

    def _pass(self, one: Arrived) -> None:
        self._passed.add(self._readers[one.ssp][0], one.next_offset)

    def _note_passed(self, gathered: _Gathered) -> None:
        """Let checkpoints name what was passed."""

        def readers_of(index: int) -> Sequence[int]:
            return self._readers[self._workers.spec.ssps[index]][1]

        is_at_the_end = self._input.is_at_the_end
        for index, next_offset in self._passed.take_due(
            readers_of, gathered.runs, is_at_the_end=is_at_the_end
        ):
            for task in readers_of(index):
                self._run(task, gathered).process(index, None, next_offset)

    # --- committing ---

    def _commit(self, runs: Mapping[int, TaskRun]) -> Committed:
        made = [run.finish() for _, run in sorted(runs.items())]
        began_s = self._clock.monotonic_s()
        reports = self._commits.commit(self._batch, made)
        ended_s = self._clock.monotonic_s()
        self._size.note(ended_s - began_s)
        self._next_commit_s = self._limits.next_commit_s(began_s, ended_s)
        for report in reports:
            self._workers.succeeded(report.task, report.token)
        self._take(reports)
        self._shut_down({report.task for report in reports if report.shutdown_task})
        moved, size = self._input.take_moved(), self._gathered.bytes
        traced: tuple[TracedBatch, ...] = ()
        if self._traces is not None:
            commit_s = max((report.commit_s for report in reports), default=0.0)
            traced = self._traces.committed(self._batch, self._gathered.records, commit_s)
        committed = Committed(
            self._slot, self._batch, reports, moved, bytes=size, traced=traced, cpu_s=CPU.since_last_s()
        )
        self._batch += 1
        return committed

    def _take(self, reports: Sequence[TaskReport]) -> None:
        for report in reports:
            self._progress[report.task] = advanced(self._progress[report.task], report)

    def _shut_down(self, tasks: set[int]) -> None:
        if not tasks:
            return
        before = list(self._tasks)
        self._tasks = [task for task in before if task not in tasks]
        self._input.leave_out(_unread(self._workers.spec, before, self._tasks))
        self._readers = self._readers_of(self._workers.spec)


@dataclass(slots=True)
class _Gathered:
    """What goes into the next commit."""

    runs: dict[int, TaskRun] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0


def _unread(spec: RunnerSpec, before: Sequence[int], now: Sequence[int]) -> set[SystemStreamPartition]:
    """What the tasks read before and do not read now."""
    read = {index for task in now for index in spec.tasks[task].ssps}
    return {spec.ssps[index] for task in before for index in spec.tasks[task].ssps if index not in read}
