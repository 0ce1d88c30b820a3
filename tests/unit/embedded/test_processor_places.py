"""Processors of a job are on one machine with one home: one that is elsewhere is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grete.coordination.membership import Membership
from grete.coordination.memory import MemoryCoordination
from grete.embedded.agent import Agent
from grete.embedded.place import ProcessorPlace
from grete.errors import IllegalStateError, MembersElsewhere
from grete.model.ending import ContainerEnd
from grete.testing.clock import ManualClock

TTL_S = 3.0
HERE = ProcessorPlace("this machine", "/home/grete")
ELSEWHERE = ProcessorPlace("another machine", "/home/grete")


def run_nothing(*_: object) -> ContainerEnd:
    raise IllegalStateError("no order was given")


def ignore(state: str) -> None:
    """Nobody asks."""


class Group:
    """The members of a job in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cells = MemoryCoordination(self.clock).cells("processors/job")
        self.members = Membership(self.cells, self.clock, ttl_s=TTL_S)

    def agent(self, id: str, place: ProcessorPlace) -> Agent:
        return Agent(id, self.cells, self.clock, run_nothing, ignore, ttl_s=TTL_S, every_s=0.05, place=place)


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_processor_of_another_machine_is_refused_until_the_others_are_gone(group: Group) -> None:
    group.agent("a", HERE).join()
    other = group.agent("b", ELSEWHERE)
    with pytest.raises(
        MembersElsewhere,
        match=r"processor a \(process \d+ on .*, home /home/grete\) of the job runs on another machine",
    ) as refused:
        other.join(patiently=False)
    assert "start this one there, or stop the others first" in str(refused.value)
    assert set(group.members.members()) == {"a"}, "nothing of it stays"
    other.join()
    assert "b" in group.members.members(), "a has not renewed for a lease: it is dead"


def test_processors_of_one_place_join(group: Group) -> None:
    group.agent("a", HERE).join()
    group.agent("b", HERE).join(patiently=False)
    assert set(group.members.members()) == {"a", "b"}


def test_another_home_is_another_place(group: Group) -> None:
    group.agent("a", HERE).join()
    with pytest.raises(MembersElsewhere, match=r"has another GRETE_HOME"):
        group.agent("b", ProcessorPlace(HERE.loopback, "/srv/grete")).join(patiently=False)


def test_a_member_that_names_no_place_is_elsewhere(group: Group) -> None:
    group.members.join("a")
    with pytest.raises(MembersElsewhere, match="home an unknown folder"):
        group.agent("b", HERE).join(patiently=False)


def test_the_place_of_a_process_is_the_same_by_any_way_to_its_home(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "home")
    assert ProcessorPlace.here(tmp_path / "way") == ProcessorPlace.here(tmp_path / "home")
    assert ProcessorPlace.here(tmp_path / "home").loopback
    assert ProcessorPlace.here(tmp_path) != ProcessorPlace.here(tmp_path / "home")


def test_processors_of_several_machines_join_where_each_has_an_address(group: Group) -> None:
    group.agent("a", replace(HERE, address="10.0.0.1")).join()
    group.agent("b", replace(ELSEWHERE, address="10.0.0.2")).join(patiently=False)
    with pytest.raises(MembersElsewhere, match=r"set it for all of them"):
        group.agent("c", ELSEWHERE).join(patiently=False)
    alone = Group()
    alone.agent("a", HERE).join()
    with pytest.raises(MembersElsewhere, match=r"set it for all of them"):
        alone.agent("b", replace(ELSEWHERE, address="10.0.0.2")).join(patiently=False)
    assert set(group.members.members()) == {"a", "b"}
