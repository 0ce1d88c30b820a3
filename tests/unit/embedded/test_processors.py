"""Which processor runs which container, and which tasks that container has: pure decisions of embedded mode."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from grete.coordination.cells import Cell
from grete.coordination.membership import Member
from grete.embedded.orders import Order, ProcessorReport, Wanted, WrittenOrder
from grete.embedded.placement import ContainerPlacement, Sight
from grete.errors import ConfigError
from grete.grouping.processors import keep_in_place
from grete.launch.base import ContainerExit, ContainerStart
from grete.model.fence import container_epoch
from grete.model.ids import ContainerId, TaskName

LEADERSHIP = 3


def task(number: int) -> TaskName:
    return TaskName(f"Partition {number}")


def epoch(launch: int, leadership: int = LEADERSHIP) -> int:
    return container_epoch(leadership, launch)


class World:
    """Processors that follow their orders, and the seats of their leader."""

    def __init__(self, leadership: int = LEADERSHIP) -> None:
        self.members: dict[str, Member] = {}
        self.orders: dict[str, WrittenOrder] = {}
        self.reports: dict[str, ProcessorReport] = {}
        self.seats = ContainerPlacement(leadership)
        self.joined = 0

    def join(self, *ids: str) -> None:
        for id_ in ids:
            self.joined += 1
            self.members[id_] = Member(id_, f"{id_}{self.joined}", "host", 1, self.joined, {})

    def look(self) -> list[Order]:
        orders = self.seats.look(self.sight())
        for order in orders:
            self.orders[order.processor] = WrittenOrder(order, Cell(b"", str(len(self.orders))))
        return orders

    def sight(self) -> Sight:
        return Sight(dict(self.members), dict(self.orders), dict(self.reports))

    def start(self, container: str, launch: int) -> None:
        self.seats.start(ContainerStart(ContainerId(container), epoch(launch), {}))

    def end(self, id_: str, code: int = 6, *, leaves: bool = False) -> None:
        order = self.orders[id_].order
        self.reports[id_] = ProcessorReport(
            id_, order.incarnation, order.container, order.epoch, code, "why", leaves=leaves
        )

    def exits(self) -> list[ContainerExit]:
        return self.seats.take_exits()

    @property
    def at(self) -> Mapping[str, str]:
        """The processor of each container."""
        return {id_: one.member.id for id_, one in self.seats.asked.items() if one.member is not None}


def running(*ids: str) -> World:
    """Each processor with a container of its own."""
    world = World()
    world.join(*ids)
    for number, _ in enumerate(ids):
        world.start(str(number), number + 1)
    world.look()
    return world


def test_each_processor_gets_one_container_and_the_others_wait() -> None:
    world = running("a", "b")
    world.start("2", 3)
    assert world.look() == []
    assert world.at == {"0": "a", "1": "b"}
    world.join("c")
    [order] = world.look()
    assert (order.processor, order.container, order.wanted) == ("c", "2", Wanted.RUN)


def test_a_processor_without_a_container_takes_the_place_of_one_that_is_gone() -> None:
    world = running("a", "b")
    world.join("spare")
    world.look()
    assert world.seats.room(world.sight()) == ["0", "1", "2"]
    del world.members["a"]
    world.look()
    [gone] = world.exits()
    assert (gone.container_id, gone.may_live, gone.left) == ("0", True, True), "it is fenced off first"
    world.start("0", 3)
    [order] = world.look()
    assert (order.processor, order.container) == ("spare", "0")
    assert world.seats.room(world.sight()) == ["0", "1"]


def test_a_processor_that_came_again_is_another_one() -> None:
    world = running("a")
    world.join("a")
    world.look()
    assert [one.may_live for one in world.exits()] == [True]
    world.start("0", 2)
    [order] = world.look()
    assert order.incarnation == world.members["a"].incarnation


def test_one_that_leaves_gets_no_other_container_and_its_exit_is_no_failure() -> None:
    world = running("a", "b")
    world.end("a", leaves=True)
    world.look()
    assert [(one.container_id, one.left, one.may_live) for one in world.exits()] == [("0", True, False)]
    world.start("0", 3)
    assert world.look() == []
    assert world.seats.room(world.sight()) == ["1"]


def test_one_that_fails_is_a_failure_though_it_leaves() -> None:
    world = running("a")
    world.end("a", 1, leaves=True)
    world.look()
    assert [(one.exit_code, one.left) for one in world.exits()] == [(1, False)]


def test_one_that_does_not_end_when_killed_gets_no_container_until_it_has() -> None:
    world = running("a", "b")
    world.seats.want(ContainerId("0"), Wanted.KILL)
    assert [one.may_live for one in world.exits()] == [True]
    world.start("0", 3)
    [kill] = world.look()
    assert (kill.processor, kill.wanted) == ("a", Wanted.KILL)
    assert world.seats.room(world.sight()) == ["1"]
    assert world.look() == []
    world.end("a")
    [again] = world.look()
    assert (again.processor, again.container, again.wanted) == ("a", "0", Wanted.RUN)
    assert world.seats.room(world.sight()) == ["0", "1"]


def test_a_container_that_never_had_a_processor_stops_at_once() -> None:
    world = World()
    world.start("0", 1)
    world.seats.want(ContainerId("0"), Wanted.STOP)
    assert [(one.exit_code, one.may_live) for one in world.exits()] == [(6, False)]


def test_a_successor_adopts_what_runs_and_ends_what_no_record_names() -> None:
    before = running("a", "b", "c")
    del before.members["c"]
    world = World(LEADERSHIP + 1)
    world.members, world.orders = before.members, before.orders
    sight = world.sight()
    found = [world.seats.adopt(ContainerStart(ContainerId(str(i)), epoch(i + 1), {}), sight) for i in (0, 2)]
    assert found == [True, False], "the processor of the other one is gone"
    [kill] = world.look()
    assert (kill.processor, kill.wanted) == ("b", Wanted.KILL)
    assert world.at == {"0": "a"}


def test_a_successor_finds_room_for_who_was_killed_though_another_has_its_container_now() -> None:
    """Both have had container 0 last: it waited for ever for a processor of number 1, which none could get."""
    world = running("a", "b")
    world.end("b")
    world.look()
    world.seats.want(ContainerId("0"), Wanted.KILL)
    world.start("0", 3)
    world.look()
    assert world.at == {"0": "b"}, "a does not end"
    successor = World(LEADERSHIP + 1)
    successor.members, successor.orders, successor.reports = world.members, world.orders, world.reports
    assert successor.seats.adopt(ContainerStart(ContainerId("0"), epoch(3), {}), successor.sight())
    successor.look()
    successor.end("a")
    successor.seats.start(ContainerStart(ContainerId("1"), epoch(1, LEADERSHIP + 1), {}))
    successor.look()
    assert successor.at == {"0": "b", "1": "a"}


def test_a_leader_that_was_succeeded_changes_no_order_of_its_successor() -> None:
    old = running("a")
    new = World(LEADERSHIP + 1)
    new.members, new.orders = old.members, dict(old.orders)
    order = old.orders["a"].order
    newer = Order(order.processor, order.incarnation, ContainerId("0"), epoch(1, 4), Wanted.RUN, {})
    old.orders["a"] = WrittenOrder(newer, Cell(b"", "9"))
    old.seats.want(ContainerId("0"), Wanted.STOP)
    assert old.look() == []


def test_shares_are_equal_and_no_more_tasks_move_than_must() -> None:
    chance = random.Random(15)  # a sequence that is the same each time
    for _ in range(300):
        tasks = [task(number) for number in range(chance.randint(1, 40))]
        ids = [ContainerId(str(number)) for number in chance.sample(range(12), chance.randint(1, 8))]
        previous = {one: ContainerId(str(chance.randrange(12))) for one in tasks if chance.random() < 0.9}
        groups = keep_in_place(tasks, ids, previous)
        sizes = sorted(map(len, groups.values()))
        assert sorted(one for group in groups.values() for one in group) == sorted(tasks)
        assert sizes[-1] - sizes[0] <= 1 <= sizes[0]
        assert len(groups) == min(len(ids), len(tasks))
        stayed = sum(previous.get(one) == id_ for id_, group in groups.items() for one in group)
        held = sorted((sum(where == id_ for where in previous.values()) for id_ in ids), reverse=True)
        share, larger = divmod(len(tasks), len(groups))
        most = sum(min(had, share + (place < larger)) for place, had in enumerate(held[: len(groups)]))
        assert stayed == most


def test_a_processor_more_or_less_moves_its_share_only() -> None:
    tasks = [task(number) for number in range(12)]
    three = keep_in_place(tasks, [ContainerId(i) for i in "012"], {})
    where = {one: id_ for id_, group in three.items() for one in group}
    two = keep_in_place(tasks, [ContainerId(i) for i in "02"], where)
    assert {one for one in three[ContainerId("0")]} < set(two[ContainerId("0")])
    assert {one for one in three[ContainerId("2")]} < set(two[ContainerId("2")])
    four = keep_in_place(tasks, [ContainerId(i) for i in "0123"], where)
    assert all(set(four[ContainerId(i)]) < set(three[ContainerId(i)]) for i in "012")


def test_nothing_cannot_be_divided() -> None:
    with pytest.raises(ConfigError):
        keep_in_place([task(0)], [], {})
    with pytest.raises(ConfigError):
        keep_in_place([], [ContainerId("0")], {})
