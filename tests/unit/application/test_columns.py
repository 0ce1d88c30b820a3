"""Columns that are made of Python's values are those that Arrow makes of them, without what it imports for that."""

from __future__ import annotations

import subprocess
import sys
from array import array

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.application.pipe import pack_column
from grete.errors import ApplicationError
from grete.systems.columns import binary, integers, numbers
from grete.tasks.isolated.columns import as_column

NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1))
ROUND_TRIP = """
import sys
from grete.systems.records import pack, pieces, rows_of, sparse, unpack
batch = unpack(pack([b"a", None], [None, b""], [1, 2]))
assert [row[1:3] for row in rows_of(7, sparse(7, batch))] == [(b"a", None), (None, b"")]
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@given(st.lists(st.none() | st.binary(max_size=5)))
def test_a_column_of_bytes_is_arrows_own(values: list[bytes | None]) -> None:
    made = binary(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))


@given(NUMBERS, st.integers(0, 3))
def test_a_column_of_numbers_is_arrows_own_and_read_from_where_it_begins(
    values: list[int], start: int
) -> None:
    made = integers(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.int64()))
    assert made.equals(integers(np.array(values, np.int64)))
    assert numbers(made.slice(start)).tolist() == values[start:]


@pytest.mark.parametrize(
    "value", ["text", 3, memoryview(array("i", [1, 2])), array("i", [1]), np.array([1, 2])]
)
@pytest.mark.parametrize("others", [[b""], [b"", None]])
def test_what_are_no_bytes_is_refused(value: object, others: list[bytes | None]) -> None:
    """Buffers of larger items were joined by bytes and cut by items: all records behind had others' bytes."""
    for columns in (binary, pack_column):
        with pytest.raises(TypeError):
            columns([*others, value])  # type: ignore[list-item]


def test_buffers_of_bytes_are_taken() -> None:
    values = [memoryview(b"ab"), bytearray(b"c"), b""]
    assert binary(values).to_pylist() == [b"ab", b"c", b""]  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "error"), [(1.5, TypeError), (None, TypeError), (2**63, OverflowError)])
def test_what_is_no_number_of_64_bits_is_refused(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        integers([value])  # type: ignore[list-item]


def test_records_are_written_and_read_without_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", ROUND_TRIP], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "pyarrow" in modules
    assert "pandas" not in modules, "it costs each process 0.2 s of a processor and 40 MB"


def ends(*lengths: int) -> bytes:
    return array("i", lengths).tobytes()


@pytest.mark.parametrize(
    "blobs",
    [
        [ends(1 << 20), b"abc", b""],
        [ends(5, -2), b"abc", b""],
        [ends(*[1 << 30] * 4, 3), b"abc", b""],
        [ends(1), b"abc", b""],
        [ends(1, 2), b"abc", bytes(1)],
    ],
)
def test_a_column_from_the_applications_process_is_not_read_beyond_its_end(blobs: list[bytes]) -> None:
    with pytest.raises(ApplicationError, match="whose lengths are not those of its 3 bytes"):
        as_column(blobs)


def test_a_column_crosses_to_the_applications_process_and_back() -> None:
    for values in ([b"a", None, b""], [b"", b"bc"], []):
        assert as_column([bytes(memoryview(blob)) for blob in pack_column(values)]).to_pylist() == values
