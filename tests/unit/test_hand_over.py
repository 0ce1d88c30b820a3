"""Outputs on their way to the driver: few in the answer, many in a file, and segments of a bounded size."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from grete.clock import SystemClock
from grete.errors import LogError
from grete.model.streams import StreamSpec
from grete.systems.base import CommitGroup
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack, pieces, records
from grete.tasks.commit.driver import sort_out
from grete.tasks.hand_over import IN_ANSWERS_BYTES, IN_FILE, HandOver
from grete.tasks.runner import result_of

SHARES = 1_000
SMALL, LARGE = pack([b"k"], [b"small"], [1]), pack([b"k"], [b"x" * IN_ANSWERS_BYTES], [1])


def handed_over(folder: Path) -> list[dict[str, object]]:
    with HandOver(str(folder), SHARES) as out:
        rows = [
            out.placed(("o", 0, "out", i % 2, 1, data)) for i, data in enumerate([SMALL, LARGE, LARGE, SMALL])
        ]
    return list(result_of(rows).to_pylist())


def test_what_is_too_much_for_an_answer_is_committed_from_a_file_in_the_same_order(tmp_path: Path) -> None:
    rows = handed_over(tmp_path / "results")
    assert [row["kind"] for row in rows] == ["o", IN_FILE, IN_FILE, "o"]
    assert sum(len(row["data"]) for row in rows) < 2_000  # type: ignore[arg-type]  # rows are of columns of any type
    _, segments = sort_out(rows)
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
    _, segments = sort_out(handed_over(tmp_path / "results"))
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
