"""Promises of every keyed log (`grete.keyed_log.base`). Subclass with a fixture `open_log`.

`open_log()` opens the same log each time it is called, as another process would (or the very same object, where a
back end lives in one process). Between two appends a back end may leave offsets out, as Kafka does for its markers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from grete.errors import Fenced, IllegalStateError
from grete.keyed_log.base import Entry, Fence, KeyedLog

OpenLog = Callable[[], KeyedLog]


def _entries(*pairs: tuple[str, str | None]) -> list[Entry]:
    return [Entry(key.encode(), None if value is None else value.encode()) for key, value in pairs]


def _contents(log: KeyedLog, after: int = -1) -> list[tuple[int, bytes, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log.read(after)]


def _state(log: KeyedLog) -> dict[bytes, bytes]:
    last = {record.key: record.value for record in log.read()}
    return {key: value for key, value in last.items() if value is not None}


class KeyedLogConformance:
    """The suite."""

    def test_an_empty_log_ends_before_its_first_offset(self, open_log: OpenLog) -> None:
        """Nothing to read, and no waiting for it."""
        log = open_log()
        assert (log.end(), _contents(log)) == (-1, [])

    def test_what_is_appended_is_read_in_order_by_everybody(self, open_log: OpenLog) -> None:
        """Offsets of one append grow by one; another opener sees the same."""
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

    def test_an_epoch_is_claimed_by_one_writer(self, open_log: OpenLog) -> None:
        """The second is refused, whichever object it claims with; one above is free."""
        log, other = open_log(), open_log()
        log.claim(Fence("job", 3))
        for refused in (other, log):
            for epoch in (3, 2):
                with pytest.raises(Fenced) as error:
                    refused.claim(Fence("job", epoch))
                assert error.value.seen == 3
        log.append(_entries(("a", "1")), fence=Fence("job", 3))
        other.claim(Fence("job", 4))
        with pytest.raises(Fenced):
            log.append(_entries(("a", "late")), fence=Fence("job", 3))
        assert [value for _, _, value in _contents(log)] == [b"1"]

    def test_an_epoch_that_was_written_under_is_not_claimed(self, open_log: OpenLog) -> None:
        """Nor one that the scope was raised to; that of another scope is."""
        log = open_log()
        log.append(_entries(("a", "1")), fence=Fence("job", 5))
        log.raise_fence(Fence("raised", 6))
        for fence in (Fence("job", 5), Fence("raised", 6)):
            with pytest.raises(Fenced):
                open_log().claim(fence)
        open_log().claim(Fence("other", 5))

    def test_of_many_who_claim_an_epoch_at_once_one_gets_it(self, open_log: OpenLog) -> None:
        """Those who are elected through a leadership that was deleted, for one."""
        logs = [open_log() for _ in range(4)]
        start, claimed, refused = threading.Barrier(len(logs)), [], []

        def claim(log: KeyedLog) -> None:
            start.wait()
            try:
                log.claim(Fence("job", 1))
                claimed.append(log)
            except Fenced:
                refused.append(log)

        threads = [threading.Thread(target=claim, args=(log,)) for log in logs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(claimed), len(refused)) == (1, 3)

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
        offset = log.append(_entries(("a", "3")))
        assert offset > 4
        assert log.compact() == 1
        assert _contents(log, 3) == [(4, b"c", b"1"), (offset, b"a", b"3")]
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

    def test_an_own_epoch_above_raises_the_scope(self, open_log: OpenLog) -> None:
        """Appending under a new epoch is enough to fence the old one."""
        log, old = open_log(), open_log()
        old.append(_entries(("a", "1")), fence=Fence("job", 1))
        log.append(_entries(("a", "2")), fence=Fence("job", 2))
        with pytest.raises(Fenced):
            old.append(_entries(("a", "late")), fence=Fence("job", 1))

    def test_appending_nothing_checks_the_fence(self, open_log: OpenLog) -> None:
        """So that a leader can ask whether it still is one."""
        log = open_log()
        log.raise_fence(Fence("job", 2))
        with pytest.raises(Fenced):
            log.append([], fence=Fence("job", 1))

    def test_a_fenced_append_leaves_no_trace(self, open_log: OpenLog) -> None:
        """Neither records nor its id: its successor may use both."""
        log = open_log()
        log.raise_fence(Fence("job", 2))
        with pytest.raises(Fenced):
            log.append(_entries(("a", "1"), ("b", "1")), fence=Fence("job", 1), append_id="x")
        assert (log.end(), _contents(log), log.resolve("x")) == (-1, [], None)
        assert log.append(_entries(("a", "2")), fence=Fence("job", 2), append_id="x") == 0

    def test_an_append_that_did_not_happen_can_be_tried_again_after_it_was_resolved(
        self, open_log: OpenLog
    ) -> None:
        """Resolving to None closes the old attempt, not the id."""
        log = open_log()
        assert log.resolve("x") is None
        assert log.append(_entries(("a", "1")), append_id="x") == 0
        assert log.resolve("x") == 0

    def test_reading_from_anywhere_gives_what_comes_after(self, open_log: OpenLog) -> None:
        """Before the beginning, in the middle, at the end, beyond it; compacted or not."""
        log = open_log()
        for i in range(10):
            log.append(_entries((f"k{i % 3}", f"{i}")))
        for _ in range(2):
            everything = _contents(log)
            for after in range(-1, log.end() + 3):
                assert _contents(log, after) == [record for record in everything if record[0] > after]
            log.compact()

    def test_reading_ends_where_the_log_ended_when_it_began(self, open_log: OpenLog) -> None:
        """Later records are for the next read."""
        log = open_log()
        log.append(_entries(("a", "1"), ("b", "1")))
        reading = log.read()
        first = next(reading)
        log.append(_entries(("c", "1")))
        assert [first.key, *(record.key for record in reading)] == [b"a", b"b"]

    def test_readers_go_on_while_the_log_is_compacted(self, open_log: OpenLog) -> None:
        """A key whose record goes away comes later in the same log; order is kept."""
        log = open_log()
        log.append(_entries(*((f"k{i % 7}", f"{i}") for i in range(9_000))))
        reading = log.read()
        seen = [next(reading).offset]
        assert log.compact() == 8_993
        log.append(_entries(("k0", "later")))
        seen += [record.offset for record in reading]
        assert seen == sorted(set(seen))
        assert seen[-7:] == list(range(8_993, 9_000))

    def test_the_state_of_a_compacted_log_is_that_of_the_whole_one(self, open_log: OpenLog) -> None:
        """Compaction changes how the state is stored, never the state (fault 16)."""
        log = open_log()
        log.append(
            _entries(("a", "1"), ("b", "1"), ("a", None), ("c", ""), ("b", "2"), ("d", "1"), ("d", None))
        )
        before = _state(log)
        log.compact()
        assert _state(log) == before == {b"b": b"2", b"c": b""}
        assert log.end() == 6

    def test_records_of_any_size_and_number_come_back(self, open_log: OpenLog) -> None:
        """Larger than any chunk that a back end reads at once."""
        log = open_log()
        log.append([Entry(b"big", bytes(5 << 20)), Entry(b"", b"no key"), Entry(bytes(range(256)), b"")])
        log.append([Entry(b"%d" % i, b"small") for i in range(10_000)])
        sizes = [(len(record.key), len(record.value or b"")) for record in log.read()]
        assert sizes[:3] == [(3, 5 << 20), (0, 6), (256, 0)]
        assert len(sizes) == 10_003

    def test_waiting_for_what_is_there_returns_at_once(self, open_log: OpenLog) -> None:
        """Also in another opener."""
        open_log().append(_entries(("a", "1")))
        assert open_log().wait(-1, 0)
        assert not open_log().wait(0, 0)

    def test_a_closed_log_says_so(self, open_log: OpenLog) -> None:
        """Closing twice is fine."""
        log = open_log()
        log.append(_entries(("a", "1")))
        log.close()
        log.close()
        for use in (lambda: log.append([]), log.end, lambda: log.raise_fence(Fence("job", 1))):
            with pytest.raises(IllegalStateError):
                use()
