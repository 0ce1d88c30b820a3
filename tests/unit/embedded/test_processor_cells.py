"""Cells of a job's processors that another program wrote, and a leader that cannot look at them any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import msgspec
import pytest

from grete.assembly.stop_signals import Requests
from grete.assembly.submission import RunOptions
from grete.clock import SystemClock
from grete.container.main_loop import OnState
from grete.coordination.cells import Cell, Cells, cell_name
from grete.coordination.membership import Member, Membership
from grete.coordination.memory import MemoryCells, MemoryValues
from grete.coordinator.events import StopRequested
from grete.embedded.agent import Agent
from grete.embedded.launcher import ProcessorsLauncher
from grete.embedded.leading import LeaderRequests, Leading
from grete.embedded.orders import Order, ProcessorReport, Wanted, decode, encode, order_cell, report_cell
from grete.errors import (
    ConfigError,
    CoordinationUnreachable,
    Fenced,
    GreteError,
    HeldByOther,
    IdTaken,
    JobError,
    LeadershipLost,
    LogUnreachable,
)
from grete.launch.base import ContainerExit, ContainerStart
from grete.model.ending import ContainerEnd, ExitCode
from grete.model.fence import container_epoch
from grete.model.ids import ContainerId
from grete.testing.waiting import eventually, patient

ZERO = ContainerId("0")
GARBAGE = (b"", b"\xff\x00", b'{"processor": 7}')
SCOPE, TTL_S, EVERY_S = "processors/job", 3.0, 0.01


def overwrite(cells: Cells, name: str, value: bytes) -> None:
    known = cells.read(name)
    cells.write(name, value, None if known is None else known.version)


class Work:
    """What a processor's containers do: nothing, until they are to end."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def run(self, environment: Mapping[str, str], stop: threading.Event, on_state: OnState) -> ContainerEnd:
        self.epochs.append(int(environment["epoch"]))
        stop.wait(60)
        return ContainerEnd(ExitCode.STOPPED)


class Group:
    """One processor and its leader, over cells in memory."""

    def __init__(self) -> None:
        self.cells = MemoryCells(MemoryValues(), SCOPE)
        self.work, clock = Work(), SystemClock()
        self.agent = Agent(
            "a", self.cells, clock, self.work.run, lambda state: None, ttl_s=TTL_S, every_s=EVERY_S
        )
        members = Membership(self.cells, clock, ttl_s=TTL_S)
        self.launcher = ProcessorsLauncher(self.cells, members, clock, leadership=3, every_s=EVERY_S)
        self.agent.join()
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()

    def start(self, launch: int) -> None:
        epoch = container_epoch(3, launch)
        self.launcher.start(ContainerStart(ZERO, epoch, {"epoch": str(epoch)}))
        eventually(lambda: self.work.epochs[-1:] == [epoch], f"launch {launch} runs")

    def join(self) -> None:
        self._thread.join(patient(2 * TTL_S))
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.agent.stop()
        self._thread.join()
        self.launcher.abandon()


@pytest.fixture
def group() -> Iterator[Group]:
    with closing(Group()) as made:
        yield made


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("cell", [order_cell, report_cell])
def test_a_cell_of_something_else_is_written_over_and_the_container_goes_on(
    group: Group, cell: Callable[[str], str], garbage: bytes
) -> None:
    overwrite(group.cells, cell("a"), garbage)
    overwrite(group.cells, cell("stranger"), garbage)
    group.start(1)
    overwrite(group.cells, cell("a"), garbage)
    ordered = group.cells.read(order_cell("a"))
    eventually(lambda: group.cells.read(order_cell("a")) != ordered or cell is report_cell, "ordered again")
    assert len(group.work.epochs) == 1, "it has not ended for that"
    group.launcher.request_stop(ZERO)
    exits = []
    eventually(lambda: exits.extend(group.launcher.exits()) or exits, "its end is reported")
    assert [(one.container_id, one.exit_code) for one in exits] == [(ZERO, ExitCode.STOPPED)]
    group.start(2)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_membership_of_something_else_is_none_and_is_joined_again(group: Group, garbage: bytes) -> None:
    members = Membership(group.cells, SystemClock(), ttl_s=TTL_S)
    before = members.members()["a"].incarnation
    overwrite(group.cells, cell_name("members", "a"), garbage)
    overwrite(group.cells, cell_name("members", "stranger"), garbage)
    assert members.members() == {}
    assert members.heard_of() == []
    eventually(lambda: set(members.members()) == {"a"}, "it is a member again")
    assert members.members()["a"].incarnation != before
    group.start(1)


def test_who_leaves_beside_one_that_was_just_killed_is_the_last(group: Group) -> None:
    """It was taken for a successor, and the job had no leader any more: `grete status` said died."""
    dead = Member("dead", "i", "host", 1, 0, {}, 5)
    overwrite(group.cells, cell_name("members", "dead"), msgspec.json.encode(dead))
    group.agent.stop()
    eventually(lambda: group.agent.is_last, "it is the last")


def test_who_leaves_beside_one_that_lives_is_not_the_last_and_knows_it_soon(group: Group) -> None:
    other = Membership(group.cells, SystemClock(), ttl_s=TTL_S)
    admission = other.join("other")
    group.agent.stop()
    eventually(lambda: set(other.members()) == {"other"}, "it has left")
    assert other.renew(admission) is not None
    group.join()
    assert not group.agent.is_last


def test_what_a_processor_has_left_that_is_gone_is_removed(group: Group) -> None:
    """Its membership, its order and its report; not an order of a later leader."""
    gone = Member("gone", "i", "host", 1, 0, {})
    overwrite(group.cells, cell_name("members", "gone"), msgspec.json.encode(gone))
    for processor, leadership in (("gone", 3), ("later", 4)):
        epoch = container_epoch(leadership, 1)
        order = Order(processor, "i", ContainerId("7"), epoch, Wanted.RUN, {})
        overwrite(group.cells, order_cell(processor), encode(order))
        report = ProcessorReport(processor, "i", ContainerId("7"), epoch, 0)
        overwrite(group.cells, report_cell(processor), encode(report))
    group.start(1)
    left = {order_cell("a"), order_cell("later"), report_cell("later"), cell_name("members", "a")}
    eventually(lambda: set(group.cells.read_all("")) == left, "what is left", within_s=10 * TTL_S)


def test_what_was_ordered_before_is_not_kept_however_often_that_changes(group: Group) -> None:
    """Samza keeps the job models of the last ten versions; here an order takes the place of the one before."""
    for launch in range(1, 13):
        group.start(launch)
        group.launcher.request_stop(ZERO)
        exits: list[ContainerExit] = []
        eventually(lambda into=exits: into.extend(group.launcher.exits()) or into, "its end")  # type: ignore[misc]
    assert set(group.cells.read_all("")) == {order_cell("a"), report_cell("a"), cell_name("members", "a")}


def test_orders_and_reports_of_another_version_are_read_as_far_as_they_are_known() -> None:
    """Processors of a job are upgraded one after the other; one that lacks what is needed is as no cell."""
    order = Order("a", "i", ZERO, container_epoch(3, 1), Wanted.RUN, {})
    report = ProcessorReport("a", "i", ZERO, container_epoch(3, 1), 0)
    for value in (order, report):
        fields = msgspec.json.decode(encode(value))
        later = Cell(msgspec.json.encode({**fields, "of a later version": 1}), "1")
        assert decode("cell", later, type(value)) == value
        del fields["epoch"]
        assert decode("cell", Cell(msgspec.json.encode(fields), "1"), type(value)) is None


class Silent(MemoryCells):
    """Does not answer the first `questions`; the write among them is done all the same, as behind a slow network."""

    def __init__(self, questions: int) -> None:
        super().__init__(MemoryValues(), SCOPE)
        self._questions = questions

    def _ask(self) -> None:
        self._questions -= 1
        if self._questions >= 0:
            raise CoordinationUnreachable("no broker answers for partition 0")

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        self._ask()
        return super().read_all(prefix)

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        written = super().write(name, value, expected)
        self._ask()
        return written


def joining(cells: Cells, ttl_s: float) -> Agent:
    work = Work()
    return Agent("a", cells, SystemClock(), work.run, lambda state: None, ttl_s=ttl_s, every_s=EVERY_S)


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_a_processor_that_starts_before_its_store_answers_joins_when_it_does(questions: int) -> None:
    cells = Silent(questions)
    agent = joining(cells, ttl_s=60)
    agent.join()
    assert set(Membership(cells, SystemClock(), ttl_s=60).members()) == {"a"}


def test_a_membership_that_was_written_without_an_answer_is_its_own_and_not_another_living_processor() -> (
    None
):
    cells = MemoryCells(MemoryValues(), SCOPE)
    members = Membership(cells, SystemClock(), ttl_s=60)
    members.join("a", incarnation="mine")
    assert members.join("a", incarnation="mine").member.incarnation == "mine"
    with pytest.raises(IdTaken):
        members.join("a", incarnation="another")


def test_a_store_that_does_not_answer_for_a_lease_ends_the_start_of_a_processor() -> None:
    with pytest.raises(CoordinationUnreachable, match="no broker answers"):
        joining(Silent(1_000_000), ttl_s=0.2).join()


class Broken(MemoryCells):
    """Ends in an error that is no answer of a service."""

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        raise RuntimeError("a mistake in a back end")


def test_a_leader_that_cannot_look_at_processors_any_more_does_not_lead_on() -> None:
    cells, clock = Broken(MemoryValues(), SCOPE), SystemClock()
    members = Membership(cells, clock, ttl_s=TTL_S)
    launcher = ProcessorsLauncher(cells, members, clock, leadership=3, every_s=EVERY_S)

    def is_refused() -> bool:
        try:
            launcher.exits()
        except JobError as error:
            return "any more: a mistake in a back end" in str(error)
        return False

    eventually(is_refused, "the leader ends")
    launcher.abandon()


@pytest.mark.parametrize(
    "error", [LogUnreachable("locked"), LeadershipLost("job/x"), Fenced("s", epoch=1, seen=2)]
)
def test_a_coordinator_that_could_not_go_on_stands_by_again_in_the_same_processor(error: GreteError) -> None:
    """Nothing else would start it: the processor would end, or the job would have no coordinator."""
    ends: list[GreteError | None] = [error, error, None]
    ended = threading.Event()

    def run(options: RunOptions, requests: Requests) -> int:
        if (found := ends.pop(0)) is not None:
            raise found
        return 0

    leading = Leading(RunOptions(), ended.set, run, pause_s=0)
    leading.start()
    leading.join()
    assert (leading.error, ends, ended.is_set()) == (None, [], True)


def test_a_coordinator_that_cannot_be_one_ends_its_processor() -> None:
    """So does one that was to end the job, and could not."""
    for error, ends_job in ((ConfigError("wrong"), False), (LogUnreachable("locked"), True)):

        def run(options: RunOptions, requests: Requests, error: GreteError = error) -> int:
            raise error

        leading = Leading(RunOptions(), lambda: None, run, pause_s=0)
        if ends_job:
            leading.requests.stop_job()
        leading.start()
        leading.join()
        assert leading.error is error


def test_the_last_processor_asks_its_next_coordinator_to_end_the_job_too() -> None:
    requests = LeaderRequests()
    assert not requests.again()
    requests.stop_job()
    for _ in range(2):
        assert [type(one) for one in requests.requests(5)] == [StopRequested]
        assert requests.again()


def test_a_last_processor_leaves_the_job_to_one_that_has_just_joined_and_leads() -> None:
    def run(options: RunOptions, requests: Requests) -> int:
        raise HeldByOther("job x", "process 7")

    leading = Leading(RunOptions(), lambda: None, run, pause_s=0)
    leading.requests.stop_job()
    leading.start()
    leading.join()
    assert leading.error is None
