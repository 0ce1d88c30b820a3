"""Outputs on their way to the driver: few in the answer, many in a file, and segments of a bounded size."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from grete.clock import SystemClock
from grete.errors import LogError
from grete.model.streams import StreamSpec
from grete.systems.commit_group import CommitGroup, Segment, SegmentWrite
from grete.systems.local.system import LocalSystem
from grete.systems.records import pieces, records
from grete.tasks.hand_over import IN_ANSWERS_BYTES, HandOver, StoredSegment
from grete.tasks.results import Processed
from grete.tasks.spec import BatchPlan, TaskProgress, TaskReport

SHARES = 1_000
SMALL, LARGE = records([b"k"], [b"small"], [1]), records([b"k"], [b"x" * IN_ANSWERS_BYTES], [1])


def handed_over(folder: Path) -> list[Segment]:
    """The segments of a task that sent a small record, two large ones and another small one."""
    out = HandOver(str(folder), SHARES)
    out.begin(BatchPlan("lineage", 0, {}), 0, {0}, is_repeated=False)
    sent = [("out", i % 2, one) for i, one in enumerate([SMALL, LARGE, LARGE, SMALL])]
    out.add(Processed(TaskReport(0, "token", 4, {}), TaskProgress(), sent, []))
    (result,) = out.finish()
    return list(result.segments)


def test_what_is_too_much_for_an_answer_is_committed_from_a_file_in_the_same_order(tmp_path: Path) -> None:
    segments = handed_over(tmp_path / "results")
    assert [type(one) for one in segments] == [SegmentWrite, StoredSegment, StoredSegment, SegmentWrite]
    assert len(pickle.dumps(segments)) < 3_000
    (file,) = (tmp_path / "results").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    system = LocalSystem(tmp_path / "local", SystemClock())
    system.create_stream(StreamSpec("out", 2))
    ends = system.commit(CommitGroup((), segments, "checkpoints", ()))
    assert ends == {("out", 0): 2, ("out", 1): 2}
    sizes = [
        [len(value) for _, batch in system.read("out", partition, 0) for value in batch.column(1).to_pylist()]
        for partition in range(2)
    ]
    assert sizes == [[5, IN_ANSWERS_BYTES], [IN_ANSWERS_BYTES, 5]]
    system.close()


def test_when_the_file_is_gone_nothing_of_the_batch_is_committed(tmp_path: Path) -> None:
    segments = handed_over(tmp_path / "results")
    for left in (tmp_path / "results").iterdir():
        left.unlink()
    system = LocalSystem(tmp_path / "local", SystemClock())
    system.create_stream(StreamSpec("out", 2))
    with pytest.raises(LogError, match="cannot read the outputs that a worker left"):
        system.commit(CommitGroup((), segments, "checkpoints", ()))
    assert {offsets.upcoming for offsets in system.offsets("out").values()} == {"0"}
    system.close()


def test_segments_are_of_a_bounded_size_and_hold_the_same_records_in_order() -> None:
    values = [b"x" * size for size in (10, 300, 5_000, 0, 600, 500, 1)]
    keys = [None if i % 2 else b"key" for i in range(len(values))]
    batch = records([b"before", *keys], [b"", *values], [0, *range(len(values))]).slice(1)
    found = list(pieces(batch, 1_000))
    assert [piece.num_rows for piece in found] == [2, 1, 2, 2]
    assert pa.Table.from_batches(found).to_pylist() == batch.to_pylist()
    assert [piece.num_rows for piece in pieces(batch.slice(0, 2), 1_000)] == [2]
