"""Frames between a worker and the application's process beside it: a verb, a JSON value, and blobs.

    4 bytes   length of the head, little endian
    head      JSON [verb, value, [length of each blob]]
    blobs

Columns of bytes are three blobs: the length of each value, all of them, and where nulls are if there are some.
Nothing is pickled: either side could be broken by the other only in what the application is given and gives.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import struct
from array import array
from collections.abc import Sequence
from typing import Any

_PIPE_BYTES = 1 << 20
"""A piece of records goes into it at once: fewer changes between the two processes."""
_LARGEST_HEAD = 1 << 29
"""Letters that somebody wrote into the pipe are a larger number, whichever they are: nobody waits for so much."""
_VIEWS_AT_ONCE = 1_024
"""Linux takes no more."""
_HEAD = struct.Struct("<I")
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
"""Bound here: an application may patch `json`."""
Blob = bytes | bytearray | memoryview | array  # type: ignore[type-arg] # array has no arguments at run time


class NoFrame(EOFError):
    """Something else was written into the pipe; where the next frame begins cannot be known."""


class Pipe:
    """One end of two pipes, one for each direction. Used by one thread."""

    def __init__(self, reads: int, writes: int) -> None:
        """Takes the file descriptors."""
        self._reader = io.BufferedReader(io.FileIO(reads), 1 << 16)
        self._writes = writes
        with contextlib.suppress(OSError):  # where pipes cannot be that large they are as they were
            fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, verb: str, value: object = None, blobs: Sequence[Blob] = ()) -> None:
        """Write a frame.

        Raises:
            OSError: the other side has gone.
        """
        if self._writes < 0:
            os._exit(70)  # a fork of the application's that came back from where it was called
        views = [memoryview(blob).cast("B") for blob in blobs if len(blob)]
        head = _encode([verb, value, [memoryview(blob).nbytes for blob in blobs]]).encode()
        left = [memoryview(_HEAD.pack(len(head)) + head), *views]
        while left:
            left = _behind(left, os.writev(self._writes, left[:_VIEWS_AT_ONCE]))

    def receive(self) -> tuple[str, Any, list[bytes]]:
        """Read a frame.

        Raises:
            EOFError: the other side has gone, or (`NoFrame`) has written something else.
        """
        (length,) = _HEAD.unpack(self._exactly(_HEAD.size))
        if length >= _LARGEST_HEAD:
            raise NoFrame(f"a head of {length} bytes")
        try:
            verb, value, lengths = _decode(self._exactly(length).decode())
            return verb, value, [self._exactly(one) for one in lengths]
        except (ValueError, TypeError, RecursionError) as error:
            raise NoFrame(repr(error)) from error

    def _exactly(self, length: int) -> bytes:
        if length < 0:
            raise ValueError(f"{length} bytes")
        data = self._reader.read(length)
        if len(data) < length:
            raise EOFError("the pipe ended")
        return data

    def abandon(self) -> None:
        """Leave the pipe to another process; this one must not write into it."""
        os.close(self._writes)
        self._reader.raw.close()
        self._writes = -1

    def close(self) -> None:
        """Release the descriptors."""
        self._reader.close()
        os.close(self._writes)


def _behind(views: Sequence[memoryview], written: int) -> list[memoryview]:
    """What is left of the views when so many bytes of them were written."""
    for number, view in enumerate(views):
        if written < len(view):
            return [view[written:], *views[number + 1 :]]
        written -= len(view)
    return []


def pack_column(values: Sequence[bytes | None]) -> list[Blob]:
    """A column as three blobs; the last is empty when no value is None.

    Raises:
        TypeError: a value is neither bytes nor None, or a buffer of larger items.
    """
    nulls = b""
    present: Sequence[bytes] = values  # type: ignore[assignment] # `join` finds out whether there is a None
    try:
        data = b"".join(present)
    except TypeError:
        nulls = bytes(value is None for value in values)
        present = [b"" if value is None else value for value in values]
        data = b"".join(present)
    return [lengths_of(present, data), data, nulls]


def lengths_of(values: Sequence[bytes], joined: bytes) -> array[int]:
    """The length of each value, which together are those of all of them joined.

    Raises:
        TypeError: a value is a buffer of larger items; every one behind it would begin at a wrong place.
    """
    lengths = array("i", list(map(len, values)))
    if sum(lengths) != len(joined):
        raise TypeError("the items of a buffer among the values are larger than a byte")
    return lengths


def unpack_column(blobs: Sequence[bytes]) -> list[bytes | None]:
    """The inverse of `pack_column`."""
    lengths = array("i")
    lengths.frombytes(blobs[0])
    # a stream's `read` takes 40 % of the time of a slice between two offsets: 0.03 us a value
    values: list[bytes | None] = list(map(io.BytesIO(blobs[1]).read, lengths))
    if blobs[2]:
        return [None if is_null else value for value, is_null in zip(values, blobs[2], strict=True)]
    return values
