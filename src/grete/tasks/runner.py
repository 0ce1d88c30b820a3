"""Runs StreamTasks over one Spark partition of one micro-batch, on the executor.

Rows come grouped by task. For each task: bring its stores to the committed position, call `process` for every row
above the task's checkpoint, then hand back outputs, changelog records and a report. Nothing is visible to anybody
until the driver commits all of it in one transaction, so an attempt that dies half-way leaves no trace, and a
second attempt of the same share starts from the same state.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import repeat
from operator import length_hint
from typing import Any, NoReturn

import numpy as np
import orjson
import pyarrow as pa

from grete.api import IncomingMessageEnvelope, StreamTask
from grete.errors import ProcessingError
from grete.failpoints import failpoint
from grete.model.ending import failure_of, note
from grete.model.ids import SystemStreamPartition
from grete.systems.records import pieces, records, write
from grete.tasks.collector import dead_letter
from grete.tasks.decoding import values_of
from grete.tasks.faults import is_machines
from grete.tasks.ranges import TICK
from grete.tasks.results import Output, TaskResult
from grete.tasks.runtime import TaskWorker, TaskWorkers
from grete.tasks.spec import BatchPlan, RunnerSpec, TaskProgress, TaskReport

_RESULT_ARROW = pa.schema(
    [
        ("kind", pa.string()),
        ("task", pa.int32()),
        ("stream", pa.string()),
        ("partition", pa.int32()),
        ("count", pa.int64()),
        ("data", pa.binary()),
    ]
)
ResultRow = tuple[str, int, str, int, int, bytes]
"""What goes back to the driver: kind `o` output, `c` changelog, `f` one of these in a file, `r` a TaskReport."""


def run_tasks(
    workers: TaskWorkers,
    plan: BatchPlan,
    batches: Iterable[pa.RecordBatch],
    placed: Callable[[ResultRow], ResultRow] = lambda row: row,
) -> pa.RecordBatch:
    """Process rows of `task_rows.ROW_SCHEMA`, grouped by task; for the driver to commit.

    `placed` says how a row is handed over (`grete.tasks.hand_over`).
    """
    spec = workers.spec
    rows: list[ResultRow] = []
    for index, slices in _by_task(batches):
        if index in plan.skip:
            for _ in slices:
                pass
            continue
        run = TaskRun(workers.worker(index), plan.progress.get(index, TaskProgress()), spec)
        try:
            rows.extend(map(placed, run.execute(slices)))
        except BaseException:
            workers.drop(index)
            raise
    return result_of(rows)


def result_of(rows: Sequence[ResultRow]) -> pa.RecordBatch:
    """What goes back to the driver, as columns."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(column, type=field.type)
            for column, field in zip(
                zip(*rows, strict=True) if rows else [[]] * 6, _RESULT_ARROW, strict=True
            )
        ],
        schema=_RESULT_ARROW,
    )


def _by_task(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Group consecutive rows of one task, whatever the batch boundaries."""
    pieces = (piece for batch in batches for piece in runs_of(batch, 0))
    current = next(pieces, None)

    def same_task(index: int) -> Iterator[pa.RecordBatch]:
        nonlocal current
        while current is not None and current[0] == index:
            yield current[1]
            current = next(pieces, None)

    while current is not None:
        index = current[0]
        yield index, same_task(index)


def runs_of(batch: pa.RecordBatch, column: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Slices of the batch in which the integer column is constant, with its value."""
    if batch.num_rows == 0:
        return
    values = batch.column(column).to_numpy(zero_copy_only=False)
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), batch.num_rows]
    for start, end in itertools.pairwise(edges):
        yield int(values[start]), batch.slice(start, end - start)


class TaskRun:
    """One attempt at one task's share of a batch."""

    def __init__(self, worker: TaskWorker, progress: TaskProgress, spec: RunnerSpec) -> None:
        self._worker = worker
        self._progress = progress
        self._spec = spec
        self._token = uuid.uuid4().hex
        self._last: dict[int, int] = {}
        self._records = 0
        self._dead: list[tuple[bytes, int]] = []

    def execute(self, slices: Iterator[pa.RecordBatch]) -> Iterator[ResultRow]:
        """Process every slice, then yield outputs, changelog and the report, for the driver to commit."""
        result = self.process(slices)
        worker, index = self._worker, self._worker.task.index
        for stream, partition, sent in result.outputs:
            for piece in pieces(sent):
                yield "o", index, stream, partition, piece.num_rows, write(piece)
        for change in result.changes:
            count = change.records.num_rows
            change.keep(self._token, self._progress.store_positions.get(change.store, 0) + count)
            for piece in pieces(change.records):
                data = change.data if piece.num_rows == count else write(piece)
                yield "c", index, change.stream, worker.task.changelog_partition, piece.num_rows, data
        self.succeeded()
        yield report_row(result.report)

    def succeeded(self) -> None:
        """What the task has in memory is what is committed, if this attempt is."""
        self._worker.token = self._token

    def process(
        self, slices: Iterator[pa.RecordBatch], read_up_to: Mapping[int, int] | None = None
    ) -> TaskResult:
        """Process every slice; nothing of it is visible to anybody.

        `read_up_to`: the last offset of what the slices were read from, where it may be no record's. The checkpoint
        names it, or an input that is read to its end would seem to have one more, and retention to have taken it.
        """
        worker = self._worker
        task = worker.begin_batch(self._progress)
        for piece in slices:
            for ssp_index, rows in runs_of(piece, 1):
                if ssp_index == TICK:
                    self._window(task)
                else:
                    self._process(task, ssp_index, rows)
                    worker.collector.settle()
        failpoint("task.after-process")
        for ssp_index, offset in (read_up_to or {}).items():
            self._last[ssp_index] = max(offset, self._progress.last_offsets.get(ssp_index, offset))
        outputs = [*worker.collector.take(), *self._dead_letters()]
        changes = list(worker.store_changes())
        counts = {change.store: change.records.num_rows for change in changes}
        return TaskResult(self._report(counts), self._progress, outputs, changes)

    def _report(self, changes: dict[str, int]) -> TaskReport:
        control = self._worker.control
        return TaskReport(
            task=self._worker.task.index,
            token=self._token,
            records=self._records,
            last_offsets=self._last,
            changes=changes,
            dead_letters=len(self._dead),
            shutdown_task=control.shutdown_task,
            shutdown_all=control.shutdown_all,
        )

    def _window(self, task: StreamTask) -> None:
        try:
            task.window(self._worker.collector, self._worker.control)
        except Exception as error:
            self._note(error)
            if is_machines(error):
                raise
            raise ProcessingError(f"window() of task {self._worker.task.name!r} failed: {error!r}") from error

    def _process(self, task: StreamTask, ssp_index: int, rows: pa.RecordBatch) -> None:
        """The loop all records go through; everything that does not change per record is done before it."""
        rows = self._above_checkpoint(ssp_index, rows)
        if rows.num_rows == 0:
            return
        if self._spec.dead_letter_stream is not None:
            self._process_guarded(task, ssp_index, rows)
            return
        ssp = self._spec.ssps[ssp_index]
        serdes = self._worker.serdes[ssp_index]
        collector, control, process = self._worker.collector, self._worker.control, task.process
        offsets = iter(rows.column(2).cast(pa.string()).to_pylist())
        keys, messages = values_of(rows.column(3), serdes.key), values_of(rows.column(4), serdes.message)
        fields = zip(repeat(ssp), offsets, keys, messages, rows.column(5).to_pylist(), strict=False)
        try:
            # the constructor of a NamedTuple is a Python function; this is what it calls
            for envelope in map(tuple.__new__, repeat(IncomingMessageEnvelope), fields):
                collector.timestamp_ms = envelope[4]
                process(envelope, collector, control)
        except Exception as error:  # noqa: BLE001 - the application's code; it is raised again, with its place
            # the iterator has given exactly the offsets up to the message in hand, also when a serde refused it
            failed = rows.num_rows - length_hint(offsets) - 1
            self._fail(ssp, rows.column(2)[failed].as_py(), error)
        self._processed(ssp_index, rows)

    def _processed(self, ssp_index: int, rows: pa.RecordBatch) -> None:
        self._last[ssp_index] = rows.column(2)[-1].as_py()
        self._records += rows.num_rows

    def _process_guarded(self, task: StreamTask, ssp_index: int, rows: pa.RecordBatch) -> None:
        """As `_process`, each message such that a failure undoes it alone."""
        ssp = self._spec.ssps[ssp_index]
        serdes = self._worker.serdes[ssp_index]
        both = (serdes.key.from_bytes, serdes.message.from_bytes)
        for offset, key, value, time_ms in zip(
            *(rows.column(i).to_pylist() for i in range(2, 6)), strict=True
        ):
            self._guarded(task, ssp, offset, key, value, time_ms, both)
        self._processed(ssp_index, rows)

    def _above_checkpoint(self, ssp_index: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without the rows this task has processed already, as happens to broadcast SSPs and repeated batches."""
        done = self._progress.last_offsets.get(ssp_index)
        if done is None or rows.column(2)[0].as_py() > done:
            return rows
        return rows.filter(pa.array(rows.column(2).to_numpy() > done))

    def _note(self, error: Exception, ssp: SystemStreamPartition | None = None, offset: int = -1) -> None:
        where = {} if ssp is None else {"ssp": str(ssp), "offset": str(offset)}
        note(error, failure_of(error, task=self._worker.task.name, **where))

    def _fail(self, ssp: SystemStreamPartition, offset: int, error: Exception) -> NoReturn:
        """End the attempt at this message; the error names it, whosever doing it is."""
        self._note(error, ssp, offset)
        if is_machines(error):
            raise error
        raise ProcessingError(
            f"task {self._worker.task.name!r} could not process {ssp} offset {offset}: {error!r}; "
            f"nothing of it was committed (task.poison.policy=dead-letter would set the message aside)"
        ) from error

    def _guarded(
        self,
        task: StreamTask,
        ssp: SystemStreamPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        time_ms: int,
        serdes: tuple[Callable[[bytes | None], Any], Callable[[bytes | None], Any]],
    ) -> None:
        """Process one message such that a failure undoes it alone and keeps it in the dead-letter stream."""
        worker = self._worker
        worker.begin_message()
        worker.collector.timestamp_ms = time_ms
        is_read = False
        try:
            envelope = IncomingMessageEnvelope(ssp, str(offset), serdes[0](key), serdes[1](value), time_ms)
            is_read = True
            task.process(envelope, worker.collector, worker.control)
        except Exception as error:  # noqa: BLE001 - whatever the application's code raises is the poison
            serializing = worker.collector.is_serializing
            is_poison = self._spec.poison.covers(error, deserializing=not is_read, serializing=serializing)
            if is_machines(error) or not is_poison:
                self._fail(ssp, offset, error)
            worker.undo_message()
            letter = dead_letter(worker.task.name, ssp, offset, key, value, repr(error))
            self._dead.append((letter, time_ms))

    def _dead_letters(self) -> Iterator[Output]:
        if not self._dead:
            return
        stream = str(self._spec.dead_letter_stream)
        partition = self._worker.task.index % self._worker.partition_count(stream)
        letters, times = zip(*self._dead, strict=True)
        yield stream, partition, records([None] * len(letters), letters, times)


def report_row(report: TaskReport) -> ResultRow:
    """A report as a row for the driver."""
    return "r", report.task, "", 0, 0, orjson.dumps(asdict(report), option=_KEYS)


_KEYS = orjson.OPT_NON_STR_KEYS
