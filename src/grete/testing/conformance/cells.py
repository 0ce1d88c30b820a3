"""Promises of every back end of coordination cells (`grete.coordination.cells`).

Subclass with a fixture `contender()` as for `CoordinationConformance`: another client of the same service each time
it is called, as another process would be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from grete.clock import Deadline, SystemClock
from grete.coordination.base import Coordination
from grete.coordination.cells import Cell, Cells, cell_name, change, last_part
from grete.errors import CellChanged, CellTooLarge

Contender = Callable[[], Coordination]
Opened = Callable[[], Cells]


def soon(timeout_s: float = 20.0) -> Deadline:
    """The machine's own clock: a service sends its notifications when it does."""
    return Deadline(SystemClock(), timeout_s, pauses_s=(0.02, 0.2))


class CellsConformance:
    """The suite."""

    @pytest.fixture
    def opened(self, contender: Contender) -> Opened:
        """The cells of one scope, each time as another process has them."""
        return lambda: contender().cells("job/one")

    def test_scopes_do_not_meet(self, contender: Contender) -> None:
        """Two jobs, the same names."""
        mine, theirs = contender().cells("job/one"), contender().cells("job/one/two")
        mine.write("two/a", b"1", None)
        assert theirs.read("a") is None
        assert dict(theirs.read_all("")) == {}
        theirs.write("two/a", b"2", None)
        assert {name: cell.value for name, cell in mine.read_all("").items()} == {"two/a": b"1"}

    def test_what_one_process_writes_another_one_reads(self, opened: Opened) -> None:
        """At once, under the version that the write has returned."""
        one, two = opened(), opened()
        assert two.read("job/a") is None
        written = one.write("job/a", b"1", None)
        assert two.read("job/a") == written == Cell(b"1", written.version)
        assert one.read("job/a") == written

    def test_a_write_needs_the_version_that_is_there(self, opened: Opened) -> None:
        """Of two processes that have read the same one writes."""
        one, two = opened(), opened()
        first = one.write("job/a", b"1", None)
        second = two.write("job/a", b"2", first.version)
        for expected in (first.version, None):
            with pytest.raises(CellChanged, match="job/a has changed"):
                one.write("job/a", b"3", expected)
        assert one.read("job/a") == second
        with pytest.raises(CellChanged):
            one.write("job/absent", b"1", second.version)
        assert one.read("job/absent") is None

    def test_the_same_value_written_again_has_another_version(self, opened: Opened) -> None:
        """A renewal counts, whatever it says."""
        one = opened()
        first = one.write("job/a", b"1", None)
        second = one.write("job/a", b"1", first.version)
        assert second.version != first.version
        with pytest.raises(CellChanged):
            one.write("job/a", b"1", first.version)

    def test_a_cell_is_removed_under_its_version_only(self, opened: Opened) -> None:
        """What another process has written meanwhile stays."""
        one, two = opened(), opened()
        first = one.write("job/a", b"1", None)
        second = two.write("job/a", b"2", first.version)
        with pytest.raises(CellChanged):
            one.delete("job/a", first.version)
        one.delete("job/a", second.version)
        assert two.read("job/a") is None
        with pytest.raises(CellChanged):
            one.delete("job/a", second.version)

    def test_a_version_never_comes_again(self, opened: Opened) -> None:
        """Neither after the cell was removed and made again: a process paused in between is refused."""
        one = opened()
        versions = set()
        for _ in range(4):
            cell = one.write("job/a", b"1", None)
            versions.add(cell.version)
            one.delete("job/a", cell.version)
        again = one.write("job/a", b"1", None)
        assert again.version not in versions
        for version in versions:
            with pytest.raises(CellChanged):
                one.write("job/a", b"2", version)
            with pytest.raises(CellChanged):
                one.delete("job/a", version)

    def test_names_are_read_by_their_first_parts(self, opened: Opened) -> None:
        """By whole parts, at any depth, without the cell of that name itself."""
        one = opened()
        below = {name: one.write(name, b"x", None) for name in ("job/a/1", "job/a/2/deep")}
        for name in ("job/a", "job/ab/1", "other/a/1"):
            one.write(name, b"x", None)
        assert dict(one.read_all("job/a")) == below
        assert dict(one.read_all("job/nothing")) == {}

    def test_parts_are_any_text_and_stay_apart(self, opened: Opened) -> None:
        """Slashes, hashes, percent signs, letters of any case, empty, long and not ASCII."""
        one = opened()
        parts = ["a/b", "a#b?c\\d", "a%2Fb", "Ab", "aB", "ä ö", ".", "..", "%", "x" * 150, "a-b", "ab", "a_b"]
        names = {cell_name("any", part): part for part in parts}
        assert len(names) == len(parts)
        for name, part in names.items():
            one.write(name, part.encode(), None)
        found = one.read_all("any")
        assert {name: cell.value.decode() for name, cell in found.items()} == names
        assert all(last_part(name) == cell.value.decode() for name, cell in found.items())

    def test_values_are_any_bytes(self, opened: Opened) -> None:
        """Up to sixty kilobytes; an empty value is a value."""
        one, two = opened(), opened()
        for number, value in enumerate((b"", bytes(range(256)), b"\n{}\r\n", b"x" * 60_000)):
            one.write(f"job/{number}", value, None)
            cell = two.read(f"job/{number}")
            assert cell is not None
            assert cell.value == value

    @pytest.mark.parametrize("size", [190_000, 999_000, 5_000_000])
    def test_a_large_value_is_read_whole_or_refused(self, opened: Opened, size: int) -> None:
        """Never cut off (S3-17); what is refused has changed nothing."""
        one, two = opened(), opened()
        value = bytes(range(250)) * (size // 250)
        before = one.write("model", b"small", None)
        try:
            one.write("model", value, before.version)
        except CellTooLarge:
            assert size > 190_000
            assert two.read("model") == before
            one.write("model", b"next", before.version)
        else:
            written = two.read("model")
            assert written is not None
            assert written.value == value

    def test_counting_by_many_at_once_loses_none(self, opened: Opened) -> None:
        """Compare and set, four processes with ten each."""
        counters = [opened() for _ in range(4)]

        def count(own: Cells) -> None:
            for _ in range(10):
                change(own, "job/count", lambda value: str(int(value or b"0") + 1).encode())

        threads = [threading.Thread(target=count, args=(own,)) for own in counters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cell = counters[0].read("job/count")
        assert cell is not None
        assert cell.value == b"40"

    def test_of_many_who_make_a_cell_one_does(self, opened: Opened) -> None:
        """The others are refused."""
        makers = [opened() for _ in range(8)]
        start = threading.Barrier(len(makers))
        made: list[str] = []
        refused: list[CellChanged] = []

        def make(own: Cells) -> None:
            start.wait()
            try:
                made.append(own.write("job/one", b"1", None).version)
            except CellChanged as error:
                refused.append(error)

        threads = [threading.Thread(target=make, args=(own,)) for own in makers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(made), len(refused)) == (1, 7)

    def test_waiting_ends_with_a_change(self, opened: Opened) -> None:
        """Made, written again, removed; one from before the waiting began too."""
        one, two = opened(), opened()
        seen = one.read_all("job")
        cell = two.write("job/a", b"1", None)
        seen = one.wait("job", seen, soon())
        assert dict(seen) == {"job/a": cell}
        later = threading.Timer(0.1, lambda: two.write("job/a", b"2", cell.version))
        later.start()
        seen = one.wait("job", seen, soon())
        later.join()
        assert seen["job/a"].value == b"2"
        two.delete("job/a", seen["job/a"].version)
        assert dict(one.wait("job", seen, soon())) == {}

    def test_waiting_ends_with_the_time(self, opened: Opened) -> None:
        """Where nothing below the prefix changes."""
        one = opened()
        one.write("other/a", b"1", None)
        assert dict(one.wait("job", {}, soon(0.05))) == {}
