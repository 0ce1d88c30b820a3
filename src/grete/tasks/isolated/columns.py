"""Columns of Arrow as the blobs of a pipe, and back, without an object for each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from grete.application.pipe import Blob
from grete.systems.columns import binary_of, ends_of, numbers


def as_blobs(column: pa.Array) -> list[Blob]:
    """A binary column as `grete.application.pipe.pack_column` has it."""
    ends, data = ends_of(column), column.buffers()[2]
    nulls = (
        column.is_null().to_numpy(zero_copy_only=False).astype(np.uint8).tobytes()
        if column.null_count
        else b""
    )
    values = memoryview(data)[ends[0] : ends[-1]] if data is not None else b""
    return [np.diff(ends).tobytes(), values, nulls]


def numbers_as_blob(column: pa.Array) -> bytes:
    """A column of 64-bit numbers without nulls."""
    return numbers(column).tobytes()


def as_column(blobs: Sequence[bytes]) -> pa.Array:
    """The inverse of `as_blobs`."""
    lengths, data, nulls = blobs
    is_there = np.frombuffer(nulls, np.uint8) == 0 if nulls else None
    return binary_of(np.frombuffer(lengths, np.int32), data, is_there)


def as_numbers(blob: bytes, kind: Any) -> Any:
    """A column of numbers."""
    return np.frombuffer(blob, kind)
