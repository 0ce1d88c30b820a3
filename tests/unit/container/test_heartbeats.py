"""Messages between a coordinator and its containers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from grete.container.control import Control
from grete.container.heartbeat import HeartbeatSender, Reactions
from grete.coordinator.heartbeat_registry import ContainerSlot, HeartbeatRegistry
from grete.errors import CoordinatorUnavailable, Fenced, LogCorrupted, LogUnreachable
from grete.model.ids import ContainerId
from grete.testing.clock import ManualClock
from grete.testing.waiting import eventually
from grete.wire.container_protocol import HELD_AT_MOST_S, Command, Directive, Heartbeat

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


def test_a_directive_that_came_before_the_wait_ends_it() -> None:
    """Between the look whether to go on and the wait, which else took its whole time."""
    stop = threading.Event()
    for directive in (Directive(Command.RUN, 5), Directive(Command.PAUSE, 2), Directive(Command.STOP, 0)):
        control = Control(stop)
        control.running(4)
        control.on_directive(directive)
        control.wait(3600)


@pytest.mark.parametrize(
    "directive", [Directive(Command.RUN, 4), Directive(Command.PAUSE, 8), Directive(Command.STOP, 0)]
)
@pytest.mark.parametrize("is_before", [True, False])
def test_a_container_waits_at_a_barrier_until_the_directive_is_another(
    directive: Directive, *, is_before: bool
) -> None:
    control = Control(threading.Event())
    control.on_directive(Directive(Command.PAUSE, 7))
    control.wait_at(7, 0)
    assert control.barrier == 7
    waiting = threading.Thread(target=control.wait_at, args=(7, 3600), daemon=True)
    if is_before:
        control.on_directive(directive)
    waiting.start()
    control.on_directive(directive)
    waiting.join(60)
    assert not waiting.is_alive()


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


def held(registry: HeartbeatRegistry) -> Future[Directive]:
    """The answer to a heartbeat of the container, whose directive is known to it."""
    return registry.next_directive(ZERO, registry.record_heartbeat(ZERO, 11, 5.0))


def test_an_answer_is_held_until_the_directive_is_another(registry: HeartbeatRegistry) -> None:
    answer = held(registry)
    assert not answer.done()
    registry.direct(ZERO, Directive(Command.PAUSE, 9))
    assert answer.result(0) == Directive(Command.PAUSE, 9)


def test_a_coordinator_that_ends_gives_the_answers_that_it_holds_and_holds_none_more(
    registry: HeartbeatRegistry,
) -> None:
    """Its server waits for them, and its successor for its address."""
    answer = held(registry)
    registry.close()
    assert answer.result(0) == registry.record_heartbeat(ZERO, 11, 6.0).directive
    assert held(registry).done()


def test_a_held_answer_is_given_when_the_container_sends_another_heartbeat(
    registry: HeartbeatRegistry,
) -> None:
    """It has something to report, or ends: its thread has not to wait then."""
    answer = held(registry)
    registry.record_heartbeat(ZERO, 11, 6.0)
    assert answer.result(0) == Directive(Command.RUN, 3)


def test_a_directive_that_comes_between_a_heartbeat_and_its_answer_is_not_held(
    registry: HeartbeatRegistry,
) -> None:
    slot = registry.record_heartbeat(ZERO, 11, 5.0)
    registry.direct(ZERO, Directive(Command.STOP, 0))
    assert registry.next_directive(ZERO, slot).result(0) == Directive(Command.STOP, 0)


def test_an_incarnation_whose_answer_is_held_learns_that_it_was_replaced(registry: HeartbeatRegistry) -> None:
    gone = held(registry)
    registry.clear(ZERO, 1)
    registry.assign(ZERO, ContainerSlot(11, 1, Directive(Command.RUN, 3), 3, 0.0, 11))
    replaced = held(registry)
    registry.assign(ZERO, ContainerSlot(12, 2, Directive(Command.RUN, 4), 4, 0.0, 12))
    for answer, seen in ((gone, 0), (replaced, 12)):
        with pytest.raises(Fenced) as fenced:
            answer.result(0)
        assert fenced.value.seen == seen


def test_an_answer_that_is_waited_for_no_more_is_forgotten(registry: HeartbeatRegistry) -> None:
    held(registry).cancel()
    registry.direct(ZERO, Directive(Command.PAUSE, 9))
    assert registry.record_heartbeat(ZERO, 11, 6.0).directive == Directive(Command.PAUSE, 9)


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


def test_a_heartbeat_names_the_directive_that_is_known_and_a_report_waits_for_nothing() -> None:
    client = Client(Directive(Command.RUN, 3))
    beat, seen, _ = heartbeat(client)
    assert [beat.send(), beat.send()] == [True, False]
    beat.report(state="paused", paused=2)
    beat.report_now()
    known = [one.known for one in client.heartbeats]
    assert known == [msgspec.UNSET, Directive(Command.RUN, 3), msgspec.UNSET]
    assert seen == [Directive(Command.RUN, 3)] * 2  # a report's answer may be older than one that came before


def test_a_coordinator_of_an_older_version_which_holds_no_answer_is_not_asked_more_often_for_it() -> None:

    class Older(Client):
        def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
            times_s.append(time.monotonic())
            return super().heartbeat(container_id, heartbeat)

    times_s: list[float] = []
    client = Older(Directive(Command.RUN, 3))
    made = HeartbeatSender(client, "0", 11, Reactions(*[lambda *_: None] * 4))  # type: ignore[arg-type]
    made.start()
    eventually(lambda: len(times_s) >= 3)
    made.close()
    assert times_s[2] - times_s[1] >= HELD_AT_MOST_S


@pytest.mark.parametrize(("silent_s", "longest_s"), [(60.0, 2.0), (0.0, 2.0), (1.5, 0.375)])
def test_of_a_container_at_rest_the_coordinator_may_hold_its_answer_longer(
    silent_s: float, longest_s: float
) -> None:
    """Not so long that it takes the container for silent; and as short as before once there is something new."""
    client = Client(Directive(Command.RUN, 3))
    beat, _, clock = heartbeat(client)
    beat.silent_s = silent_s
    beat.send()
    for wait_s, batch_id in ((4.0, 1), (4.0, 1), (2.0, 1), (5.0, 1), (1.0, 2), (5.0, 2)):
        beat.report(batch_id=batch_id)
        clock.advance(wait_s)
        beat.send()
    holds = [one.hold_s for one in client.heartbeats]
    assert holds == [
        HELD_AT_MOST_S,
        HELD_AT_MOST_S,
        longest_s,
        longest_s,
        longest_s,
        HELD_AT_MOST_S,
        longest_s,
    ]


class Holding(Client):
    """A coordinator that holds an answer until the next heartbeat comes, or there is another directive."""

    def __init__(self) -> None:
        super().__init__(Directive(Command.RUN, 3))
        self.held: list[threading.Event] = []

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        for one in self.held:
            one.set()
        answer = super().heartbeat(container_id, heartbeat)
        if heartbeat.known == answer:
            self.held.append(threading.Event())
            assert self.held[-1].wait(60)
        return answer


def test_after_a_new_directive_or_a_report_the_coordinator_holds_an_answer_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the directive that follows a report would find none, and come half a second late."""
    monkeypatch.setattr("grete.container.heartbeat.HELD_AT_MOST_S", 3600.0)
    client = Holding()
    beat, _, _ = heartbeat(client)
    beat.start()
    for number in range(1, 4):
        eventually(lambda number=number: len(client.held) == number)  # type: ignore[misc]
        beat.report_now()
    eventually(lambda: len(client.held) == 4)
    beat.close()


def test_a_container_that_ends_does_not_wait_for_an_answer_that_is_held() -> None:
    client = Holding()
    beat, _, _ = heartbeat(client)
    beat.start()
    eventually(lambda: client.held)
    beat.report(state="stopped")
    beat.close()
    assert client.heartbeats[-1] == Heartbeat(11, "stopped")
    assert not beat._thread.is_alive()
