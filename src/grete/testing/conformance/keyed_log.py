"""What every keyed log promises (`grete.keyed_log.base`). Subclass with a fixture `open_log`.

`open_log()` opens the same log each time it is called, as another process would (or the very same object, where a
back end lives in one process).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from grete.errors import Fenced
from grete.keyed_log.base import Entry, Fence, KeyedLog

OpenLog = Callable[[], KeyedLog]


def _entries(*pairs: tuple[str, str | None]) -> list[Entry]:
    return [Entry(key.encode(), None if value is None else value.encode()) for key, value in pairs]


def _contents(log: KeyedLog, after: int = -1) -> list[tuple[int, bytes, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log.read(after)]


class KeyedLogConformance:
    """The suite."""

    def test_an_empty_log_ends_before_its_first_offset(self, open_log: OpenLog) -> None:
        """Nothing to read, and no waiting for it."""
        log = open_log()
        assert (log.end(), _contents(log)) == (-1, [])

    def test_what_is_appended_is_read_in_order_by_everybody(self, open_log: OpenLog) -> None:
        """Offsets grow by one; another opener sees the same."""
        assert open_log().append(_entries(("a", "1"), ("b", None), ("a", ""))) == 2
        expected = [(0, b"a", b"1"), (1, b"b", None), (2, b"a", b"")]
        assert _contents(open_log()) == expected
        assert _contents(open_log(), 0) == expected[1:]

    def test_an_empty_value_is_not_a_tombstone(self, open_log: OpenLog) -> None:
        """None deletes, b"" does not."""
        log = open_log()
        log.append(_entries(("a", ""), ("b", None)))
        assert [value for _, _, value in _contents(log)] == [b"", None]

    def test_appending_nothing_changes_nothing(self, open_log: OpenLog) -> None:
        """It answers with the end."""
        log = open_log()
        log.append(_entries(("a", "1")))
        assert log.append([]) == 0
        assert log.end() == 0

    def test_a_lower_epoch_is_refused_once_the_scope_was_raised(self, open_log: OpenLog) -> None:
        """Nothing of the refused append is there."""
        log = open_log()
        log.append(_entries(("a", "1")), fence=Fence("job", 1))
        open_log().raise_fence(Fence("job", 2))
        with pytest.raises(Fenced):
            log.append(_entries(("a", "late")), fence=Fence("job", 1))
        log.append(_entries(("a", "2")), fence=Fence("job", 2))
        log.append(_entries(("a", "tool")))
        assert [value for _, _, value in _contents(log)] == [b"1", b"2", b"tool"]

    def test_scopes_do_not_disturb_each_other(self, open_log: OpenLog) -> None:
        """Raising one leaves the other."""
        log = open_log()
        log.raise_fence(Fence("one", 5))
        log.append(_entries(("a", "1")), fence=Fence("two", 1))
        with pytest.raises(Fenced):
            log.raise_fence(Fence("one", 4))

    def test_records_carry_the_epoch_they_were_written_under(self, open_log: OpenLog) -> None:
        """None for tools."""
        log = open_log()
        log.append(_entries(("a", "1")), fence=Fence("job", 7))
        log.append(_entries(("a", "2")))
        assert [record.epoch for record in log.read()] == [7, None]

    def test_an_append_that_is_tried_again_is_there_once(self, open_log: OpenLog) -> None:
        """The same id, the same answer."""
        log = open_log()
        first = log.append(_entries(("a", "1"), ("b", "1")), append_id="x")
        log.append(_entries(("c", "1")))
        assert open_log().append(_entries(("a", "1"), ("b", "1")), append_id="x") == first
        assert (log.resolve("x"), log.resolve("never")) == (first, None)
        assert len(_contents(log)) == 3

    def test_compaction_keeps_the_last_of_each_key_and_all_offsets(self, open_log: OpenLog) -> None:
        """And the log goes on where it was."""
        log = open_log()
        log.append(_entries(("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "1")))
        assert log.compact() == 2
        assert _contents(open_log()) == [(2, b"a", b"2"), (3, b"b", None), (4, b"c", b"1")]
        assert log.append(_entries(("a", "3"))) == 5
        assert log.compact() == 1
        assert _contents(log, 3) == [(4, b"c", b"1"), (5, b"a", b"3")]
        assert log.compact() == 0

    def test_wait_returns_when_something_comes_and_when_nothing_does(self, open_log: OpenLog) -> None:
        """It says which."""
        log, other = open_log(), open_log()
        assert not log.wait(-1, 0.01)
        writer = threading.Thread(target=lambda: other.append(_entries(("a", "1"))))
        writer.start()
        assert log.wait(-1, 30)
        writer.join()

    def test_many_writers_lose_nothing_and_write_nothing_twice(self, open_log: OpenLog) -> None:
        """Each append's entries stand next to each other."""
        logs = [open_log() for _ in range(4)]

        def write(number: int) -> None:
            for i in range(25):
                logs[number].append(_entries((f"{number}-{i}", "a"), (f"{number}-{i}", "b")))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        keys = [key for _, key, _ in _contents(open_log())]
        assert sorted(keys[::2]) == sorted(f"{n}-{i}".encode() for n in range(4) for i in range(25))
        assert keys[::2] == keys[1::2]
