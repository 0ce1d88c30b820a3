"""Promises of every back end of leader election (`grete.coordination.base`).

Subclass with two fixtures: `contender()`, which returns another contender for the same store each time it is
called, as another process would be; and `pass_time(seconds)`, which moves the manual clock of all contenders, or
sleeps where a server keeps the time. `TTL_S` is the TTL that contenders are made with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from grete.clock import SystemClock
from grete.coordination.base import Coordination, Leadership, Look, forget_scope, forgotten_epoch
from grete.coordination.lead import lead
from grete.errors import Fenced, HeldByOther, LeadershipLost
from grete.keyed_log.base import Fence
from grete.keyed_log.memory import MemoryKeyedLog

Contender = Callable[[], Coordination]
PassTime = Callable[[float], None]


class CoordinationConformance:
    """The suite."""

    TTL_S = 6.0

    def test_the_first_to_campaign_leads(self, contender: Contender) -> None:
        """Under an epoch above zero, visible to every process."""
        one, two = contender(), contender()
        assert one.holder("job") is None
        leadership = one.campaign("job")
        assert leadership.epoch > 0
        assert two.leading_epoch("job") == leadership.epoch
        holder = two.holder("job")
        assert holder is not None
        assert holder.incarnation == leadership.incarnation

    def test_where_the_dead_do_not_show_the_holder_says_when_it_was_heard_of(
        self, contender: Contender, pass_time: PassTime
    ) -> None:
        """None where they do."""
        leader = contender()
        leadership = leader.campaign("job")
        assert leader.leading_epoch("job") == leadership.epoch
        first = leader.holder("job")
        pass_time(self.TTL_S / 3)
        assert leader.renew(leadership) is not None
        assert (
            leader.leading_epoch("job") == leadership.epoch
        )  # which waits until what was written can be read
        renewed = leader.holder("job")
        assert first is not None
        assert renewed is not None
        assert (first.heard_ms is None) == (renewed.heard_ms is None)
        if first.heard_ms is not None and renewed.heard_ms is not None:
            assert renewed.heard_ms - first.heard_ms == pytest.approx(self.TTL_S / 3 * 1000, abs=1000)

    def test_the_epoch_of_the_leader_is_public(self, contender: Contender) -> None:
        """From the election on, and only as long as a process does."""
        one, two, onlooker = contender(), contender(), contender()
        assert onlooker.leading_epoch("job") is None
        one.campaign("job")
        leadership = two.campaign("job", take_over=True)
        assert onlooker.leading_epoch("job") == leadership.epoch
        two.release(leadership)
        assert onlooker.leading_epoch("job") is None

    def test_a_second_one_is_refused_with_the_holders_name(self, contender: Contender) -> None:
        """Campaigning does not wait."""
        one, two = contender(), contender()
        one.campaign("job")
        holder = two.holder("job")
        assert holder is not None
        with pytest.raises(
            HeldByOther, match=rf"job is held by process {holder.pid} on {holder.host} since 20"
        ):
            two.campaign("job")

    def test_scopes_do_not_disturb_each_other(self, contender: Contender) -> None:
        """Two jobs, two leaders."""
        one, two = contender(), contender()
        mine, theirs = one.campaign("one"), two.campaign("two")
        assert one.renew(mine) is not None
        assert two.renew(theirs) is not None

    def test_a_leadership_may_act_for_less_than_anybody_waits(
        self, contender: Contender, pass_time: PassTime
    ) -> None:
        """Counted from before the request was sent; renewing extends it."""
        one = contender()
        leadership = one.campaign("job")
        pass_time(self.TTL_S / 3)
        renewed = one.renew(leadership)
        assert renewed is not None
        assert renewed.valid_until_s > leadership.valid_until_s
        assert (renewed.epoch, renewed.incarnation) == (leadership.epoch, leadership.incarnation)
        assert renewed.valid_until_s - leadership.valid_until_s <= self.TTL_S * 2 / 3

    def test_a_released_leadership_is_free_under_a_higher_epoch(self, contender: Contender) -> None:
        """And the one before it is over."""
        one, two = contender(), contender()
        first = one.campaign("job")
        one.release(first)
        assert two.holder("job") is None
        second = two.campaign("job")
        assert second.epoch > first.epoch
        assert one.renew(first) is None

    def test_releasing_what_is_lost_changes_nothing(self, contender: Contender) -> None:
        """The successor goes on."""
        one, two = contender(), contender()
        first = one.campaign("job")
        second = two.campaign("job", take_over=True)
        one.release(first)
        assert two.renew(second) is not None
        assert two.holder("job") is not None

    def test_taking_over_succeeds_a_living_holder(self, contender: Contender) -> None:
        """Which learns of it when it renews, and cannot slip back in."""
        one, two = contender(), contender()
        first = one.campaign("job")
        second = two.campaign("job", take_over=True)
        assert second.epoch > first.epoch
        assert one.renew(first) is None
        with pytest.raises(HeldByOther):
            one.campaign("job")
        assert two.renew(second) is not None

    def test_a_holder_that_hangs_is_succeeded_after_a_ttl_and_not_before(
        self, contender: Contender, pass_time: PassTime
    ) -> None:
        """The TTL counts from when the contender saw it first."""
        one, two = contender(), contender()
        first = one.campaign("job")
        with pytest.raises(HeldByOther):
            two.campaign("job")
        pass_time(self.TTL_S * 0.7)
        with pytest.raises(HeldByOther):
            two.campaign("job")
        pass_time(self.TTL_S * 0.7)
        second = two.campaign("job")
        assert second.epoch > first.epoch
        assert one.renew(first) is None

    def test_a_holder_is_silent_when_it_has_not_renewed_for_a_ttl(
        self, contender: Contender, pass_time: PassTime
    ) -> None:
        """Counted from the first look on; without a leader none is silent."""
        leader, onlooker = contender(), contender()
        assert not onlooker.is_silent("job")
        leadership = leader.campaign("job")
        assert leader.leading_epoch("job") == leadership.epoch
        assert not onlooker.is_silent("job")
        pass_time(self.TTL_S * 0.9)
        assert leader.renew(leadership) is not None
        assert leader.leading_epoch("job") == leadership.epoch
        pass_time(self.TTL_S * 0.2)
        assert not onlooker.is_silent("job")
        pass_time(self.TTL_S)
        assert onlooker.is_silent("job")
        leader.release(leadership)
        assert leader.leading_epoch("job") is None
        assert not onlooker.is_silent("job")

    def test_a_holder_that_renews_is_never_succeeded(self, contender: Contender, pass_time: PassTime) -> None:
        """However long the wait."""
        one, two = contender(), contender()
        leadership: Leadership | None = one.campaign("job")
        for _ in range(12):
            assert leadership is not None
            with pytest.raises(HeldByOther):
                two.campaign("job")
            pass_time(self.TTL_S / 3)
            leadership = one.renew(leadership)
        assert leadership is not None

    def test_the_epoch_is_above_what_the_callers_log_has_seen(self, contender: Contender) -> None:
        """So that losing the store never brings an old epoch back (fault 11)."""
        one = contender()
        first = one.campaign("job", epoch_floor=41)
        assert first.epoch > 41
        one.release(first)
        assert one.campaign("job", epoch_floor=7).epoch > first.epoch

    def test_an_epoch_that_was_deleted_with_its_leadership_is_not_led_again(
        self, contender: Contender
    ) -> None:
        """By a process that had asked for its floor before another one led under it."""
        one, two, log, clock = contender(), contender(), MemoryKeyedLog(SystemClock()), SystemClock()
        deleted = lead(one, log, "job", clock, epoch_floor=0)
        one.forget(deleted)  # as by hand
        leadership = lead(two, log, "job", clock, epoch_floor=0)
        assert leadership.epoch > deleted.epoch
        assert two.renew(leadership) is not None

    def test_of_two_who_were_elected_under_one_epoch_one_leads(self, contender: Contender) -> None:
        """The first, whose leadership was deleted before it claimed its epoch, neither writes nor disturbs."""
        one, two, log = contender(), contender(), MemoryKeyedLog(SystemClock())
        deleted = one.campaign("job")
        one.forget(deleted)  # as by hand
        leadership = lead(two, log, "job", SystemClock(), epoch_floor=0)
        with pytest.raises(Fenced):
            log.claim(Fence("job", deleted.epoch))
        one.release(deleted)
        assert two.renew(leadership) is not None

    def test_of_many_who_campaign_at_once_one_leads(self, contender: Contender) -> None:
        """The others are refused (fault 5)."""
        contenders = [contender() for _ in range(8)]
        start = threading.Barrier(len(contenders))
        won: list[Leadership] = []
        refused: list[HeldByOther] = []

        def campaign(own: Coordination) -> None:
            start.wait()
            try:
                won.append(own.campaign("job"))
            except HeldByOther as error:
                refused.append(error)

        threads = [threading.Thread(target=campaign, args=(own,)) for own in contenders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(refused)) == (1, 7)

    def test_one_look_says_who_leads_and_whether_it_is_silent(
        self, contender: Contender, pass_time: PassTime
    ) -> None:
        """As `leading_epoch` and `is_silent` do."""
        leader, onlooker = contender(), contender()
        assert onlooker.look("job") == Look(None, False)
        leadership = leader.campaign("job")
        assert leader.leading_epoch("job") == leadership.epoch
        assert onlooker.look("job") == Look(leadership.epoch, False)
        pass_time(self.TTL_S * 1.1)
        assert onlooker.look("job") == Look(leadership.epoch, True)

    def test_what_is_kept_of_a_scope_is_forgotten_with_its_cells_and_nothing_else(
        self, contender: Contender
    ) -> None:
        """For every process; who leads it next goes on from the floor that it is given."""
        one, two = contender(), contender()
        before = two.campaign("other", epoch_floor=3)
        one.cells("other").write("cell", b"stays", None)
        leadership = one.campaign("job", epoch_floor=7)
        one.cells("job").write("members/a", b"1", None)
        one.forget(leadership)
        assert (two.holder("job"), two.leading_epoch("job")) == (None, None)
        assert dict(contender().cells("job").read_all("")) == {}
        assert one.renew(leadership) is None
        after = contender().campaign("job", epoch_floor=leadership.epoch)
        assert after.epoch > leadership.epoch
        again = contender().cells("job")
        again.write("members/a", b"2", None)
        assert again.read("members/a") is not None
        assert two.renew(before) is not None
        assert [cell.value for cell in two.cells("other").read_all("").values()] == [b"stays"]

    def test_a_scope_that_another_process_leads_is_not_forgotten(self, contender: Contender) -> None:
        """Nothing of it."""
        one, two = contender(), contender()
        lost = one.campaign("job")
        one.cells("job").write("cell", b"stays", None)
        successor = two.campaign("job", take_over=True)
        with pytest.raises(LeadershipLost):
            one.forget(lost)
        assert two.renew(successor) is not None
        assert two.cells("job").read("cell") is not None

    def test_epochs_of_scopes_that_were_forgotten_do_not_come_again(self, contender: Contender) -> None:
        """The highest of all is kept."""
        one = contender()
        assert forgotten_epoch(one) == 0
        highest = 0
        for scope, floor in (("first", 4_000), ("second", 20)):
            leadership = one.campaign(scope, epoch_floor=floor)
            highest = max(highest, leadership.epoch)
            forget_scope(one, leadership)
        assert forgotten_epoch(contender()) == highest

    def test_epochs_only_grow(self, contender: Contender) -> None:
        """Over many terms of several leaders."""
        contenders = [contender() for _ in range(3)]
        epochs = [contenders[turn % 3].campaign("job", take_over=True).epoch for turn in range(12)]
        assert epochs == sorted(set(epochs))
