"""What waits for a commit is woken by it, and by nothing else; where nothing wakes it looks now and then."""

from __future__ import annotations

import select
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.sqlite_file import mark
from grete.sqlite_file.mark import MarkWatch
from grete.systems.base import Message
from grete.systems.inputs import Span
from grete.systems.local.system import LocalSystem
from grete.testing.clock import ManualClock

SSP = SystemStreamPartition("local", "in", 0)


def is_told(watch: MarkWatch) -> bool:
    descriptor = watch.descriptor()
    return descriptor is not None and bool(select.select([descriptor], [], [], 0)[0])


def test_a_write_is_told_until_it_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "mark"
    file.write_bytes(b"1")
    with closing(MarkWatch(file)) as watch:
        assert is_told(watch), "of what was written before it watched"
        watch.drain()
        assert not is_told(watch)
        file.write_bytes(b"2")
        assert is_told(watch)
        watch.drain()
        assert not is_told(watch)


def test_a_mark_that_is_removed_and_made_again_is_watched_again(tmp_path: Path) -> None:
    file = tmp_path / "mark"
    with closing(MarkWatch(file)) as watch:
        assert watch.descriptor() is None, "there is none yet"
        file.write_bytes(b"1")
        assert watch.descriptor() is not None
        file.unlink()
        watch.drain()
        assert watch.descriptor() is None
        file.write_bytes(b"2")
        assert watch.descriptor() is not None
        file.write_bytes(b"3")
        assert is_told(watch)


@pytest.fixture
def system(tmp_path: Path) -> LocalSystem:
    system = LocalSystem(tmp_path, SystemClock())
    system.create_stream(StreamSpec("in", 1))
    return system


@pytest.mark.parametrize("is_told_of", [True, False])
def test_an_input_that_waits_has_a_record_at_once(
    is_told_of: bool, system: LocalSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_told_of:  # as where 128 others watch something
        monkeypatch.setattr(mark, "_watch", lambda path: None)
    with closing(system), closing(system.inputs(SystemClock())) as inputs:
        wanted = {SSP: Span(0, None)}
        assert inputs.poll(wanted, 10, 0.0) == []

        def write() -> None:
            with closing(LocalSystem(tmp_path, SystemClock())) as other:
                other.append("in", [Message(b"k", b"v", 1_000)])

        threading.Timer(0.3, write).start()
        began_s = time.monotonic()
        [arrived] = inputs.poll(wanted, 10, 30.0)
        assert arrived.records is not None
        assert arrived.records.num_rows == 1
        assert time.monotonic() - began_s < 20, "and not when its time was over"


def test_with_a_made_clock_the_time_passes(system: LocalSystem) -> None:
    clock = ManualClock()
    with closing(system), closing(system.inputs(clock)) as inputs:
        assert inputs.poll({SSP: Span(0, None)}, 10, 30.0) == []
    assert clock.monotonic_s() == pytest.approx(30.0, abs=0.1)
