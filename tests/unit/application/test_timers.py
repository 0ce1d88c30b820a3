"""Timers of tasks: called once, in the order of their times, between messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import grete
from grete.application.timers import Timers
from grete.errors import IllegalStateError, ProcessingError
from grete.testing.job import JobUnderTest
from grete.wire.metric_values import CONTAINER_GROUP, TASK_GROUP

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.due.factory": "grete.store.sqlite",
    "stores.due.key.serde": "string",
    "stores.due.msg.serde": "json",
}


class Remind(grete.StreamTask):
    """Sends each message again after so many ms; what is due is in a store, so that a restart loses none."""

    def init(self, context: grete.TaskContext) -> None:
        self.due = context.store("due")
        self.scheduler = context.scheduler
        for key, at_ms in self.due.all():
            self.scheduler.schedule(key, at_ms)

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        if envelope.message is None:
            self.scheduler.delete(envelope.key)
            self.due.delete(envelope.key)
            return
        at_ms = envelope.timestamp_ms + envelope.message
        self.due.put(envelope.key, at_ms)
        self.scheduler.schedule(envelope.key, at_ms)

    def on_timer(
        self, key: Any, collector: grete.MessageCollector, coordinator: grete.TaskCoordinator
    ) -> None:
        if key == "bad":
            raise ValueError("bad timer")
        self.due.delete(key)
        collector.send("local.out", key)


@pytest.fixture
def job() -> Iterator[JobUnderTest]:
    with JobUnderTest(Remind, CONFIG) as made:
        yield made


def test_timers_are_called_in_the_order_of_their_times_when_these_have_come(job: JobUnderTest) -> None:
    for key, after_ms in (("c", 3_000), ("a", 1_000), ("b", 2_000)):
        job.send("local.in", after_ms, key=key)
    job.run()
    assert job.messages("local.out") == []
    job.advance(2.5)
    job.run()
    assert job.messages("local.out") == ["a", "b"]
    job.advance(1)
    job.run()
    job.run()
    assert job.messages("local.out") == ["a", "b", "c"]
    assert job.store("due", "Partition 0") == {}


def test_a_timer_can_be_replaced_and_deleted(job: JobUnderTest) -> None:
    for key, after_ms in (("a", 1_000), ("b", 1_000), ("a", 5_000), ("b", None)):
        job.send("local.in", after_ms, key=key)
    job.run()
    job.advance(2)
    job.run()
    assert job.messages("local.out") == []
    job.advance(4)
    job.run()
    assert job.messages("local.out") == ["a"]


def test_a_restarted_task_is_initialised_without_a_message_so_that_it_can_schedule_again(
    job: JobUnderTest,
) -> None:
    job.send("local.in", 1_000, key="a")
    job.run()
    job.restart()
    job.run()
    job.advance(2)
    job.run()
    assert job.messages("local.out") == ["a"]


def test_what_a_timer_sends_has_the_time_of_now(job: JobUnderTest) -> None:
    job.send("local.in", 1_000, key="a")
    job.run()
    job.advance(10)
    job.run()
    [sent] = job.outputs("local.out")
    assert sent.timestamp_ms == job.clock.wall_ms()


def test_a_timer_that_fails_ends_the_attempt_and_names_its_task(job: JobUnderTest) -> None:
    job.send("local.in", 0, key="bad")
    with pytest.raises(ProcessingError, match=r"on_timer\(\) of task 'Partition 0' failed: ValueError"):
        job.run()
    assert job.checkpoints() == {}


def test_calls_of_timers_are_measured_under_samzas_names(job: JobUnderTest) -> None:
    for key in "ab":
        job.send("local.in", 1_000, key=key)
    job.run()
    job.advance(2)
    job.run()
    assert job.metrics("Partition 0")[TASK_GROUP]["timer-calls"] == 2
    assert job.metrics()[CONTAINER_GROUP]["timer-calls"] == 2


def test_scheduling_without_on_timer_is_refused() -> None:
    class Deaf(grete.StreamTask):
        def init(self, context: grete.TaskContext) -> None:
            self.scheduler = context.scheduler

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            self.scheduler.schedule("key", 0)

    with JobUnderTest(Deaf, CONFIG) as job:
        job.send("local.in", 0)
        with pytest.raises(IllegalStateError, match="has no on_timer"):
            job.run()


def test_a_timer_that_schedules_itself_for_now_waits_for_the_next_call() -> None:
    timers = Timers(is_heard=True)
    timers.schedule("a", 5)
    timers.schedule("b", 6)
    called = []
    for key in timers.due(10):
        called.append(key)
        timers.schedule(key, 5)
        timers.delete("b")
    assert called == ["a"]
    assert (timers.next_ms, list(timers.due(10)), timers.next_ms) == (5, ["a"], None)
