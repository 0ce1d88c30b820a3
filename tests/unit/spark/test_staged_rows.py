"""Rows that workers pack for streams of the embedded system, and the driver's commit takes over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.errors import StorageFull, StreamError
from grete.spark.failures.translation import failed
from grete.spark.sinks.staged import StagedRows, StagedSegment, cleared, stage
from grete.systems.partitioner import partition_of
from grete.systems.records import unpack
from grete.testing.waiting import patient

Records = list[tuple[bytes | None, bytes | None]]
PARTITIONS = 3


def described(parts: Sequence[Sequence[Records]], folder: Path, at_most: int) -> list[StagedSegment]:
    """What Spark collects of its partitions, each of which gives its worker some batches."""
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    found: list[StagedSegment] = []
    for part in parts:
        batches = [
            pa.RecordBatch.from_pylist([{"key": k, "value": v} for k, v in batch], schema=schema)
            for batch in part
        ]
        for rows in stage(batches, str(folder), PARTITIONS, 7, at_most):
            found += [StagedSegment(**row) for row in rows.to_pylist()]
    return found


def taken(rows: StagedRows) -> dict[int, Records]:
    found: dict[int, Records] = {}
    for one in rows:
        batch = unpack(one.data)
        assert batch.num_rows == one.count
        assert set(batch.column(2).to_pylist()) == {7}
        found.setdefault(one.partition, []).extend(
            zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        )
    return found


@given(
    st.lists(
        st.lists(
            st.lists(
                st.tuples(
                    st.none() | st.binary(max_size=2), st.none() | st.sampled_from([b"x", b"y" * 70_000])
                ),
                max_size=4,
            ),
            max_size=3,
        ),
        max_size=3,
    ),
    st.sampled_from([1, 100_000, 1_000_000]),
)
def test_every_record_comes_out_once_in_the_order_of_sparks_partitions_and_no_file_is_left(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[Records]], at_most: int
) -> None:
    folder = tmp_path_factory.mktemp("staged")
    wanted: dict[int, Records] = {}
    for key, value in (record for part in parts for batch in part for record in batch):
        wanted.setdefault(0 if key is None else partition_of(key, PARTITIONS), []).append((key, value))
    assert taken(StagedRows("out", described(parts, folder, at_most))) == wanted
    assert not list(folder.iterdir())


def test_a_small_batch_of_several_spark_partitions_needs_no_file_and_is_one_segment(tmp_path: Path) -> None:
    found = described([[[(None, b"a")]], [[(None, b"b")]], [[]]], tmp_path, 1_000)
    assert not list(tmp_path.iterdir())
    [segment] = StagedRows("out", found)
    assert unpack(segment.data).column(1).to_pylist() == [b"a", b"b"]


def test_a_large_one_is_in_files_of_which_one_segment_is_in_memory_at_a_time(tmp_path: Path) -> None:
    records: Records = [(b"%d" % n, b"v" * 10_000) for n in range(100)]
    found = described([[records[:50], records[50:]]], tmp_path, 400_000)
    assert all(one.data is None for one in found)
    assert len(list(tmp_path.iterdir())) == 2
    segments = iter(StagedRows("out", found))
    next(segments)
    assert len(list(tmp_path.iterdir())) == 1, "a file goes when it is opened"


@pytest.mark.parametrize("harm", ["cut short", "gone"])
def test_a_file_that_is_not_as_its_worker_left_it_ends_the_commit(tmp_path: Path, harm: str) -> None:
    found = described([[[(b"k", b"v" * 100_000)]]], tmp_path, 1)
    [file] = tmp_path.iterdir()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StreamError, match=harm):
        list(StagedRows("out", found))


ALONE = ["unshare", "--user", "--map-root-user", "--mount"]
ON_A_SMALL_DISK = """
import sys
import pyarrow as pa
from grete.errors import StorageFull
from grete.spark.sinks.staged import stage
rows = pa.RecordBatch.from_pydict({"key": pa.array([b"k"] * 20), "value": pa.array([b"v" * 100_000] * 20)})
try:
    list(stage([rows], sys.argv[1], 1, 0))
except StorageFull as error:
    print(error)
"""


def test_a_disk_without_room_is_named_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=1m none "$0" && "$1" -c "$2" "$0" && ls "$0"'
    done = subprocess.run(
        [*ALONE, "sh", "-c", script, str(tmp_path), sys.executable, ON_A_SMALL_DISK],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=True,
    )
    assert done.stdout == f"no room for a batch's rows in {tmp_path}: No space left on device; free space\n"


def test_a_disk_that_is_full_for_spark_is_known_by_its_words() -> None:
    text = (
        "Job aborted due to stage failure\nCaused by: java.io.IOException: No space left on device\n\tat java"
    )
    reason = failed(RuntimeError(text))
    assert isinstance(reason, StorageFull)
    assert "java.io.IOException: No space left on device; free space" in str(reason)


def test_what_attempts_that_failed_have_left_goes_before_the_next_batch(tmp_path: Path) -> None:
    folder = tmp_path / "staged"
    described([[[(b"k", b"v" * 100_000)]]], cleared(folder), 1)
    assert len(list(folder.iterdir())) == 1
    assert not list(cleared(folder).iterdir())
