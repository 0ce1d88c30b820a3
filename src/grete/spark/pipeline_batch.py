"""A micro-batch of a DataFramePipeline: Spark computes it, its rows and the checkpoints go out in one transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from grete.checkpoint.task_commit import TaskCommit
from grete.errors import ConfigError
from grete.failpoints import failpoint
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.spark.spark_log import SourceOffsets
from grete.spark.stream_task_batch import BatchOutcome, CommitTarget
from grete.systems.base import SegmentWrite
from grete.systems.local_segments import pack
from grete.systems.partitioner import partition_of
from grete.wire import compact_json


@dataclass(frozen=True, slots=True)
class PipelineOutput:
    """The stream a pipeline writes."""

    stream: SystemStream
    partitions: int


class PipelineBatch:
    """Commits the batches of one pipeline. A batch that is committed already is computed again, for the sake of
    Spark's state, but not written again: so outputs are exactly once.
    """

    def __init__(
        self,
        target: CommitTarget,
        lineage: str,
        tasks: Mapping[TaskName, Sequence[SystemStreamPartition]],
        output: PipelineOutput,
        commits: Mapping[TaskName, TaskCommit],
        starting: Mapping[str, int],
    ) -> None:
        self._target = target
        self._lineage = lineage
        self._tasks = tasks
        self._output = output
        self._commits = dict(commits)
        self._position = dict(starting)

    def run(self, batch: DataFrame, batch_id: int, end: SourceOffsets) -> BatchOutcome:
        """Compute the batch and commit its rows together with the checkpoints of its end."""
        failpoint("batch.before-run")
        rows = batch.toArrow()
        failpoint("batch.after-run")
        read = sum(max(0, offset - self._position.get(ssp, 0)) for ssp, offset in end.next_offsets.items())
        self._position = dict(end.next_offsets)
        if self._is_committed(batch_id):
            return BatchOutcome()
        commits = {task: self._task_commit(task, end, batch_id) for task in self._tasks}
        segments = self._segments(rows)
        started_s = time.monotonic()
        self._target.commit(segments, commits)
        commit_s = time.monotonic() - started_s
        self._commits.update(commits)
        failpoint("batch.after-commit")
        return BatchOutcome(records=read, commit_s=commit_s)

    def _is_committed(self, batch_id: int) -> bool:
        """Whether this batch of this lineage is in our checkpoints."""
        commits = [self._commits.get(task) for task in self._tasks]
        return bool(commits) and all(
            commit is not None and commit.lineage == self._lineage and commit.batch_id >= batch_id
            for commit in commits
        )

    def _task_commit(self, task: TaskName, end: SourceOffsets, batch_id: int) -> TaskCommit:
        ends = {ssp: end.next_offsets[str(ssp)] for ssp in self._tasks[task]}
        return TaskCommit(
            # -1 for a partition of which nothing is read: without it the next start would go by the default
            offsets={ssp: str(offset - 1) for ssp, offset in ends.items()},
            lineage=self._lineage,
            batch_id=batch_id,
            token="",
            store_positions={},
        )

    def _segments(self, rows: pa.Table) -> list[SegmentWrite]:
        keys, values = encode_rows(rows)
        by_partition: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        for key, value in zip(keys, values, strict=True):
            partition = 0 if key is None else partition_of(key, self._output.partitions)
            part = by_partition.setdefault(partition, ([], []))
            part[0].append(key)
            part[1].append(value)
        now_ms = self._target.now_ms()
        return [
            SegmentWrite(self._output.stream.stream, partition, len(k), pack(k, v, [now_ms] * len(k)))
            for partition, (k, v) in sorted(by_partition.items())
        ]


def encode_rows(rows: pa.Table) -> tuple[list[bytes | None], list[bytes | None]]:
    """Keys and values of output rows: see `grete.DataFramePipeline.build` for the columns' meaning.

    Raises:
        ConfigError: `key` or `value` is neither string nor binary.
    """
    keys: list[bytes | None] = [None] * rows.num_rows
    if "key" in rows.column_names:
        keys = _bytes_column(rows, "key")
    if "value" in rows.column_names:
        return keys, _bytes_column(rows, "value")
    names = [name for name in rows.column_names if name != "key"]
    return keys, [compact_json.dumps(row, default=str) for row in rows.select(names).to_pylist()]


def _bytes_column(rows: pa.Table, name: str) -> list[bytes | None]:
    column = rows.column(name)
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        raise ConfigError(f"a pipeline's column {name!r} must be string or binary, it is {column.type}")
    return [_to_bytes(item) for item in column.to_pylist()]


def _to_bytes(item: Any) -> bytes | None:
    return item.encode() if isinstance(item, str) else item
