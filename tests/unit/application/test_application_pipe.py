"""Frames between a worker and the application's process."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from grete.application.pipe import NoFrame, Pipe

MANY = [b"%d" % number * (number % 5) for number in range(3_000)]
"""More than Linux writes at once; some are empty."""


@pytest.mark.parametrize("blobs", [[], [b""], [b"x" * 5_000_000, b"", b"y"], MANY], ids=len)
def test_a_frame_arrives_as_it_was_sent_also_when_the_pipe_takes_a_part_of_it_at_a_time(
    blobs: Sequence[bytes],
) -> None:
    reads, writes = os.pipe()
    back_reads, back_writes = os.pipe()
    there, here = Pipe(back_reads, writes), Pipe(reads, back_writes)
    try:
        with ThreadPoolExecutor(1) as thread:
            sent = thread.submit(there.send, "take", {"of": 1}, blobs)
            assert here.receive() == ("take", {"of": 1}, list(blobs))
            sent.result()
    finally:
        there.close()
        here.close()


@pytest.mark.parametrize(
    "written",
    [
        b"good morning, and no frame",
        struct.pack("<I", 5) + b"[1,2]",
        struct.pack("<I", 5) + b"\xff{{{{",
        struct.pack("<I", 14) + b'["a",1,["of"]]',
        struct.pack("<I", 12) + b'["a",1,[-1]]',
        struct.pack("<I", 100_000) + b"[" * 100_000,
    ],
)
def test_what_is_no_frame_is_said_at_once_and_nobody_waits_for_the_rest_of_it(written: bytes) -> None:
    reads, writes = os.pipe()
    back_reads, back_writes = os.pipe()
    here = Pipe(reads, back_writes)
    try:
        with ThreadPoolExecutor(1) as thread:
            sent = thread.submit(os.write, writes, written)
            with pytest.raises(NoFrame):
                here.receive()
            assert sent.result() == len(written)
    finally:
        here.close()
        os.close(writes)
        os.close(back_reads)
