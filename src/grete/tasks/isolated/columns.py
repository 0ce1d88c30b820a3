"""Columns of Arrow as the blobs of a pipe, and back, without an object for each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from grete.application.pipe import Blob
from grete.systems.columns import numbers

_LENGTH_BYTES = 4


def as_blobs(column: pa.Array) -> list[Blob]:
    """A binary column as `grete.application.pipe.pack_column` has it."""
    rows, start = len(column), column.offset
    _, offsets, data = column.buffers()
    nulls = (
        column.is_null().to_numpy(zero_copy_only=False).astype(np.uint8).tobytes()
        if column.null_count
        else b""
    )
    if rows == 0 or offsets is None:
        return [np.zeros(rows, np.int32).tobytes(), b"", nulls]
    ends = np.frombuffer(offsets, np.int32, rows + 1, start * _LENGTH_BYTES)
    values = memoryview(data)[ends[0] : ends[-1]] if data is not None else b""
    return [np.diff(ends).tobytes(), values, nulls]


def numbers_as_blob(column: pa.Array) -> bytes:
    """A column of 64-bit numbers without nulls."""
    return numbers(column).tobytes()


def as_column(blobs: Sequence[bytes]) -> pa.Array:
    """The inverse of `as_blobs`."""
    lengths, data, nulls = blobs
    offsets = np.zeros(len(lengths) // _LENGTH_BYTES + 1, np.int32)
    np.cumsum(np.frombuffer(lengths, np.int32), out=offsets[1:])
    valid = None
    if nulls:
        valid = pa.py_buffer(np.packbits(np.frombuffer(nulls, np.uint8) == 0, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def as_numbers(blob: bytes, kind: Any) -> Any:
    """A column of numbers."""
    return np.frombuffer(blob, kind)
