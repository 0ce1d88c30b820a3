"""Columns of Arrow as the blobs of a pipe, and back, without an object for each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grete.application.pipe import Blob
from grete.arrow import np, pa
from grete.errors import ApplicationError
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
    """The inverse of `as_blobs`. Arrow believes lengths, so they are compared with what came.

    Raises:
        ApplicationError: they are not those of the values, which would be read from beyond the column.
    """
    lengths, data, nulls = np.frombuffer(blobs[0], np.int32), blobs[1], blobs[2]
    is_whole = lengths.sum(dtype=np.int64) == len(data) and len(nulls) in (0, len(lengths))
    if not is_whole or (len(lengths) and lengths.min() < 0):
        raise ApplicationError(
            f"the application's process handed over a column of {len(lengths)} values whose lengths are not those "
            f"of its {len(data)} bytes"
        )
    return binary_of(lengths, data, np.frombuffer(nulls, np.uint8) == 0 if nulls else None)


def as_numbers(blob: bytes, kind: Any) -> Any:
    """A column of numbers."""
    return np.frombuffer(blob, kind)
