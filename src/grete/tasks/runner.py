"""Runs a StreamTask over what goes into one commit, on the executor.

It brings the task's stores to the committed position and calls `process` for every record above the task's
checkpoint. Nothing is visible to any reader until outputs, changelog records and checkpoint are committed together,
so an attempt that dies half-way leaves no trace, and a second attempt of the same share starts from the same state.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from operator import length_hint
from typing import Any, NoReturn

from grete.api import IncomingMessageEnvelope
from grete.application.beside import CallFailed
from grete.application.calls import FAILURES, call_for_each
from grete.application.side_inputs import Process
from grete.arrow import np, pa
from grete.errors import ExpectationFailed, ProcessingError
from grete.failpoints import failpoint
from grete.model.ending import failure_of, note
from grete.model.ids import SystemStreamPartition
from grete.model.streams import Headers
from grete.systems.columns import numbers
from grete.systems.outputs import is_elsewhere
from grete.systems.records import headers_of, records
from grete.tasks.collector import dead_letter
from grete.tasks.decoding import values_of
from grete.tasks.faults import is_machines
from grete.tasks.isolated.worker import HostedTask
from grete.tasks.results import Output, Processed
from grete.tasks.spec import RunnerSpec, TaskProgress, TaskReport
from grete.tasks.task_worker import TaskWorker

_ROWS_AT_ONCE = 4_000
"""So many records are Python objects at one time."""
_KEY, _VALUE, _TIME_MS, _OFFSET = range(4)
"""Columns of `systems.records.SPARSE_SCHEMA`."""


class TaskRun:
    """One attempt at a task's part of a commit: `process` for what arrives, `window` when it is due, `finish`."""

    def __init__(self, worker: TaskWorker, progress: TaskProgress, spec: RunnerSpec) -> None:
        """Makes the task stand at `progress`.

        Raises:
            GreteError: its stores cannot be brought there, or `init` failed.
        """
        self.worker = worker
        self._progress = progress
        self._spec = spec
        self._token = uuid.uuid4().hex
        self._last: dict[int, int] = {}
        self._records = 0
        self._dead: list[tuple[bytes, int]] = []
        self._task = worker.begin_batch(progress)

    @property
    def wants_commit(self) -> bool:
        """Whether the task has asked for a commit, or to be shut down."""
        return self.worker.control.wants_commit

    def process(self, ssp_index: int, rows: pa.RecordBatch | None, next_offset: int) -> int:
        """Process records of an SSP, in order, up to the one after which the task wants a commit; returns how many.

        Nothing of it is visible to any reader. The checkpoint will name the offset before `next_offset`, though that
        may be a transaction's marker or a record that is gone: an input that is read to its end would else seem to
        have one more, and retention to have taken it.

        Raises:
            ProcessingError: a record cannot be processed.
        """
        metrics = self.worker.metrics
        taken: int = 0 if rows is None else rows.num_rows
        for first in range(0, taken, _ROWS_AT_ONCE):
            assert rows is not None
            piece = rows.slice(first, _ROWS_AT_ONCE)
            before, start_s = self._records, metrics.now_s()
            done = self._process(ssp_index, piece)
            metrics.processed(self._records - before, start_s)
            self.worker.collector.settle()
            if done < piece.num_rows:
                taken = first + done
                next_offset = piece.column(_OFFSET)[done].as_py()
                break
        last = next_offset - 1
        self._last[ssp_index] = max(last, self._progress.last_offsets.get(ssp_index, last))
        return taken

    def envelopes(self, ssp_index: int, rows: pa.RecordBatch) -> Iterator[IncomingMessageEnvelope]:
        """The messages of the records above the checkpoint, each read when it is asked for.

        Raises:
            ProcessingError: one cannot be read.
        """
        ssp, serdes = self._spec.ssps[ssp_index], self.worker.serdes[ssp_index]
        rows = self._above_checkpoint(ssp_index, rows)
        columns = (rows.column(index).to_pylist() for index in (_OFFSET, _KEY, _VALUE, _TIME_MS))
        for offset, key, value, time_ms, headers in zip(*columns, _headers(rows), strict=False):
            try:
                read = (ssp, str(offset), serdes.key.from_bytes(key), serdes.message.from_bytes(value))
            except FAILURES as error:
                self.fail(ssp, offset, error)
            yield IncomingMessageEnvelope(*read, time_ms, headers)

    def passed(self, ssp_index: int, rows: pa.RecordBatch, begun: int, next_offset: int) -> int:
        """So many of `envelopes` are in progress or done; returns how many of the records these and those before are.

        As `process` for what is processed elsewhere.
        """
        wanted: int = self._above_checkpoint(ssp_index, rows).num_rows
        done = int(rows.num_rows) - wanted + begun
        self._records += begun
        last = (next_offset if begun == wanted else rows.column(_OFFSET)[done].as_py()) - 1
        self._last[ssp_index] = max(last, self._progress.last_offsets.get(ssp_index, last))
        return done

    def window(self) -> None:
        """Call the task's `window`.

        Raises:
            ProcessingError: it failed.
        """
        start_s = self.worker.metrics.now_s()
        self._call("window", lambda: self._task.window(self.worker.collector, self.worker.control))
        self.worker.metrics.windowed(start_s)

    def end_of_stream(self) -> None:
        """Call the task's `on_end_of_stream`.

        Raises:
            ProcessingError: it failed.
        """
        collector, control = self.worker.collector, self.worker.control
        self._call("on_end_of_stream", lambda: self._task.on_end_of_stream(collector, control))

    def call_timers(self, now_ms: int) -> None:
        """Call the task's `on_timer` for each key that is due.

        Raises:
            ProcessingError: it failed.
        """
        collector, control = self.worker.collector, self.worker.control
        if (hosted := self.worker.hosted) is not None:
            start_s = self.worker.metrics.now_s()
            self._call("on_timer", lambda: hosted.call_timers(now_ms))
            self.worker.metrics.called_timer(start_s)
            return
        collector.timestamp_ms = now_ms
        for key in self.worker.timers.due(now_ms):
            start_s = self.worker.metrics.now_s()
            self._call("on_timer", partial(self._task.on_timer, key, collector, control))
            self.worker.metrics.called_timer(start_s)

    def finish(self) -> Processed:
        """What the task made since this began."""
        failpoint("task.after-process")
        self.worker.gather()
        outputs = [*self.worker.collector.take(), *self._dead_letters()]
        self.worker.metrics.sent(sum(rows.num_rows for _, _, rows in outputs) - len(self._dead))
        own = [output for output in outputs if not is_elsewhere(output[0])]
        elsewhere = [output for output in outputs if is_elsewhere(output[0])]
        return Processed(self._report(), self._progress, own, list(self.worker.store_changes()), elsewhere)

    def _report(self) -> TaskReport:
        control = self.worker.control
        return TaskReport(
            task=self.worker.task.index,
            token=self._token,
            records=self._records,
            last_offsets=self._last,
            dead_letters=len(self._dead),
            shutdown_task=control.shutdown_task,
            shutdown_all=control.shutdown_all,
            metrics=self.worker.metrics.take(),
        )

    def _call(self, name: str, call: Callable[[], object]) -> None:
        """A call of the application's code beside its messages."""
        try:
            self.worker.events.finish_call(call())
        except FAILURES as error:
            self._note(error)
            if is_machines(error):
                raise
            raise ProcessingError(f"{name}() of task {self.worker.task.name!r} failed: {error!r}") from error

    def _process(self, ssp_index: int, rows: pa.RecordBatch) -> int:
        """The loop all records go through; everything that does not change per record is done before it."""
        total: int = rows.num_rows
        rows = self._above_checkpoint(ssp_index, rows)
        if rows.num_rows == 0:
            return total
        if self.worker.hosted is not None:
            done = self._process_hosted(self.worker.hosted, ssp_index, rows)
        else:
            guarded = self._spec.dead_letter_stream is not None
            done = (self._process_guarded if guarded else self._process_all)(ssp_index, rows)
        self._records += done
        return total - (int(rows.num_rows) - done)

    def _process_all(self, ssp_index: int, rows: pa.RecordBatch) -> int:
        ssp = self._spec.ssps[ssp_index]
        serdes = self.worker.serdes[ssp_index]
        collector, control = self.worker.collector, self.worker.control
        process = collector.passing_traces(self.worker.receiver(ssp))
        offsets = iter(rows.column(_OFFSET).cast(pa.string()).to_pylist())
        keys, messages = (
            values_of(rows.column(_KEY), serdes.key),
            values_of(rows.column(_VALUE), serdes.message),
        )
        times = rows.column(_TIME_MS).to_pylist()
        fields = zip(repeat(ssp), offsets, keys, messages, times, _headers(rows), strict=False)
        try:
            call_for_each(fields, process, collector, control)
        except FAILURES as error:
            # the iterator has given exactly the offsets up to the message in hand, also when a serde refused it
            failed = rows.num_rows - length_hint(offsets) - 1
            self.fail(ssp, rows.column(_OFFSET)[failed].as_py(), error)
        return int(rows.num_rows) - length_hint(offsets)

    def _process_guarded(self, ssp_index: int, rows: pa.RecordBatch) -> int:
        """As `_process_all`, each message such that a failure undoes it alone."""
        ssp = self._spec.ssps[ssp_index]
        serdes = self.worker.serdes[ssp_index]
        both = (serdes.key.from_bytes, serdes.message.from_bytes)
        columns = (rows.column(index).to_pylist() for index in (_OFFSET, _KEY, _VALUE, _TIME_MS))
        process = self.worker.receiver(ssp)
        for done, row in enumerate(zip(*columns, _headers(rows), strict=False), 1):
            self._guarded(process, ssp, row, both)
            if self.worker.control.wants_commit:
                return done
        return int(rows.num_rows)

    def _process_hosted(self, task: HostedTask, ssp_index: int, rows: pa.RecordBatch) -> int:
        """As the others, in the application's own process."""
        ssp = self._spec.ssps[ssp_index]
        try:
            done, aside = task.process(ssp_index, rows)
        except CallFailed as failed:
            if failed.row is None:
                raise failed.error from failed.error.__cause__
            self.fail(ssp, rows.column(_OFFSET)[failed.row].as_py(), failed.error)
        for row, shown in aside:
            key, value, time_ms, offset = (rows.column(index)[row].as_py() for index in range(4))
            headers = headers_of(rows.slice(row, 1)) or [None]
            letter = dead_letter(self.worker.task.name, ssp, offset, key, value, shown, headers[0] or ())
            self._dead.append((letter, time_ms))
        return done

    def _above_checkpoint(self, ssp_index: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without the rows this task has processed already, as happens to broadcast SSPs and repeated batches."""
        done = self._progress.last_offsets.get(ssp_index)
        if done is None or not rows.num_rows or rows.column(_OFFSET)[0].as_py() > done:
            return rows
        return rows.filter(pa.array(rows.column(_OFFSET).to_numpy() > done))

    def _note(self, error: BaseException, ssp: SystemStreamPartition | None = None, offset: int = -1) -> None:
        where = {} if ssp is None else {"ssp": str(ssp), "offset": str(offset)}
        note(error, failure_of(error, task=self.worker.task.name, **where))

    def fail(self, ssp: SystemStreamPartition, offset: int, error: BaseException) -> NoReturn:
        """End the attempt at this message; the error names it, whosever doing it is."""
        self._note(error, ssp, offset)
        if is_machines(error):
            raise error
        is_to_fail = isinstance(error, ExpectationFailed) and not error.sets_aside
        way_out = "" if is_to_fail else " (task.poison.policy=dead-letter would set the message aside)"
        raise ProcessingError(
            f"task {self.worker.task.name!r} could not process {ssp} offset {offset}: {error!r}; "
            f"nothing of it was committed{way_out}"
        ) from error

    def _guarded(
        self,
        process: Process,
        ssp: SystemStreamPartition,
        row: tuple[int, bytes | None, bytes | None, int, Headers],
        serdes: tuple[Callable[[bytes | None], Any], Callable[[bytes | None], Any]],
    ) -> None:
        """Process one message such that a failure undoes it alone and keeps it in the dead-letter stream."""
        worker = self.worker
        offset, key, value, time_ms, headers = row
        worker.begin_message()
        worker.collector.timestamp_ms, worker.collector.in_hand = time_ms, headers
        is_read = False
        try:
            read = (ssp, str(offset), serdes[0](key), serdes[1](value))
            envelope = IncomingMessageEnvelope(*read, time_ms, headers)
            is_read = True
            worker.events.finish_call(process(envelope, worker.collector, worker.control))
        except FAILURES as error:
            serializing = worker.collector.is_serializing
            is_poison = self._spec.poison.covers(error, deserializing=not is_read, serializing=serializing)
            if is_machines(error) or not is_poison:
                self.fail(ssp, offset, error)
            worker.undo_message()
            letter = dead_letter(worker.task.name, ssp, offset, key, value, repr(error), headers)
            self._dead.append((letter, time_ms))

    def _dead_letters(self) -> Iterator[Output]:
        if not self._dead:
            return
        stream = str(self._spec.dead_letter_stream)
        partition = self.worker.task.index % self.worker.partition_count(stream)
        letters, times = zip(*self._dead, strict=True)
        yield stream, partition, records([None] * len(letters), letters, times)


def taken_of(rows: pa.RecordBatch, own: pa.RecordBatch, count: int) -> int:
    """How many of the rows are behind a task that has taken the first `count` of its `own` ones."""
    if own is rows:
        return count
    if count == own.num_rows:
        return int(rows.num_rows)
    return int(np.searchsorted(numbers(rows.column(_OFFSET)), own.column(_OFFSET)[count].as_py()))


def _headers(rows: pa.RecordBatch) -> Iterable[Headers]:
    """The headers of each row, without end where no row has some."""
    headers = headers_of(rows)
    return repeat(()) if headers is None else [one or () for one in headers]
