"""Transactions that collect what is sent: segments of a bounded size, commits of many workers into one file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from grete.clock import SystemClock
from grete.errors import Fenced, LogUnreachable
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.systems.records import SEGMENT_BYTES, pieces, records
from grete.systems.transactions import NotWritten, Transactions
from grete.testing.waiting import patient

FENCE = Fence("container/j-1/0", 5)
WRITER = """
import sys, time
from pathlib import Path
from grete.clock import SystemClock
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.systems.local.system import LocalSystem
from grete.systems.records import records

number, commits = int(sys.argv[2]), int(sys.argv[3])
system = LocalSystem(Path(sys.argv[1]), SystemClock())
slot = system.transactions([Fence("container/j-1/0", 5)], number, [])
slot.open(0)
for n in range(commits):
    slot.begin()
    slot.send_batch("out", 0, records([b"%d" % number], [b"%d" % n], [1]))
    slot.send_batch("changes", number, records([b"k"], [b"%d" % n], [1]), after=n)
    slot.send_entries("checkpoints", [Entry(b"%d" % number, b"%d" % n)], 1)
    slot.commit(0)
"""


@pytest.fixture
def system(tmp_path: Path) -> Iterator[LocalSystem]:
    with closing(LocalSystem(tmp_path / "local", SystemClock())) as made:
        made.create_stream(StreamSpec("out", 2))
        made.create_stream(StreamSpec("changes", 8, compacted=True))
        yield made


def opened(system: LocalSystem, number: int = 0) -> Transactions:
    slot = system.transactions([FENCE], number, [])
    slot.open(0)
    return slot


def values(system: LocalSystem, stream: str, partition: int = 0) -> list[bytes]:
    return [v for _, batch in system.read(stream, partition, 0) for v in batch.column(1).to_pylist()]


def test_what_is_too_much_for_a_segment_is_committed_as_several_in_the_same_order(
    system: LocalSystem,
) -> None:
    slot = opened(system)
    sent = [b"x" * (SEGMENT_BYTES // 2)] * 3 + [b"small"]
    slot.begin()
    slot.send_batch("changes", 0, records([b"k"] * 4, sent, [1] * 4), after=0)
    assert slot.settle(0)["changes", 0] == 4
    slot.commit(0)
    read = list(system.read("changes", 0, 0))
    assert [value for _, batch in read for value in batch.column(1).to_pylist()] == sent
    assert len(read) > 2


def test_segments_are_of_a_bounded_size_and_hold_the_same_records_in_order() -> None:
    sizes = [b"x" * size for size in (10, 300, 5_000, 0, 600, 500, 1)]
    keys = [None if i % 2 else b"key" for i in range(len(sizes))]
    batch = records([b"before", *keys], [b"", *sizes], [0, *range(len(sizes))]).slice(1)
    found = list(pieces(batch, 1_000))
    assert [piece.num_rows for piece in found] == [2, 1, 2, 2]
    assert pa.Table.from_batches(found).to_pylist() == batch.to_pylist()
    assert [piece.num_rows for piece in pieces(batch.slice(0, 2), 1_000)] == [2]


def test_a_checkpoint_carries_the_containers_epoch_and_not_the_slots(system: LocalSystem) -> None:
    slot = opened(system)
    for _ in range(9):
        slot.open(0)
    slot.begin()
    slot.send_entries("checkpoints", [Entry(b"task", b"1")], 1)
    slot.commit(0)
    assert [record.epoch for record in system.settled_records("checkpoints", -1)] == [FENCE.epoch]


def test_slots_are_not_taken_for_containers(system: LocalSystem) -> None:
    """A leader counts on from the highest epoch of the job's containers."""
    slot = opened(system)
    for _ in range(9):
        slot.open(0)
    assert system.highest_epoch("container/j-1/") == FENCE.epoch
    with pytest.raises(Fenced):
        system.raise_fence([Fence(FENCE.scope, FENCE.epoch - 1)])


def test_who_lost_its_slot_is_not_taken_for_fenced_off(system: LocalSystem) -> None:
    """The trace of a worker's error is all that its driver gets, which ends at a `Fenced`."""
    slot = opened(system)
    opened(system)
    slot.begin()
    slot.send_entries("checkpoints", [Entry(b"task", b"1")], 1)
    with pytest.raises(NotWritten, match="another worker has taken slot/container/j-1/0/0 over") as lost:
        slot.commit(0)
    assert "Fenced" not in "".join(traceback.format_exception(lost.value))


def test_nothing_is_written_and_no_lock_is_held_before_the_commit(system: LocalSystem) -> None:
    """So a worker that is stopped while it works holds up nobody."""
    slot = opened(system)
    slot.begin()
    slot.send_batch("out", 0, records([b"k"], [b"v"], [1]))
    slot.settle(0)
    slot.send_entries("checkpoints", [Entry(b"task", b"1")], 1)
    slot.settle(0)
    with system.file.transaction(busy_timeout_s=0.1):
        assert values(system, "out") == []
    slot.commit(0)
    assert values(system, "out") == [b"v"]


def run(directory: Path, number: int, commits: int, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(directory), str(number), str(commits)]
    return subprocess.Popen(command, env={**os.environ, **environment})


def test_four_workers_commit_side_by_side_and_each_ones_records_are_in_order(system: LocalSystem) -> None:
    writers = [run(system.directory, number, 40) for number in range(4)]
    assert [writer.wait(patient(60)) for writer in writers] == [0] * 4
    sent = [
        (int(key), int(value))
        for _, batch in system.read("out", 0, 0)
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]
    assert len(sent) == 4 * 40
    for number in range(4):
        assert [n for writer, n in sent if writer == number] == list(range(40))
        assert values(system, "changes", number) == [b"%d" % n for n in range(40)]


@pytest.mark.parametrize("point", ["commit.fences-checked", "commit.in-transaction", "file.before-commit"])
def test_a_worker_that_is_killed_in_its_transaction_holds_up_nobody(system: LocalSystem, point: str) -> None:
    nth = 5 if point == "file.before-commit" else 3  # a slot and a log are opened before
    killed = run(system.directory, 0, 40, GRETE_FAILPOINT=f"{point}:kill:{nth}")
    assert killed.wait(patient(60)) == -signal.SIGKILL
    began_s = time.monotonic()
    slot = opened(system, 1)
    slot.begin()
    slot.send_batch("changes", 1, records([b"k"], [b"v"], [1]), after=0)
    slot.commit(0)
    assert time.monotonic() - began_s < patient(1)
    assert values(system, "changes", 0) == [b"0", b"1"]
    assert values(system, "changes", 1) == [b"v"]


def test_a_worker_that_is_stopped_in_its_transaction_is_named_to_those_who_wait(system: LocalSystem) -> None:
    """They wait for as long as the file's patience lasts, which is 30 seconds, and no longer."""
    stopped = run(system.directory, 0, 40, GRETE_FAILPOINT="commit.in-transaction:stop")
    try:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        with (
            pytest.raises(LogUnreachable, match=rf"process {stopped.pid} holds it"),
            system.file.transaction(busy_timeout_s=0.2),
        ):
            raise AssertionError("it holds the write lock")
    finally:
        stopped.kill()
        stopped.wait()
    slot = opened(system, 1)
    slot.begin()
    slot.send_entries("checkpoints", [Entry(b"1", b"v")], 1)
    slot.commit(0)
