"""Promises of systems on which StreamTasks run: all those of `conformance.system`, and those of their transactions.

Subclass with a fixture `back_end` that returns a `TransactionalBackEnd`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from grete.clock import SystemClock
from grete.errors import Fenced, LogCorrupted
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.systems.base import System
from grete.systems.records import records
from grete.systems.transactions import NotWritten, OutcomeUnknown, Transactions
from grete.testing.conformance.system import TransactionalBackEnd, TransactionalStoreConformance


class TransactionsConformance(TransactionalStoreConformance):
    """The suite of a system's `transactions`, which is what StreamTasks are committed by."""

    @pytest.fixture(autouse=True)
    def _slots(self) -> Iterator[None]:
        self._opened: list[Transactions] = []
        yield
        for one in self._opened:
            one.drop()

    def slot(
        self, system: System, number: int = 0, epoch: int = 2, right: Fence | None = None
    ) -> Transactions:
        """A slot that is open; `right` is that of the container's epoch."""
        streams = [self.named(name) for name in ("checkpoints", "out", "changelog")]
        fences = [self.fence(epoch)] if right is None else [self.fence(epoch), right]
        made = system.transactions(fences, number, streams)
        self._opened.append(made)
        made.open(_deadline_s())
        return made

    def send(
        self, slot: Transactions, text: bytes, after: int | None = None
    ) -> Mapping[tuple[str, int], int]:
        """Begin and send what `_group` has, up to the commit; returns where partitions and the log will end."""
        deadline_s, now_ms = _deadline_s(), SystemClock().wall_ms()  # a cleaner takes older ones at once
        slot.begin()
        slot.send_batch(self.named("out"), 0, records([b"a", b"b"], [text] * 2, [now_ms] * 2))
        slot.send_batch(self.named("out"), 1, records([None], [text], [now_ms]))
        slot.send_batch(self.named("changelog"), 1, records([b"k"], [text], [now_ms]), after=after)
        ends = dict(slot.settle(deadline_s))
        slot.send_entries(self.named("checkpoints"), [Entry(b"task", text)], now_ms)
        return ends | dict(slot.settle(deadline_s))

    def commit(self, slot: Transactions) -> None:
        """Commit what was sent, and wait until readers see it."""
        slot.commit(_deadline_s())
        slot.confirm()

    def settled(self, system: System, after: int = -1) -> list[bytes | None]:
        """The values in the checkpoint log."""
        return [record.value for record in system.settled_records(self.named("checkpoints"), after)]

    @pytest.fixture
    def system(self, back_end: TransactionalBackEnd) -> System:
        """With the fence and the log of a container whose workers begin."""
        made = back_end.store()
        made.raise_fence([self.fence(2)])
        made.checkpoint_log(self.named("checkpoints")).end()
        return made

    def test_a_slots_commit_makes_everything_visible_at_once(
        self, back_end: TransactionalBackEnd, system: System
    ) -> None:
        """Nothing of it before, and positions are known before the checkpoint is made."""
        slot = self.slot(system)
        ends = self.send(slot, b"1", after=0)
        assert ends[self.named("changelog"), 1] == 1
        assert self._everything(back_end) == []
        self.commit(slot)
        assert self._everything(back_end) == [b"1"] * 5
        assert self.settled(system, ends[self.named("checkpoints"), 0] - 1) == []
        assert self.settled(system) == [b"1"]

    def test_commits_of_a_slot_follow_each_other(
        self, back_end: TransactionalBackEnd, system: System
    ) -> None:
        """It stays open."""
        slot, end = self.slot(system), 0
        for text in (b"1", b"2", b"3"):
            end = self.send(slot, text, after=end)[self.named("changelog"), 1]
            self.commit(slot)
        assert slot.is_open
        assert [value for _, value in back_end.read(self.named("out"), 1)] == [b"1", b"2", b"3"]
        assert self.settled(system) == [b"1", b"2", b"3"]

    def test_commits_of_several_slots_do_not_hinder_each_other(
        self, back_end: TransactionalBackEnd, system: System
    ) -> None:
        """They write to the same partitions at the same time."""
        one, two = self.slot(system), self.slot(back_end.store(), 1)
        self.send(one, b"1")
        self.send(two, b"2")
        self.commit(one)
        self.commit(two)
        assert sorted(value or b"" for value in self._everything(back_end)) == [b"1"] * 5 + [b"2"] * 5

    def test_an_aborted_commit_leaves_nothing(self, back_end: TransactionalBackEnd, system: System) -> None:
        """And the slot goes on."""
        slot = self.slot(system)
        self.send(slot, b"1")
        slot.abort(_deadline_s())
        assert self._everything(back_end) == []
        self.send(slot, b"2")
        self.commit(slot)
        assert self._everything(back_end) == [b"2"] * 5

    def test_who_opens_a_slot_ends_the_commit_of_the_holder_before(
        self, back_end: TransactionalBackEnd, system: System
    ) -> None:
        """Whether that has sent everything, or believes to hold the slot."""
        old = self.slot(system)
        self.send(old, b"1")
        new_system = back_end.store()
        new = self.slot(new_system)
        assert self.settled(new_system) == []
        with pytest.raises((NotWritten, OutcomeUnknown)):
            old.commit(_deadline_s())
        old.drop()
        self.send(new, b"2")
        self.commit(new)
        assert self._everything(back_end) == [b"2"] * 5

    def test_a_slot_that_is_given_back_and_forth_commits_each_time(
        self, back_end: TransactionalBackEnd, system: System
    ) -> None:
        """As two attempts take it from each other."""
        one, two = self.slot(system), self.slot(back_end.store())
        for text, slot in ((b"1", one), (b"2", two), (b"3", one)):
            slot.drop()
            assert not slot.is_open
            slot.open(_deadline_s())
            self.send(slot, text)
            self.commit(slot)
        assert self.settled(system) == [b"1", b"2", b"3"]

    def test_a_slot_of_a_container_that_was_fenced_off_commits_nothing(
        self, back_end: TransactionalBackEnd, system: System
    ) -> None:
        """Neither what it has sent, nor by opening the slot once more; its successor takes the slot."""
        old = self.slot(system)
        self.send(old, b"1")
        successor = back_end.store()
        successor.raise_fence([self.fence(3)])
        with pytest.raises(Fenced):
            old.check_fence()
        new = self.slot(successor, epoch=3)
        with pytest.raises((Fenced, NotWritten, OutcomeUnknown)):
            old.commit(_deadline_s())
        old.drop()
        with pytest.raises(Fenced):
            old.open(_deadline_s())
        self.send(new, b"2")
        self.commit(new)
        assert self._everything(back_end) == [b"2"] * 5

    def test_a_slot_of_an_epoch_that_is_over_commits_nothing_though_nobody_takes_it(
        self, back_end: TransactionalBackEnd, system: System
    ) -> None:
        """The next epoch of the same container may have fewer slots."""
        first = system.begin_epoch(self.fence(2))
        old = self.slot(system, 1, right=first)
        self.send(old, b"1")
        next_system = back_end.store()
        second = next_system.begin_epoch(self.fence(2))
        assert (second.scope, second.epoch) == (first.scope, first.epoch + 1)
        with pytest.raises((Fenced, NotWritten, OutcomeUnknown)):
            old.commit(_deadline_s())
        with pytest.raises(Fenced) as refused:
            old.check_fence()
        assert refused.value.scope == first.scope, "not the container's, which goes on"
        old.drop()
        with pytest.raises(Fenced):
            old.open(_deadline_s())
        new = self.slot(next_system, 0, right=second)
        self.send(new, b"2")
        self.commit(new)
        assert self._everything(back_end) == [b"2"] * 5

    def test_an_epoch_begins_under_the_fence_that_it_raises(self, back_end: TransactionalBackEnd) -> None:
        """A container that was succeeded begins none, and so takes none from its successor."""
        system = back_end.store()
        first = system.begin_epoch(self.fence(3))
        with pytest.raises(Fenced):
            back_end.store().begin_epoch(self.fence(2))
        assert back_end.store().begin_epoch(self.fence(4)).epoch == first.epoch + 1
        with pytest.raises(Fenced):
            system.raise_fence([self.fence(3)])

    def test_a_commit_is_refused_when_another_program_writes_to_the_changelog(
        self, back_end: TransactionalBackEnd, system: System
    ) -> None:
        """Where offsets have no gaps; the positions in the checkpoint would not be those of the state."""
        if system.capabilities.has_gaps:
            return
        slot = self.slot(system)
        self.send(slot, b"1", after=0)
        back_end.append(self.named("changelog"), 1, [(b"k", b"foreign")])
        with pytest.raises(LogCorrupted, match="another program writes to this changelog"):
            slot.commit(_deadline_s())
        assert self._everything(back_end) == [b"foreign"]


def _deadline_s() -> float:
    return time.monotonic() + 60
