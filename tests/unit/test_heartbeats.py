"""Messages between a coordinator and its containers."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from grete.container.control import Control
from grete.container.heartbeat import HeartbeatSender, Reactions
from grete.coordinator.heartbeat_registry import ContainerSlot, HeartbeatRegistry
from grete.errors import CoordinatorUnavailable, Fenced, LogCorrupted, LogUnreachable
from grete.model.ids import ContainerId
from grete.testing.clock import ManualClock
from grete.testing.waiting import eventually
from grete.wire.container_protocol import Command, Directive, Heartbeat

ZERO = ContainerId("0")


def test_a_query_is_interrupted_for_a_barrier_a_new_word_and_the_end_and_for_nothing_else() -> None:
    stop = threading.Event()
    control = Control(stop)
    control.running(4)
    for command, number, interrupts in (
        (Command.RUN, 4, False),
        (Command.PAUSE, 2, True),
        (Command.RUN, 4, False),
        (Command.RUN, 5, True),
    ):
        control.on_directive(Directive(command, number))
        assert control.is_set() is interrupts, (command, number)
    control.running(5)
    assert not control.is_set()
    control.on_directive(Directive(Command.STOP, 0))
    assert control.is_set()
    assert stop.is_set()


def test_a_container_knows_the_barrier_it_waits_at() -> None:
    control = Control(threading.Event())
    assert control.barrier == 0
    control.on_directive(Directive(Command.PAUSE, 7))
    assert control.barrier == 7
    control.on_directive(Directive(Command.RUN, 1))
    assert control.barrier == 0


@pytest.fixture
def registry() -> HeartbeatRegistry:
    made = HeartbeatRegistry()
    made.assign(ZERO, ContainerSlot(11, 1, Directive(Command.RUN, 3), 3, 0.0, 11))
    return made


def test_only_the_incarnation_that_has_the_slot_is_answered(registry: HeartbeatRegistry) -> None:
    assert registry.record_heartbeat(ZERO, 11, 5.0).heartbeat_s == 5.0
    with pytest.raises(CoordinatorUnavailable):
        registry.record_heartbeat(ZERO, 10, 5.0)  # none is sent away before it is known which ones run
    registry.open()
    for container, epoch in ((ZERO, 10), (ContainerId("1"), 11)):
        with pytest.raises(Fenced):
            registry.record_heartbeat(container, epoch, 5.0)


def test_a_stop_is_final_for_an_incarnation(registry: HeartbeatRegistry) -> None:
    registry.direct(ZERO, Directive(Command.STOP, 0))
    registry.direct(ZERO, Directive(Command.RUN, 4))
    assert registry.record_heartbeat(ZERO, 11, 1.0).directive == Directive(Command.STOP, 0)


def test_a_barrier_does_not_change_what_a_container_has_to_run(registry: HeartbeatRegistry) -> None:
    registry.direct(ZERO, Directive(Command.PAUSE, 9))
    slot = registry.slot(ZERO)
    assert slot is not None
    assert slot.serial == 3


class Client:
    """A coordinator that answers, refuses or is gone."""

    def __init__(self, answer: Directive | Exception) -> None:
        self.answer = answer
        self.heartbeats: list[Heartbeat] = []

    def get(self, path: str) -> Any:
        raise NotImplementedError(path)

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        self.heartbeats.append(heartbeat)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def heartbeat(
    client: Client, successor: Client | Exception | None = None
) -> tuple[HeartbeatSender, list[Any], ManualClock]:
    clock, seen = ManualClock(), []

    def found() -> Client | None:
        if isinstance(successor, Exception):
            raise successor
        return successor

    reactions = Reactions(
        seen.append,
        lambda: seen.append("fenced"),
        lambda: seen.append("orphaned"),
        found,
    )
    return HeartbeatSender(client, "0", 11, reactions, now_s=clock.monotonic_s), seen, clock


def test_a_heartbeat_says_how_far_the_container_is_and_passes_on_the_answer() -> None:
    client = Client(Directive(Command.PAUSE, 2))
    beat, seen, _ = heartbeat(client)
    beat.report(state="running", batch_id=5, records=100, serial=3)
    beat.send()
    assert seen == [Directive(Command.PAUSE, 2)]
    assert client.heartbeats == [Heartbeat(11, "running", batch_id=5, records=100, serial=3)]


def test_a_fenced_container_gets_the_answer_fenced() -> None:
    beat, seen, _ = heartbeat(Client(Fenced("container 0", epoch=11, seen=12)))
    beat.send()
    assert seen == ["fenced"]


def test_a_coordinator_that_is_gone_is_looked_for_at_its_successors_address() -> None:
    successor = Client(Directive(Command.RUN, 3))
    beat, seen, _ = heartbeat(Client(CoordinatorUnavailable("gone")), successor)
    for _ in range(3):
        beat.send()
    assert seen == [Directive(Command.RUN, 3)]


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
    """No process can lead then: one that ended would have to be restarted when the brokers are back."""
    beat, seen, clock = heartbeat(Client(CoordinatorUnavailable("gone")), LogUnreachable("no broker"))
    beat.orphan_s = 50.0
    for _ in range(10):
        clock.advance(40)
        beat.send()
    assert seen == []


def test_an_answer_that_is_no_coordinators_counts_as_none() -> None:
    stranger = Client(CoordinatorUnavailable("answers 'hello': that is no coordinator"))
    beat, seen, clock = heartbeat(stranger, LogCorrupted("garbage in the stream"))
    beat.orphan_s = 50.0
    for _ in range(3):
        beat.send()
    assert seen == []
    clock.advance(51)
    beat.send()
    assert seen == ["orphaned"]


def test_whatever_a_heartbeat_meets_the_container_is_an_orphan_in_its_time() -> None:
    """Else the container would go on for ever."""
    beat, seen, clock = heartbeat(Client(ZeroDivisionError("unexpected")))
    beat.orphan_s = 50.0
    clock.advance(51)
    beat.start()
    eventually(lambda: "orphaned" in seen)
    beat.client = Client(Directive(Command.RUN, 0))
    beat.close()
