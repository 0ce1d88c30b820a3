"""What a StreamTask expects of its messages: counted, left out, set aside, or the end of its batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import grete
from grete.errors import ConfigError, ProcessingError
from grete.testing.job import JobUnderTest

BASE = {
    "job.name": "orders",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.msg.serde": "json",
}
ASIDE = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
NAME = "amount is positive"


class Orders(grete.StreamTask):
    """Sends on what it may; a message before the check shows that what is set aside is undone."""

    def init(self, context: grete.TaskContext) -> None:
        self.context = context

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.message == 0:
            collector.send("local.out", "before")
        action = self.context.config["action"]
        if self.context.expect(NAME, envelope.message > 0, action):  # type: ignore[arg-type]
            collector.send("local.out", envelope.message)


class Awaited(grete.AsyncStreamTask):
    """The same, asynchronous."""

    def init(self, context: grete.TaskContext) -> None:
        self.context = context

    async def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        await asyncio.sleep(0)
        if self.context.expect(NAME, envelope.message > 0, self.context.config["action"]):  # type: ignore[arg-type]
            collector.send("local.out", envelope.message)


def ran(action: str, task: type[grete.StreamTask] = Orders, **more: str) -> tuple[list[Any], Any, int]:
    """Outputs, what was counted of messages 3, -1, 0 and 2, and how many are dead letters."""
    with JobUnderTest(task, {**BASE, "action": action, **more}) as job:
        for message in (3, -1, 0, 2):
            job.send("local.in", message)
        letters = job.run().dead_letters
        return job.messages("local.out"), job.metrics("Partition 0")[f"expectation.{NAME}"], letters


@pytest.mark.parametrize("task", [Orders, Awaited])
def test_messages_go_where_the_action_says_and_are_counted(task: type[grete.StreamTask]) -> None:
    counted, before = {"checked": 4, "failed": 2}, ["before"] if task is Orders else []
    assert ran("count", task) == ([3, -1, *before, 0, 2], counted, 0)
    assert ran("drop", task) == ([3, *before, 2], counted, 0)
    assert ran("dead-letter", task, **ASIDE) == ([3, 2], counted, 2)


def test_a_batch_fails_whatever_the_policy_is_and_says_what_was_expected() -> None:
    for more in ({}, ASIDE, {**ASIDE, "task.drop.deserialization.errors": "true"}):
        with pytest.raises(ProcessingError, match=rf"local\.in\.0 offset 1: .*'{NAME}' is not met"):
            ran("fail", **more)


def test_without_dead_letters_the_way_out_is_said() -> None:
    with pytest.raises(
        ProcessingError, match=r"task\.poison\.policy=dead-letter would set the message aside"
    ):
        ran("dead-letter")


def test_an_action_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no action 'dorp'; did you mean drop\?"):
        ran("dorp")
