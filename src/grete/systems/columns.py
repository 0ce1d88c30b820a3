"""Columns of Arrow from Python's values, and back, without what imports pandas.

`pa.array` and `to_numpy` look whether a value is one of pandas', and import it for that wherever it is installed:
0.2 s of a processor and 40 MB in each process that handles records.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from grete.application.pipe import lengths_of
from grete.arrow import np, pa

_LARGEST_BYTES = 2**31 - 1


def binary(values: Sequence[bytes | None] | pa.Array) -> pa.Array:
    """A column of bytes, null where there are none; one that is a column already is given back.

    Raises:
        TypeError: a value is neither, or a buffer of larger items.
        ArrowCapacityError: they have more than 2 GB together.
    """
    if isinstance(values, pa.Array):
        return values
    try:
        return _column(values, None)  # type: ignore[arg-type] # most columns have no null
    except TypeError:
        is_there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return _column([b"" if value is None else value for value in values], is_there)


def _column(values: Sequence[bytes], is_there: np.ndarray[Any, np.dtype[np.bool_]] | None) -> pa.Array:
    content = b"".join(values)
    if len(content) > _LARGEST_BYTES:
        raise pa.ArrowCapacityError(f"a column of {len(content)} bytes is more than {_LARGEST_BYTES}")
    return binary_of(np.array(lengths_of(values, content), np.int32), content, is_there)


def binary_of(
    lengths: np.ndarray[Any, np.dtype[np.int32]],
    content: bytes,
    is_there: np.ndarray[Any, np.dtype[np.bool_]] | None,
) -> pa.Array:
    """A column of bytes from the length of each value and all of them; None where no value is null."""
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    valid = None if is_there is None else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [valid, pa.py_buffer(ends), pa.py_buffer(content)]
    )


def ends_of(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Where each value of a column of bytes begins among all, and where the last one's end; nothing is copied."""
    _, offsets, _ = column.buffers()
    if offsets is None or not len(column):
        return np.zeros(len(column) + 1, np.int32)
    return np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)


def integers(values: Sequence[int] | np.ndarray[Any, np.dtype[np.int64]] | pa.Array) -> pa.Array:
    """A column of 64 bits each; one that is a column already is given back.

    Raises:
        TypeError: a value is no whole number.
        OverflowError: it does not fit.
    """
    if isinstance(values, pa.Array):
        return values
    content = values if isinstance(values, np.ndarray) else array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(content)])


def numbers(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The values of a column of 64-bit numbers without nulls; nothing is copied."""
    if len(column) == 0:
        return np.empty(0, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)
