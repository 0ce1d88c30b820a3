"""What passes between a coordinator and its containers."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from grete.container.control import Control
from grete.container.heartbeat import ContainerProgress, Heartbeat, Reactions
from grete.coordinator.board import Board, Directive, Seat, Told
from grete.errors import CoordinatorUnavailable, Fenced, LogCorrupted, LogUnreachable
from grete.model.ids import ContainerId
from grete.testing.clock import ManualClock
from grete.testing.waiting import eventually

ZERO = ContainerId("0")


def test_a_query_is_interrupted_for_a_barrier_a_new_word_and_the_end_and_for_nothing_else() -> None:
    stop = threading.Event()
    control = Control(stop)
    control.running(4)
    for told, number, interrupts in (
        ("run", 4, False),
        ("pause", 2, True),
        ("run", 4, False),
        ("run", 5, True),
    ):
        control.on_told(told, number)
        assert control.is_set() is interrupts, (told, number)
    control.running(5)
    assert not control.is_set()
    control.on_told("stop", 0)
    assert control.is_set()
    assert stop.is_set()


def test_a_container_knows_the_barrier_it_waits_at() -> None:
    control = Control(threading.Event())
    assert control.barrier == 0
    control.on_told("pause", 7)
    assert control.barrier == 7
    control.on_told("run", 1)
    assert control.barrier == 0


def board() -> Board:
    made = Board()
    made.place(ZERO, Seat(11, 1, Directive(Told.RUN, 3), 3, 0.0, 11))
    return made


def test_only_the_incarnation_with_the_seat_is_answered() -> None:
    seats = board()
    assert seats.heard(ZERO, 11, 5.0).heard_s == 5.0
    with pytest.raises(CoordinatorUnavailable):
        seats.heard(ZERO, 10, 5.0)  # before the coordinator knows who runs, nobody is sent away
    seats.open()
    for container, epoch in ((ZERO, 10), (ContainerId("1"), 11)):
        with pytest.raises(Fenced):
            seats.heard(container, epoch, 5.0)


def test_who_was_told_to_stop_is_told_nothing_else() -> None:
    seats = board()
    seats.tell(ZERO, Directive(Told.STOP, 0))
    seats.tell(ZERO, Directive(Told.RUN, 4))
    assert seats.heard(ZERO, 11, 1.0).directive == Directive(Told.STOP, 0)


def test_a_barrier_does_not_change_what_a_container_was_told_to_run() -> None:
    seats = board()
    seats.tell(ZERO, Directive(Told.PAUSE, 9))
    seat = seats.seat(ZERO)
    assert seat is not None
    assert seat.serial == 3


class Client:
    """A coordinator that answers, refuses or is gone."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.bodies: list[dict[str, object]] = []

    def get(self, path: str) -> Any:
        raise NotImplementedError(path)

    def heartbeat(self, container_id: str, body: dict[str, object]) -> dict[str, Any]:
        self.bodies.append(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def heartbeat(
    client: Client, successor: Client | Exception | None = None
) -> tuple[Heartbeat, list[Any], ManualClock]:
    clock, seen = ManualClock(), []

    def found() -> Client | None:
        if isinstance(successor, Exception):
            raise successor
        return successor

    reactions = Reactions(
        lambda told, number: seen.append((told, number)),
        lambda: seen.append("fenced"),
        lambda: seen.append("orphaned"),
        found,
    )
    return Heartbeat(client, "0", 11, reactions, now_s=clock.monotonic_s), seen, clock


def test_a_heartbeat_says_how_far_the_container_is_and_passes_on_the_answer() -> None:
    client = Client({"action": "pause", "number": 2})
    beat, seen, _ = heartbeat(client)
    beat.report(ContainerProgress("running", batch_id=5, records=100, serial=3))
    beat.send()
    assert seen == [("pause", 2)]
    assert client.bodies[0]["epoch"] == 11
    assert client.bodies[0]["records"] == 100


def test_a_fenced_container_is_told_so() -> None:
    beat, seen, _ = heartbeat(Client(Fenced("container 0", epoch=11, seen=12)))
    beat.send()
    assert seen == ["fenced"]


def test_a_coordinator_that_is_gone_is_looked_for_at_its_successors_address() -> None:
    successor = Client({"action": "run", "number": 3})
    beat, seen, _ = heartbeat(Client(CoordinatorUnavailable("gone")), successor)
    for _ in range(3):
        beat.send()
    assert seen == [("run", 3)]


@pytest.mark.parametrize(("orphan_s", "expected"), [(50.0, ["orphaned"]), (-1.0, [])])
def test_without_any_coordinator_a_container_becomes_an_orphan_in_its_time(
    orphan_s: float, expected: list[str]
) -> None:
    beat, seen, clock = heartbeat(Client(CoordinatorUnavailable("gone")))
    beat.orphan_s = orphan_s
    clock.advance(49)
    beat.send()
    assert seen == []
    clock.advance(2)
    beat.send()
    assert seen == expected


def test_while_the_coordinator_stream_does_not_answer_no_container_becomes_an_orphan() -> None:
    """Nobody can lead then: whoever ended would have to be started again when the brokers are back."""
    beat, seen, clock = heartbeat(Client(CoordinatorUnavailable("gone")), LogUnreachable("no broker"))
    beat.orphan_s = 50.0
    for _ in range(10):
        clock.advance(40)
        beat.send()
    assert seen == []


@pytest.mark.parametrize(
    "answer", [{"action": "dance"}, {"number": "3"}, {"action": ["run"]}, {"number": None}]
)
def test_an_answer_that_is_no_coordinators_counts_as_none(answer: dict[str, Any]) -> None:
    beat, seen, clock = heartbeat(Client(answer), LogCorrupted("garbage in the stream"))
    beat.orphan_s = 50.0
    for _ in range(3):
        beat.send()
    assert seen == []
    clock.advance(51)
    beat.send()
    assert seen == ["orphaned"]


def test_whatever_a_heartbeat_meets_the_container_is_an_orphan_in_its_time() -> None:
    """A container that nobody can end would go on for ever."""
    beat, seen, clock = heartbeat(Client(ZeroDivisionError("nobody has thought of it")))
    beat.orphan_s = 50.0
    clock.advance(51)
    beat.start()
    eventually(lambda: "orphaned" in seen)
    beat.client = Client({})
    beat.close()
