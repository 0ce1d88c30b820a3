"""From ranges of stream partitions to the rows that a TaskRunner processes, inside the worker that processes them.

The source plans ranges, and ranges are all that travels through Spark. Reading a record in the source's own worker
would take it through the JVM twice, as an Arrow column, a row and an Arrow column again: measured, three times what
its task costs. Spark still decides which batch a range belongs to, where it runs and when it runs again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from grete.model.ids import SystemStreamPartition
from grete.systems.base import System

RANGE_LAYOUT = "task int, ssp int, start long, end long"
"""Offsets start <= offset < end of an SSP for a task, both by index; ssp -1 marks a tick, which has no records."""
ROW_SCHEMA = pa.schema(
    [
        ("task", pa.int32()),
        ("ssp", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
    ]
)
TICK = -1
"""The SSP index of a row that is no message but says that `task.window.ms` has passed."""
ROWS_AT_ONCE = 4_000
"""So many records are Python objects at one time."""


def rows_of(
    system: System,
    ssps: Sequence[SystemStreamPartition],
    ranges: Iterable[pa.RecordBatch],
    skip: Collection[int] = (),
) -> Iterator[pa.RecordBatch]:
    """The records of ranges in RANGE_LAYOUT, in order, as batches of ROW_SCHEMA; tasks in `skip` are not read."""
    for batch in ranges:
        columns = (batch.column(i).to_pylist() for i in range(4))
        for task, ssp, start, end in zip(*columns, strict=True):
            if task in skip:
                continue
            if ssp == TICK:
                yield _tick(task)
                continue
            for first, records in system.read(ssps[ssp].stream, ssps[ssp].partition, start, end):
                for row in range(0, records.num_rows, ROWS_AT_ONCE):
                    yield _rows(task, ssp, first + row, records.slice(row, ROWS_AT_ONCE))


def read_up_to(ranges: pa.RecordBatch) -> dict[int, int]:
    """The last offset of each SSP's range, by index: it may be a transaction's marker, or a record that is gone."""
    rows = zip(*(ranges.column(name).to_pylist() for name in ("ssp", "end")), strict=True)
    return {ssp: end - 1 for ssp, end in rows if ssp != TICK}


def offsets_of(first: int, records: pa.RecordBatch) -> pa.Array:
    """The offsets of a slice of a segment whose first row has offset `first`, unless it carries its own."""
    if records.num_columns > 3:
        return records.column(3)
    return pa.array(np.arange(first, first + records.num_rows, dtype=np.int64))


def constant(value: int, rows: int) -> pa.Array:
    """A column that says the same in every row."""
    return pa.array(np.full(rows, value, dtype=np.int32))


def _rows(task: int, ssp: int, first: int, records: pa.RecordBatch) -> pa.RecordBatch:
    count = records.num_rows
    key, value, timestamp_ms = (records.column(i) for i in range(3))
    columns = [
        constant(task, count),
        constant(ssp, count),
        offsets_of(first, records),
        key,
        value,
        timestamp_ms,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def _tick(task: int) -> pa.RecordBatch:
    row = {"task": task, "ssp": TICK, "offset": 0, "key": None, "value": None, "timestamp_ms": 0}
    return pa.RecordBatch.from_pylist([row], schema=ROW_SCHEMA)
