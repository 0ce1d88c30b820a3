"""Promises of lock, latch, membership and barrier on every back end of coordination.

Subclass with a fixture `contender()` as for `CoordinationConformance`. TTLs of members pass on a clock of the suite's
own, whatever the service's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from grete.clock import Deadline, SystemClock
from grete.coordination.base import Coordination
from grete.coordination.membership import Membership
from grete.coordination.recipes import Barrier, BarrierState, DistributedLock, Latch
from grete.errors import Fenced, IdTaken
from grete.testing.clock import ManualClock

Contender = Callable[[], Coordination]
SCOPE = "job/recipes"
MEMBER_TTL_S = 9.0


def soon(timeout_s: float = 20.0) -> Deadline:
    """On the machine's own clock."""
    return Deadline(SystemClock(), timeout_s, pauses_s=(0.02, 0.2))


class RecipesConformance:
    """The suite."""

    @pytest.fixture
    def time(self) -> ManualClock:
        """The clock on which members age."""
        return ManualClock()

    @pytest.fixture
    def observer(self, contender: Contender, time: ManualClock) -> Callable[[], Membership]:
        """Another process's view of the members, each time."""
        return lambda: Membership(contender().cells(SCOPE), time, ttl_s=MEMBER_TTL_S)

    # --- lock ---

    def test_a_lock_is_held_by_one_and_given_back(self, contender: Contender) -> None:
        """Its epoch grows with every holder."""
        one, two = (DistributedLock(contender(), "streams") for _ in range(2))
        assert one.lock(soon(0))
        first = one.held
        assert first is not None
        assert not two.lock(soon(0))
        assert two.held is None
        assert one.lock(soon(0)), "it has it"
        assert one.held is not None
        assert one.held.epoch == first.epoch
        one.unlock()
        assert one.held is None
        assert two.lock(soon())
        assert two.held is not None
        assert two.held.epoch > first.epoch
        one.unlock()
        assert two.renew(), "a process that does not hold it takes it from none"

    def test_a_lock_that_was_lost_is_not_held(self, contender: Contender) -> None:
        """Another process has taken the scope over, as after a pause of the holder."""
        one = DistributedLock(contender(), "streams")
        assert one.lock(soon(0))
        contender().campaign("lock/streams", take_over=True)
        assert not one.renew()
        assert one.held is None
        assert not one.lock(soon(0))

    def test_locks_of_two_names_do_not_meet(self, contender: Contender) -> None:
        """Nor does a leadership."""
        locks = [DistributedLock(contender(), name) for name in ("a", "b")]
        assert [lock.lock(soon(0)) for lock in locks] == [True, True]
        assert contender().campaign("a").epoch > 0

    # --- latch ---

    def test_a_latch_opens_when_all_parties_have_counted(self, contender: Contender) -> None:
        """Each once, however often it says so."""
        one, two = (Latch(contender().cells(SCOPE), "init", 2) for _ in range(2))
        one.count_down("a")
        one.count_down("a")
        assert (one.count(), two.count()) == (1, 1)
        assert not two.wait(soon(0.05))
        later = threading.Timer(0.1, one.count_down, ["b"])
        later.start()
        assert two.wait(soon())
        later.join()
        assert one.wait(soon(0))
        one.remove()
        assert two.count() == 2

    # --- membership ---

    def test_members_are_seen_with_their_metadata(self, observer: Callable[[], Membership]) -> None:
        """By all, until they leave."""
        one, two = observer(), observer()
        first = one.join("a/1", {"cores": "2"})
        second = two.join("b")
        assert {id: dict(member.metadata) for id, member in one.members().items()} == {
            "a/1": {"cores": "2"},
            "b": {},
        }
        renewed = two.renew(second, {"cores": "4"})
        assert renewed is not None
        assert one.members()["b"].metadata == {"cores": "4"}
        assert one.members()["b"].incarnation == second.member.incarnation
        one.leave(first)
        assert list(two.members()) == ["b"]
        assert one.renew(first) is None

    def test_a_member_that_does_not_renew_is_gone_after_a_ttl_and_not_before(
        self, observer: Callable[[], Membership], time: ManualClock
    ) -> None:
        """One that renews is not; it may act for less than others wait."""
        one, two, late = observer(), observer(), observer()
        living, dying = one.join("living"), one.join("dying")
        assert dying.valid_until_s < time.monotonic_s() + MEMBER_TTL_S
        assert set(two.members()) == {"living", "dying"}
        for _ in range(3):
            time.advance(MEMBER_TTL_S / 3 + 0.1)
            renewed = one.renew(living)
            assert renewed is not None
            living = renewed
            alive = set(two.members())
        assert alive == {"living"}
        assert set(late.members()) == {"living", "dying"}, "it has looked for the first time"
        assert two.remove_gone() == ["dying"]
        assert set(late.members()) == {"living"}
        assert one.renew(dying) is None

    def test_an_id_is_one_process(self, observer: Callable[[], Membership], time: ManualClock) -> None:
        """Another one is refused until the first has stood still for a TTL; then that one has lost it."""
        one, two = observer(), observer()
        first = one.join("a")
        with pytest.raises(IdTaken, match=r"'a' is a member already: process \d+ on "):
            two.join("a")
        time.advance(MEMBER_TTL_S + 0.1)
        second = two.join("a")
        assert one.renew(first) is None
        assert two.renew(second) is not None
        one.leave(first)
        assert set(two.members()) == {"a"}

    # --- barrier ---

    def test_a_version_is_done_when_all_have_arrived(self, contender: Contender) -> None:
        """For everybody, and for good."""
        leader, member = (Barrier(contender().cells(SCOPE), "model") for _ in range(2))
        assert member.state(1) is BarrierState.OPEN
        leader.open(1, ["a", "b"], 5)
        member.arrive(1, "a")
        member.arrive(1, "a")
        assert leader.state(1) is BarrierState.OPEN
        assert leader.missing(1) == {"b"}
        later = threading.Timer(0.1, member.arrive, [1, "b"])
        later.start()
        assert leader.wait(1, soon()) is BarrierState.DONE
        later.join()
        assert member.time_out(1) is BarrierState.DONE
        assert member.wait(1, soon(0)) is BarrierState.DONE

    def test_a_version_that_timed_out_is_never_done(self, contender: Contender) -> None:
        """Whoever arrives late; the next version takes its place."""
        leader, member = (Barrier(contender().cells(SCOPE), "model") for _ in range(2))
        leader.open(1, ["a"], 5)
        assert leader.wait(1, soon(0.05)) is BarrierState.OPEN
        assert leader.time_out(1) is BarrierState.TIMED_OUT
        member.arrive(1, "a")
        assert member.state(1) is BarrierState.TIMED_OUT
        leader.open(2, ["a"], 5)
        assert member.state(2) is BarrierState.OPEN
        assert member.state(1) is BarrierState.TIMED_OUT
        member.arrive(2, "a")
        assert leader.state(2) is BarrierState.DONE
        leader.open(3, [], 5)
        assert leader.state(3) is BarrierState.DONE

    def test_a_leader_that_was_succeeded_opens_no_version(self, contender: Contender) -> None:
        """A leader of the next epoch has opened one."""
        old, new = (Barrier(contender().cells(SCOPE), "model") for _ in range(2))
        old.open(1, ["a"], 5)
        new.open(2, ["a"], 6)
        with pytest.raises(Fenced):
            old.open(3, ["a"], 5)
        with pytest.raises(ValueError, match="version 2"):
            new.open(2, ["a"], 6)
        assert new.missing(2) == {"a"}
